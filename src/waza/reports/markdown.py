"""The `markdown` report, for a page, a wiki or a message: numbers, failed checks, every task.

Each part is a piece by itself: a reader with a size limit takes the first ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from waza.model import Result, Run
from waza.reports.base import Report
from waza.reports.document import MARKDOWN_MARKS as MARKS
from waza.reports.document import ForeignText, Grid, Words, cell, code, fenced, html_code, markdown_document
from waza.reports.failed_checks import Fault, ending, faults, headline, places_of, trials_of
from waza.reports.impact import impact_document
from waza.reports.interpretation import numbers_line, rate_line, repeats_line
from waza.reports.judging import judging_lines
from waza.reports.run_before import EarlierRun
from waza.reports.run_sections import change_document, metrics_document
from waza.reports.triggers import trigger_document
from waza.runs.impact import stored_impact
from waza.runs.summary import Summary, summarize
from waza.runs.tasks import TaskSummary, summarize_tasks
from waza.untrusted.text import percent, plural, score, seconds


class MarkdownReport(Report):
    """Markdown: the numbers, failed checks, every task; text of agents is in code spans only."""

    file = "report.md"

    def render(self, run: Run, before: EarlierRun | None = None) -> Iterator[bytes]:
        """Yield the file, a task at a time."""
        tasks = summarize_tasks(run)
        changed = chain(impact(run), change(before, tasks) if before else ())
        parts = chain(head(run, summarize(run, tasks=tasks)), changed, failures(run, tasks), task_rows(tasks))
        yield from (part.encode() for part in parts)


MOST_TRIALS = 3
"""How many trials of one task are shown in full."""
MOST_FAULTS = 8
"""How many checks of one trial are shown."""


def head(run: Run, summary: Summary) -> Iterator[str]:
    """Yield the title, what was run with what, and the numbers."""
    mark = {0: "✅", 1: "❌"}.get(summary.exit_code, "❔")
    yield f"## {mark} {code(run.name)}\n\n"
    numbers = "  \n".join(line for line in (numbers_line(summary), repeats_line(run)) if line)
    made = [f"engine {code(run.engine)}", *([f"model {code(run.model)}"] if run.model else []), f"run {code(run.id)}"]
    rate = f"**{rate_line(summary)}**  \n" if summary.total_tests or summary.triggers is None else ""
    yield f"{rate}{numbers}  \n{' · '.join(made)}\n\n"
    if not run.complete:
        yield "⚠️ The run is not complete: some trials are missing.\n\n"
    for warning in summary.warnings:
        yield f"⚠️ {code(warning, 400)}\n\n"
    for line in judging_lines(run):
        yield f"{code(line, 600)}\n\n"
    if summary.metrics:
        yield markdown_document(metrics_document(summary), level=2) + "\n"
    if summary.triggers is not None:
        yield markdown_document(trigger_document(run, summary.triggers), level=2) + "\n"


def impact(run: Run) -> Iterator[str]:
    """Yield the impact of the suite's skill, where the run has a control arm."""
    if stored := stored_impact(run):
        yield markdown_document(impact_document(stored), level=2) + "\n"


def change(before: EarlierRun, tasks: Sequence[TaskSummary]) -> Iterator[str]:
    """Yield which tasks changed their status since an earlier run."""
    yield markdown_document(change_document(before, tasks), level=2) + "\n"


def task_rows(tasks: Sequence[TaskSummary]) -> Iterator[str]:
    """Yield the table of tasks: how often each passed, with which score, in what time; nothing without tasks."""
    if not tasks:
        return
    yield "### Tasks\n\n| | task | passed | score | time |\n|---|---|---:|---:|---:|\n"
    for task in tasks:
        trials = trials_of(task)
        interval = f" ({percent(task.pass_rate)})" if trials > 1 else ""
        flaky = (" flaky" if task.is_flaky else "") + (" unsettled" if task.settled is False else "")
        passed = f"{task.passed} of {trials}{interval}{flaky}"
        facts = (MARKS[task.status], cell(task.id), passed, score(task.score.weighted), seconds(task.duration_ms))
        yield "| " + " | ".join(facts) + " |\n"
    yield "\n"


def failed_first(run: Run, tasks: Sequence[TaskSummary]) -> Iterator[tuple[TaskSummary, list[int]]]:
    """Yield the tasks that did not pass, failed before undecided, with the places of such trials in the results."""
    places = places_of(run, ("failed", "error"))
    for status in ("failed", "error"):
        for task in tasks:
            if task.status == status:
                yield task, places.get(task.id, [])


def failures(run: Run, tasks: Sequence[TaskSummary]) -> Iterator[str]:
    """Yield each task that did not pass with its failed checks, a piece a task."""
    title = "### Failed checks\n\n"
    for task, places in failed_first(run, tasks):
        yield title + _failure(run, task, places)
        title = ""


def _failure(run: Run, task: TaskSummary, places: list[int]) -> str:
    shown = [run.results[place] for place in places[:MOST_TRIALS]]
    why = html_code(headline(shown[0]) if shown else task.reason or "not run", 160)
    parts = [f"<details><summary>{MARKS[task.status]} {html_code(task.id)} {why}</summary>\n"]
    parts += [_trial(result, trials_of(task) > 1) for result in shown]
    if len(places) > MOST_TRIALS:
        parts.append(f"… and {plural(len(places) - MOST_TRIALS, 'more trial')}\n")
    return "\n".join([*parts, "</details>\n\n"])


def _trial(result: Result, with_number: bool) -> str:
    failed = faults(result)
    parts = [f"**Trial {result.trial}**\n"] if with_number else []
    parts += [code(result.reason, 400) + "\n"] if result.reason else []
    parts += [fenced("\n".join(ended), 1_000)] if (ended := ending(result)) else []
    parts += [_fault(fault) for fault in failed[:MOST_FAULTS]]
    if len(failed) > MOST_FAULTS:
        parts.append(f"… and {plural(len(failed) - MOST_FAULTS, 'more check')}\n")
    if result.trace.output:
        parts.append("the agent's output\n\n" + fenced(result.trace.output, 1_000))
    return "\n".join(parts)


def _fault(fault: Fault) -> str:
    text = f"{'❌' if fault.is_failure else '❔'} {code(fault.grader)}: {code(fault.words, 400)}\n"
    if fault.expected is None and fault.found is None:
        return text
    values = (("expected", fault.expected), ("found", fault.found))
    rows: list[tuple[Words, ...]] = [((label,), (ForeignText(one, 400),)) for label, one in values if one is not None]
    return f"{text}\n{markdown_document([Grid(('', ''), rows, (0, 1))])}"


def within(pieces: Iterable[str], most: int, rest: str) -> str:
    """Return the pieces that fit into `most` characters, followed by `rest` if some do not."""
    parts: list[str] = []
    left = most - len(rest)
    for piece in pieces:
        if len(piece) > left:
            return "".join(parts) + rest
        parts.append(piece)
        left -= len(piece)
    return "".join(parts)
