"""What a comparison of two runs says, in words and numbers; the form is `_document.py`'s business."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from waza.analysis.changes import Argument, Attribution, CheckChange, Comparison, Details, Divergence, Side, TaskChange
from waza.reports.document import Block, ForeignText, Grid, Heading, TextLine, Tone, Words
from waza.stats.difference import DifferenceVerdict, Word
from waza.stats.resampling import Bootstrap
from waza.untrusted.text import clipped, percent, plural, score, seconds

TONES: dict[Word, Tone] = {
    "better": "good",
    "worse": "bad",
    "no difference shown": "",
    "too little evidence": "open",
}
FLIPS = {"broke": ("✗ broke", "bad"), "mended": ("✓ mended", "good"), "undecided": ("? undecided", "open")}
MOST_FLIPS = 20
MOST_CHECKS = 5
MOST_MOVED = 20
NOTHING: Words = ("–",)


def document(found: Comparison, *, whole: bool = False) -> Iterator[Block]:
    """Yield a comparison: the verdict, the flips, then the numbers; `whole` leaves no task out."""
    yield Heading((ForeignText(found.before.name), " · ", *_run(found.before), " → ", *_run(found.after)))
    yield TextLine((sentence(found.verdict, found.on),), TONES[found.verdict.word])
    yield from reservations(found)
    if found.attribution is not None:
        yield from _attributed(found.attribution)
    yield from _flips(found, whole)
    yield Heading(("Side by side",))
    yield sides(found)
    if found.graders:
        yield Heading(("Graders",))
        yield Grid(("grader", "before", "after", "change", "95 % interval", "p"), [_grader(g) for g in found.graders])
    yield from _moved([task for task in found.tasks if task.kind == "moved"], whole)


def sentence(verdict: DifferenceVerdict, on: str = "pass") -> str:
    """Return a verdict in one or two sentences."""
    if verdict.difference is None:
        return "Too little evidence: no task was decided in both runs."
    what = "pass rate" if on == "pass" else "score"
    told = f"{what} {signed(verdict.difference)} over {plural(verdict.tasks, 'task')}{_within(verdict.interval)}"
    told += f", p = {p_value(verdict.p_value)}"
    if verdict.word in ("better", "worse"):
        return f"{verdict.word.capitalize()}: {told}."
    if verdict.word == "no difference shown":
        return f"No difference shown: {told}. {_visible_from(verdict)}."
    return f"Too little evidence: {told}. {_visible_from(verdict)}; {_needed(verdict)}."


def _visible_from(verdict: DifferenceVerdict) -> str:
    if verdict.smallest is None or verdict.smallest > 1:
        return f"{plural(verdict.tasks, 'task')} can show no difference at all"
    return f"So many tasks and trials would show a difference of {points(verdict.smallest)}"


def _needed(verdict: DifferenceVerdict) -> str:
    ways = [f"about {plural(verdict.tasks_needed, 'task')} like these"] if verdict.tasks_needed else []
    ways += [f"about {plural(verdict.trials_needed, 'trial')} of each"] if verdict.trials_needed else []
    aim = f"a difference of {points(verdict.margin)}"
    return f"to show {aim} it takes {' or '.join(ways)}" if ways else f"to show {aim} it takes more tasks"


def signed(difference: float | None) -> str:
    """Return a difference of shares in points."""
    return "–" if difference is None else f"{difference * 100:+.1f} points"


def points(share: float) -> str:
    """Return a share in points."""
    return f"{share * 100:.1f} points"


def p_value(value: float) -> str:
    """Return a p-value as people write it."""
    return "<0.0001" if value < 0.0001 else f"{value:.4f}"


def _within(interval: Bootstrap | None) -> str:
    if interval is None or not interval.tells:
        return ""
    return f" (95 % interval {interval.lower * 100:+.1f} to {interval.upper * 100:+.1f})"


def _run(side: Side) -> Words:
    return (ForeignText(side.id), *((" (", ForeignText(side.model), ")") if side.model else ()))


def reservations(found: Comparison) -> Iterator[TextLine]:
    """Yield what a reader of the verdict should know besides."""
    if not found.holds:
        lost = found.before.undecided + found.after.undecided
        yield TextLine(
            (f"Undecided: {plural(lost, 'trial')}; had they come out one way or the other, this might change.",), "open"
        )
    for ids, told in (
        (found.asked_otherwise, "asked otherwise in the two runs, not compared"),
        (found.added, "new, not compared"),
        (found.removed, "no longer there, not compared"),
    ):
        if ids:
            more = f" and {len(ids) - 10} more" if len(ids) > 10 else ""
            yield TextLine((f"{told}: ", *_listed(ids[:10]), more), "open")
    for warning in found.warnings:
        yield TextLine((ForeignText(warning),), "open")


def _listed(words: list[str]) -> Words:
    pieces: list[str | ForeignText] = []
    for word in words:
        pieces += [", ", ForeignText(word)] if pieces else [ForeignText(word)]
    return tuple(pieces)


def _attributed(found: Attribution) -> Iterator[TextLine]:
    yield TextLine(
        (f"The graders of {plural(len(found.tasks), 'task')} changed between the runs; ", _graded(found)), "open"
    )
    if not any((found.pass_agent, found.score_agent)) and any((found.pass_graders, found.score_graders)):
        yield TextLine(("All of the change is the graders': on the same traces they say something else.",), "open")
    yield TextLine((_split("pass rate", found.pass_total, found.pass_agent, found.pass_graders),), "", 1)
    if found.score_total is not None:
        yield TextLine((_split("score", found.score_total, found.score_agent or 0, found.score_graders or 0),), "", 1)


def _graded(found: Attribution) -> str:
    earlier = "the earlier traces were graded by the later graders"
    later = "the later traces were graded by the earlier graders"
    return f"{earlier if found.graded == 'before' else later}, and the verdict is by these alone."


def _split(what: str, total: float, agent: float, graders: float) -> str:
    return f"{what}: {signed(total)} in all; the agent's part {signed(agent)}, the graders' part {signed(graders)}"


def _flips(found: Comparison, whole: bool) -> Iterator[Block]:
    flips = [task for task in found.tasks if task.kind in FLIPS]
    counts = {kind: sum(task.kind == kind for task in flips) for kind in FLIPS}
    yield Heading(("Flips",))
    if not flips:
        yield TextLine(("no task came out otherwise",), "soft")
        return
    told = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    yield TextLine((f"{told} (McNemar's exact test: p = {p_value(found.mcnemar_p)})",))
    for task in flips if whole else flips[:MOST_FLIPS]:
        word, tone = FLIPS[task.kind]
        yield TextLine((f"{word}  ", ForeignText(task.id), _trials(task)), tone)  # type: ignore[arg-type]
        if task.details is not None:
            yield from flip_lines(task.details)
    if len(flips) > MOST_FLIPS and not whole:
        yield TextLine((f"… {len(flips) - MOST_FLIPS} more: add -v",), "soft")


def _trials(task: TaskChange) -> str:
    golden = "  golden" if task.golden else ""
    if max(task.decided_before, task.decided_after) < 2:
        return golden
    counts = f"  {task.passed_before} of {task.decided_before} → {task.passed_after} of {task.decided_after}"
    shown = f", p = {p_value(task.p_value)}" if task.p_value is not None and task.p_value < 0.05 else ""
    return f"{counts}{shown}{golden}"


def flip_lines(details: Details) -> Iterator[TextLine]:
    """Yield what differs between two trials of a task that flipped: checks, and where the trajectories part."""
    for check in details.checks[:MOST_CHECKS]:
        yield TextLine(_check(check), "", 1)
        for label, value in (("expected", check.expected), ("found", check.actual)):
            if value is not None:
                yield TextLine((f"{label}  ", ForeignText(_value(value))), "soft", 2)
    if len(details.checks) > MOST_CHECKS:
        yield TextLine((f"… {plural(len(details.checks) - MOST_CHECKS, 'check')} more changed",), "soft", 1)
    if details.divergence is not None:
        yield TextLine(_parted(details.divergence), "", 1)
        for argument in details.divergence.arguments:
            yield TextLine(_argument(argument), "soft", 2)
    else:
        yield TextLine(("where the trajectories part is not known: tool calls were not recorded",), "soft", 1)


def _check(check: CheckChange) -> Words:
    words = {True: "held", False: "did not hold", None: "undecided"}
    claim = ForeignText(clipped(check.why or check.claim, 200))
    return (ForeignText(check.grader), ": ", claim, f" ({words[check.before]} → {words[check.after]})")


def _parted(parted: Divergence) -> Words:
    if parted.kind == "same":
        return (f"both made the same {plural(parted.call, 'tool call')}" if parted.call else "neither called a tool",)
    where = f"they part at call {parted.call}: "
    if parted.kind == "arguments":
        return (where, ForeignText(parted.before), " with other arguments")
    if parted.kind in ("left out", "added"):
        some = _listed(parted.skipped[:5]) + ((" …",) if len(parted.skipped) > 5 else ())
        return (where, *some, f" {'is' if len(parted.skipped) == 1 else 'are'} {parted.kind}")
    return (where, _tool(parted.before), " before, ", _tool(parted.after), " after")


def _tool(name: str) -> str | ForeignText:
    return ForeignText(name) if name else "no further call"


def _argument(argument: Argument) -> Words:
    before, after = ForeignText(_value(argument.before)), ForeignText(_value(argument.after))
    return (ForeignText(argument.path or "arguments"), ": ", before, " → ", after)


def _value(value: Any) -> str:
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return clipped(shown, 200) or "(nothing)"


def sides(found: Comparison) -> Grid:
    """Return both runs in numbers, beside each other."""
    one, other = found.before, found.after
    rows: list[tuple[str, str, str]] = [
        ("tasks passed", f"{one.passed} of {one.total}", f"{other.passed} of {other.total}"),
        ("pass rate of trials", percent(one.pass_rate), percent(other.pass_rate)),
        ("score", score(one.score), score(other.score)),
        ("undecided trials", str(one.undecided), str(other.undecided)),
        ("time a trial", seconds(_mean(one.duration_ms)), seconds(_mean(other.duration_ms))),
        ("tokens a trial", _count(_mean(one.tokens)), _count(_mean(other.tokens))),
        ("cost a trial", _money(_mean(one.cost_usd)), _money(_mean(other.cost_usd))),
        *_tools(one.tools or {}, other.tools or {}),
    ]
    columns = ("", "before", "after")
    return Grid(columns, [((label,), (before,), (after,)) for label, before, after in rows if {before, after} != {"–"}])


def _tools(one: dict[str, Any], other: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for key, label in (
        ("selection_accuracy", "first call is an expected tool"),
        ("input_correctness", "calls with right arguments"),
        ("success_rate", "calls that succeeded"),
    ):
        yield label, percent(one.get(key)), percent(other.get(key))
    for key in ("mean", "median", "p95"):
        yield f"calls a trial, {key}", _count(_calls(one, key)), _count(_calls(other, key))


def _calls(tools: dict[str, Any], key: str) -> float | None:
    counts = tools.get("call_count")
    return counts.get(key) if isinstance(counts, dict) else None


def _mean(found: Bootstrap | None) -> float | None:
    return found.mean if found else None


def _count(number: float | None) -> str:
    return "–" if number is None else f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _money(cost: float | None) -> str:
    return "–" if cost is None else f"${cost:.4f}"


def _grader(change: Any) -> tuple[Words, ...]:
    interval = change.interval
    told = f"{interval.lower:+.2f} to {interval.upper:+.2f}" if interval and interval.tells else "–"
    numbers = (score(change.before), score(change.after), f"{change.difference:+.2f}", told, p_value(change.p_value))
    return ((ForeignText(change.name),), *((number,) for number in numbers))


def _moved(tasks: list[TaskChange], whole: bool) -> Iterator[Block]:
    if not tasks:
        return
    yield Heading(("Moved without a flip",))
    shown = tasks if whole else tasks[:MOST_MOVED]
    yield Grid(
        ("task", "trials passed", "score before", "score after", "p (Holm)"), [_moved_row(task) for task in shown]
    )
    if len(tasks) > len(shown):
        yield TextLine((f"… {len(tasks) - len(shown)} more: add -v",), "soft")


def _moved_row(task: TaskChange) -> tuple[Words, ...]:
    trials = f"{task.passed_before} of {task.decided_before} → {task.passed_after} of {task.decided_after}"
    told = "–" if task.p_value is None else p_value(task.p_value)
    return (ForeignText(task.id),), (trials,), (score(task.score_before),), (score(task.score_after),), (told,)
