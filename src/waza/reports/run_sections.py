"""Sections that reports of a run share, as documents: its metrics, and what changed since an earlier run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from waza.reports.comparison import TONES, sentence
from waza.reports.document import Block, ForeignText, Grid, Heading, Mark, TextLine, Words
from waza.reports.run_before import EarlierRun, TaskDelta, delta
from waza.runs.summary import Summary
from waza.runs.tasks import TaskSummary
from waza.untrusted.text import plural, score

MOST_NAMED = 20
_WORDS = {"passed": "passed", "failed": "failed", "error": "undecided", "skipped": "not graded"}


def metrics_document(summary: Summary) -> Iterator[Block]:
    """Yield the metrics of a run with what each needs; nothing where there are none."""
    rows: list[tuple[Words, ...]] = [
        (
            (Mark(metric.status),),
            (ForeignText(metric.name),),
            (f"{score(metric.value)} {metric.note}".rstrip(),),
            ("" if metric.threshold is None else f"{metric.threshold:g}",),
            (f"{metric.weight:g}",),
            (ForeignText(metric.reason),) if metric.reason else (),
        )
        for metric in summary.metrics
    ]
    if rows:
        yield Heading(("Metrics",))
        yield Grid(("", "metric", "value", "needs", "weight", "reason"), rows, (0, 1, 5))


def change_document(before: EarlierRun, tasks: Sequence[TaskSummary], most: int = MOST_NAMED) -> Iterator[Block]:
    """Yield which tasks changed their status since an earlier run, and whether that is more than chance."""
    changes = delta(before, tasks)
    yield Heading(("Against ", ForeignText(before.name)))
    yield from _change_lines(changes)
    flips = (changes.worse, changes.better, changes.others)
    rows: list[tuple[Words, ...]] = [
        (
            (Mark(flip.now),) if flip.now in _WORDS else (),
            (ForeignText(flip.task),),
            _status(flip.was),
            _status(flip.now),
        )
        for some in flips
        for flip in some[:most]
    ]
    if rows:
        yield Grid(("", "task", "was", "is"), rows, (0, 1, 2, 3))
    if more := sum(max(0, len(some) - most) for some in flips):
        yield TextLine((f"… and {plural(more, 'more task')}",), "soft")
    for names, label in ((changes.added, "new"), (changes.removed, "not in this run")):
        if names:
            rest = f" and {len(names) - most} more" if len(names) > most else ""
            yield TextLine((f"{label}: ", *_listed(names[:most]), rest))


def _change_lines(changes: TaskDelta) -> Iterator[TextLine]:
    if not changes.common:
        yield TextLine(("The two runs have no task in common.",))
        return
    points = 100 * (changes.passed_now - changes.passed_before) / changes.common
    counts = f"{changes.passed_now} pass now, {changes.passed_before} did before ({points:+.0f} points)"
    flips = f"{len(changes.worse)} regressed, {len(changes.better)} fixed"
    is_same = not (changes.worse or changes.better or changes.others)
    result = "No task changed its status" if is_same else flips
    yield TextLine((f"Of {plural(changes.common, 'common task')}, {counts}. {result}.",))
    if not is_same:
        yield TextLine((sentence(changes.verdict),), TONES[changes.verdict.word])


def _status(status: str) -> Words:
    """Return a status in words; a results file may have any text there."""
    return (ForeignText(_WORDS.get(status, status)),)


def _listed(names: Sequence[str]) -> Words:
    words: list[str | ForeignText] = []
    for name in names:
        words += [", ", ForeignText(name)] if words else [ForeignText(name)]
    return tuple(words)
