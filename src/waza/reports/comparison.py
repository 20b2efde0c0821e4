"""The document on a comparison of two runs: verdict, flips, numbers; `document.py` renders it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from waza.analysis.changes import Argument, Attribution, CheckChange, Comparison, Details, Divergence, Side, TaskChange
from waza.reports.document import Block, ForeignText, Grid, Heading, TextLine, Tone, Words
from waza.runs.tasks import TrialMean
from waza.stats.anytime import AlwaysValid
from waza.stats.difference import DifferenceVerdict, Word
from waza.stats.scores import Bootstrap
from waza.untrusted.text import clipped, percent, plural, score, seconds

TONES: dict[Word, Tone] = {
    "better": "good",
    "worse": "bad",
    "no difference shown": "",
    "too little evidence": "open",
}
FLIPS = {"broke": ("✗ regressed", "bad"), "mended": ("✓ fixed", "good"), "undecided": ("? undecided", "open")}
"""By kind of change: its mark and word, and its tone."""
MOST_FLIPS = 20
MOST_CHECKS = 5
MOST_MOVED = 20
NOTHING: Words = ("–",)


def document(comparison: Comparison, *, whole: bool = False) -> Iterator[Block]:
    """Yield a comparison: the verdict, the flips, then the numbers; `whole` leaves no task out."""
    yield Heading(
        (ForeignText(comparison.before.name), " · ", *_run(comparison.before), " → ", *_run(comparison.after))
    )
    yield TextLine((sentence(comparison.verdict, comparison.on),), TONES[comparison.verdict.word])
    yield TextLine((question(comparison.verdict),), "soft")
    yield from reservations(comparison)
    if comparison.attribution is not None:
        yield from _attributed(comparison.attribution)
    yield from _flips(comparison, whole)
    yield Heading(("Side by side",))
    yield sides(comparison)
    if comparison.graders:
        yield Heading(("Graders",))
        yield Grid(
            ("grader", "before", "after", "change", "95 % interval", "p"), [_grader(g) for g in comparison.graders]
        )
    yield from _moved([task for task in comparison.tasks if task.kind == "moved"], whole)


def sentence(verdict: DifferenceVerdict, on: str = "pass") -> str:
    """Return a verdict in one or two sentences."""
    if verdict.difference is None:
        return "Too little evidence: no task was decided in both runs."
    what = "pass rate" if on == "pass" else "score"
    if verdict.anytime is not None:
        return _at_any_time(verdict, verdict.anytime, what)
    facts = f"{what} {signed(verdict.difference)} over {plural(verdict.tasks, 'task')}{_within(verdict.interval)}"
    facts += f", p = {p_value(verdict.p_value)}" + (f" ({verdict.correction})" if verdict.correction else "")
    if verdict.word in ("better", "worse"):
        return f"{verdict.word.capitalize()}: {facts}."
    if verdict.word == "no difference shown":
        return f"No difference shown: {facts}. {_visible_from(verdict)}."
    return f"Too little evidence: {facts}. {_visible_from(verdict)}; {_needed(verdict)}."


def _at_any_time(verdict: DifferenceVerdict, found: AlwaysValid, what: str) -> str:
    word = verdict.word.capitalize() + ("" if verdict.word in ("better", "worse") else " so far")
    pairs = f"{plural(found.pairs, 'pair')} of trials in {plural(verdict.tasks, 'task')}"
    interval = f"95 % interval {found.lower * 100:+.1f} to {found.upper * 100:+.1f}"
    correction = f" ({verdict.correction})" if verdict.correction else ""
    facts = f"{what} {signed(verdict.difference)} over {pairs} ({interval}), p = {p_value(verdict.p_value)}{correction}"
    return f"{word}: {facts}; valid however often you look."


def _visible_from(verdict: DifferenceVerdict) -> str:
    if verdict.power is None or (verdict.smallest is None and not verdict.power):
        return f"{plural(verdict.tasks, 'task')} can show no difference at all"
    found = f"A difference of {points(verdict.margin)} would be found in {percent(verdict.power)} of such comparisons"
    if verdict.smallest is None or verdict.word == "no difference shown":
        return found
    return f"{found}, one of {points(verdict.smallest)} in 80 %"


def question(verdict: DifferenceVerdict) -> str:
    """Return the question that a verdict answers."""
    if verdict.anytime is not None:
        return "Question: did these very tasks change? Pairs of trials in order of arrival (two-sided, 5 %)."
    if verdict.these_tasks:
        return "Question: did these very tasks change? Trials are permuted within each task (two-sided, 5 %)."
    return "Question: would tasks like these pass more or less often? Each task counts as one (two-sided, 5 %)."


def _needed(verdict: DifferenceVerdict) -> str:
    ways = [f"about {plural(verdict.tasks_needed, 'task')} like these"] if verdict.tasks_needed else []
    ways += [f"about {plural(verdict.trials_needed, 'trial')} of each"] if verdict.trials_needed else []
    return f"to show {points(verdict.margin)} it takes {' or '.join(ways) or 'more tasks'}"


def signed(difference: float | None) -> str:
    """Return a difference of shares in points."""
    return "–" if difference is None else f"{difference * 100:+.1f} points"


def points(share: float) -> str:
    """Return a share in points."""
    return f"{share * 100:.1f} points"


def p_value(value: float) -> str:
    """Return a p-value as text."""
    return "<0.0001" if value < 0.0001 else f"{value:.4f}"


def _within(interval: Bootstrap | None) -> str:
    if interval is None or not interval.tells:
        return ""
    return f" (95 % interval {interval.lower * 100:+.1f} to {interval.upper * 100:+.1f})"


def _run(side: Side) -> Words:
    return (ForeignText(side.id), *((" (", ForeignText(side.model), ")") if side.model else ()))


def reservations(comparison: Comparison) -> Iterator[TextLine]:
    """Yield the reservations about the verdict: undecided trials, tasks not compared, warnings."""
    if not comparison.holds:
        lost = comparison.before.undecided + comparison.after.undecided
        yield TextLine((f"Undecided: {plural(lost, 'trial')}; with their results, the verdict might change.",), "open")
    for ids, label in (
        (comparison.asked_otherwise, "different prompts in the two runs, not compared"),
        (comparison.added, "new, not compared"),
        (comparison.removed, "removed, not compared"),
    ):
        if ids:
            more = f" and {len(ids) - 10} more" if len(ids) > 10 else ""
            yield TextLine((f"{label}: ", *_listed(ids[:10]), more), "open")
    for note in comparison.notes:
        yield TextLine((note,), "open")
    for warning in comparison.warnings:
        yield TextLine((ForeignText(warning),), "open")


def _listed(words: list[str]) -> Words:
    pieces: list[str | ForeignText] = []
    for word in words:
        pieces += [", ", ForeignText(word)] if pieces else [ForeignText(word)]
    return tuple(pieces)


def _attributed(attribution: Attribution) -> Iterator[TextLine]:
    yield TextLine(
        (f"The graders of {plural(len(attribution.tasks), 'task')} changed between the runs; ", _graded(attribution)),
        "open",
    )
    if not any((attribution.pass_agent, attribution.score_agent)) and any(
        (attribution.pass_graders, attribution.score_graders)
    ):
        yield TextLine(("The whole change comes from the graders: they grade the same traces differently.",), "open")
    yield TextLine(
        (_split("pass rate", attribution.pass_total, attribution.pass_agent, attribution.pass_graders),), "", 1
    )
    if attribution.score_total is not None:
        yield TextLine(
            (_split("score", attribution.score_total, attribution.score_agent or 0, attribution.score_graders or 0),),
            "",
            1,
        )


def _graded(attribution: Attribution) -> str:
    earlier = "the earlier traces were graded by the later graders"
    later = "the later traces were graded by the earlier graders"
    return f"{earlier if attribution.graded == 'before' else later}, and the verdict uses only these."


def _split(what: str, total: float, agent: float, graders: float) -> str:
    return f"{what}: {signed(total)} in all; the agent's part {signed(agent)}, the graders' part {signed(graders)}"


def _flips(comparison: Comparison, whole: bool) -> Iterator[Block]:
    flips = [task for task in comparison.tasks if task.kind in FLIPS]
    counts = {kind: sum(task.kind == kind for task in flips) for kind in FLIPS}
    yield Heading(("Flips",))
    if not flips:
        yield TextLine(("no task changed its status",), "soft")
        return
    counted = ", ".join(f"{count} {flip_word(kind)}" for kind, count in counts.items() if count)
    yield TextLine((counted,))
    for task in flips if whole else flips[:MOST_FLIPS]:
        word, tone = FLIPS[task.kind]
        yield TextLine((f"{word}  ", ForeignText(task.id), _trials(task)), tone)  # type: ignore[arg-type]
        if task.details is not None:
            yield from flip_lines(task.details)
    if len(flips) > MOST_FLIPS and not whole:
        yield TextLine((f"… {len(flips) - MOST_FLIPS} more: add -v",), "soft")


def flip_word(kind: str) -> str:
    """Return the word for a kind of flip."""
    return FLIPS[kind][0].partition(" ")[2]


def _trials(task: TaskChange) -> str:
    golden = "  golden" if task.golden else ""
    if max(task.decided_before, task.decided_after) < 2:
        return golden
    counts = f"  {task.passed_before} of {task.decided_before} → {task.passed_after} of {task.decided_after}"
    shown = f", p = {p_value(task.p_value)}" if task.p_value is not None and task.p_value < 0.05 else ""
    return f"{counts}{shown}{golden}"


def flip_lines(details: Details) -> Iterator[TextLine]:
    """Yield what differs between two trials of a task that flipped: checks, and the first different tool call."""
    for check in details.checks[:MOST_CHECKS]:
        yield TextLine(_check(check), "", 1)
        for label, value in (("expected", check.expected), ("found", check.actual)):
            if value is not None:
                yield TextLine((f"{label}  ", ForeignText(_value(value))), "soft", 2)
    if len(details.checks) > MOST_CHECKS:
        yield TextLine((f"… {plural(len(details.checks) - MOST_CHECKS, 'check')} more changed",), "soft", 1)
    if details.divergence is not None:
        yield TextLine(_divergence(details.divergence), "", 1)
        for argument in details.divergence.arguments:
            yield TextLine(_argument(argument), "soft", 2)
    else:
        yield TextLine(("the first different call is unknown: tool calls were not recorded",), "soft", 1)


def _check(check: CheckChange) -> Words:
    words = {True: "passed", False: "failed", None: "undecided"}
    claim = ForeignText(clipped(check.why or check.claim, 200))
    return (ForeignText(check.grader), ": ", claim, f" ({words[check.before]} → {words[check.after]})")


def _divergence(divergence: Divergence) -> Words:
    if divergence.kind == "same":
        return (
            f"both made the same {plural(divergence.call, 'tool call')}"
            if divergence.call
            else "neither called a tool",
        )
    where = f"first difference at call {divergence.call}: "
    if divergence.kind == "arguments":
        return (where, ForeignText(divergence.before), " with other arguments")
    if divergence.kind in ("left out", "added"):
        some = _listed(divergence.skipped[:5]) + ((" …",) if len(divergence.skipped) > 5 else ())
        return (where, *some, f" {'is' if len(divergence.skipped) == 1 else 'are'} {divergence.kind}")
    return (where, _tool(divergence.before), " before, ", _tool(divergence.after), " after")


def _tool(name: str) -> str | ForeignText:
    return ForeignText(name) if name else "no further call"


def _argument(argument: Argument) -> Words:
    before, after = ForeignText(_value(argument.before)), ForeignText(_value(argument.after))
    return (ForeignText(argument.path or "arguments"), ": ", before, " → ", after)


def _value(value: Any) -> str:
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return clipped(shown, 200) or "(nothing)"


def sides(comparison: Comparison) -> Grid:
    """Return both runs in numbers, side by side."""
    one, other = comparison.before, comparison.after
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


def _mean(estimate: TrialMean | None) -> float | None:
    return estimate.mean if estimate else None


def _count(number: float | None) -> str:
    return "–" if number is None else f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _money(cost: float | None) -> str:
    return "–" if cost is None else f"${cost:.4f}"


def _grader(change: Any) -> tuple[Words, ...]:
    interval = change.interval
    span = f"{interval.lower:+.2f} to {interval.upper:+.2f}" if interval and interval.tells else "–"
    numbers = (score(change.before), score(change.after), f"{change.difference:+.2f}", span, p_value(change.p_value))
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
    p = "–" if task.p_value is None else p_value(task.p_value)
    return (ForeignText(task.id),), (trials,), (score(task.score_before),), (score(task.score_after),), (p,)
