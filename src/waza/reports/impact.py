"""The document on the impact of a skill on a suite: verdict, activation and benefit, numbers, tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from waza.reports.comparison import NOTHING, p_value, signed
from waza.reports.document import Block, ForeignText, Grid, Heading, TextLine, Tone, Words
from waza.runs.impact_records import Change, Impact, TaskImpact, WinRate, Word
from waza.stats.lift import Estimate
from waza.untrusted.text import percent, plural, score, seconds

TONES: dict[Word, Tone] = {
    "improvement shown": "good",
    "regression shown": "bad",
    "no difference shown": "",
    "too little evidence": "open",
}
MOST_TASKS = 30
"""How many tasks are listed, those first that the skill helps least."""


def impact_document(impact: Impact, *, whole: bool = False) -> Iterator[Block]:
    """Yield what the skill does: verdict, activation and benefit, numbers, tasks; `whole` lists all of them."""
    yield Heading(("With and without ", ForeignText(impact.skill)))
    yield TextLine((impact_sentence(impact),), TONES[impact.word])
    yield from _reservations(impact)
    rows = [row for row in (_activation(impact), _benefit(impact), _lift(impact)) if row]
    if rows:
        yield Grid(("the skill's", "value", "95 % interval", "is"), rows, texts=(0, 3))
    if impact.silent is not None:
        silent = f"Trials that did not use it differ from the control arm by {signed(impact.silent.difference)}"
        yield TextLine((f"{silent}{_between(impact.silent)}; about 0 is as it should be.",), "soft")
    yield Grid(("a trial", "with", "without", "difference", "95 % interval"), list(_numbers(impact)))
    for rate in impact.pairwise:
        yield TextLine(_compared(rate))
    yield from _tasks(impact, whole)


def impact_sentence(impact: Impact) -> str:
    """Return the verdict in one or two sentences."""
    if impact.lift is None:
        return "Too little evidence: no task was decided in both arms."
    scope = "these tasks" if impact.these_tasks else "tasks like these"
    facts = f"pass rate {signed(impact.lift.value)} with the skill over {plural(impact.verdict.tasks, 'task')}"
    facts += f" (95 % interval {_span(impact.lift)}, for {scope}), p = {p_value(impact.verdict.p_value)}"
    sentence = f"{impact.word.capitalize()}: {facts}."
    if impact.word == "too little evidence" and impact.verdict.tasks_needed:
        sentence += f" To show a difference of {impact.verdict.margin * 100:.0f} points it takes about "
        sentence += f"{plural(impact.verdict.tasks_needed, 'task')} like these."
    return sentence


def _reservations(impact: Impact) -> Iterator[TextLine]:
    if impact.unclean:
        message = f"The control arm is not clean: {plural(impact.unclean, 'trial')} had the skill, or may have had it."
        yield TextLine((message,), "bad")
    if undecided := impact.undecided_with + impact.undecided_without - impact.unclean:
        change = "" if impact.holds else "; with their results, the verdict might change"
        yield TextLine((f"Undecided: {plural(undecided, 'trial')}{change}.",), "open")
    for note in impact.notes:
        yield TextLine((note[0].upper() + note[1:] + ".",), "open")
    if impact.not_compared:
        listed: list[str | ForeignText] = []
        for task in impact.not_compared[:10]:
            listed += [", ", ForeignText(task)] if listed else [ForeignText(task)]
        yield TextLine(("Not compared, they have no grader that both arms could pass: ", *listed), "open")


Row = tuple[Words, ...]


def _activation(impact: Impact) -> Row | None:
    if impact.activation is None:
        return None
    span = f"{percent(impact.activation.lower)[:-2]}–{percent(impact.activation.upper)}"
    return ("activation",), (percent(impact.activation.value),), (span,), ("the share of trials with it that use it",)


def _benefit(impact: Impact) -> Row | None:
    if impact.benefit is None:
        return None
    return ("benefit",), (signed(impact.benefit.value),), (_span(impact.benefit),), ("how many more of those pass",)


def _lift(impact: Impact) -> Row | None:
    if impact.activation is None or impact.lift is None:
        return None
    return ("lift",), (signed(impact.lift.value),), (_span(impact.lift),), ("activation × benefit",)


def _numbers(impact: Impact) -> Iterator[Row]:
    tasks = [task for task in impact.tasks if task.difference is not None]
    if tasks and impact.lift is not None:
        ones = sum(task.passed_with / task.trials_with for task in tasks) / len(tasks)
        others = sum(task.passed_without / task.trials_without for task in tasks) / len(tasks)
        rates = (percent(ones), percent(others), signed(impact.lift.value), _span(impact.lift))
        yield ("passes",), *((word,) for word in rates)
    for name, change, shown in (
        ("score", impact.score, score),
        ("tokens", impact.tokens, lambda value: f"{value:,.0f}"),
        ("time", impact.duration_ms, seconds),
        ("cost", impact.cost_usd, lambda value: f"${value:.4f}"),
    ):
        yield _number(name, change, shown)


def _number(name: str, change: Change | None, shown: Callable[[Any], str]) -> Row:
    if change is None:
        return (name,), NOTHING, NOTHING, NOTHING, NOTHING
    span = NOTHING
    if change.lower is not None and change.upper is not None:
        span = (f"{_plus(change.lower, shown)} to {_plus(change.upper, shown)}",)
    both = ((shown(change.with_skill),), (shown(change.without_skill),))
    return (name,), *both, (_plus(change.difference, shown),), span


def _plus(value: float, shown: Callable[[Any], str]) -> str:
    amount = shown(abs(value))
    return ("-" if value < 0 and amount != shown(0.0) else "+") + amount


def _compared(rate: WinRate) -> Words:
    result = f": the skill's output won {rate.wins}, tied {rate.ties}, lost {rate.losses}"
    result += f", undecided {rate.undecided}" if rate.undecided else ""
    if rate.win_rate_ci is not None:
        span = f"{rate.win_rate_ci.lower * 100:.0f}–{percent(rate.win_rate_ci.upper)}"
        result += f"; win rate {percent(rate.win_rate)} (95 % interval {span})"
    return ForeignText(rate.grader), result + ties_as_half(rate) + consistency(rate)


def ties_as_half(rate: WinRate) -> str:
    """Return the win rate with ties as half and its standard error over tasks, where there are ties."""
    half = rate.ties_as_half
    if half is None or not rate.ties or half.standard_error is None:
        return ""
    return f"; with ties as half {half.win_rate * 100:.2f} ± {half.standard_error * 100:.2f} % (standard error)"


def consistency(rate: WinRate) -> str:
    """Return how many comparisons had the same winner in both orders, to be added to the counts."""
    if not rate.compared:
        return ""
    share = percent(rate.consistent_share)
    return f"; the same winner in both orders in {rate.consistent} of {rate.compared} ({share})"


def _tasks(impact: Impact, whole: bool) -> Iterator[Block]:
    ordered = sorted(impact.tasks, key=lambda task: task.difference.value if task.difference else 2.0)
    listed = ordered if whole else ordered[:MOST_TASKS]
    columns = ("task", "with", "without", "difference", "95 % interval", "used", "score", "tokens", "time", "cost")
    yield Grid(columns, [_task(task) for task in listed])
    if len(listed) < len(ordered):
        yield TextLine((f"… {len(ordered) - len(listed)} more: add -v",), "soft")


def _task(task: TaskImpact) -> Row:
    used = "–" if task.triggered is None else f"{task.triggered} of {task.trials_with}"
    return (
        (ForeignText(task.id),),
        (f"{task.passed_with} of {task.trials_with}",),
        (f"{task.passed_without} of {task.trials_without}",),
        (signed(task.difference.value if task.difference else None),),
        (_span(task.difference) if task.difference else "–",),
        (used,),
        _moved(task.score, score),
        _moved(task.tokens, lambda value: f"{value:,.0f}"),
        _moved(task.duration_ms, seconds),
        _moved(task.cost_usd, lambda value: f"${value:.4f}"),
    )


def _moved(change: Change | None, shown: Callable[[Any], str]) -> Words:
    return NOTHING if change is None else (_plus(change.difference, shown),)


def _span(estimate: Estimate) -> str:
    return f"{estimate.lower * 100:+.0f} to {estimate.upper * 100:+.0f}"


def _between(change: Change) -> str:
    if change.lower is None or change.upper is None:
        return ""
    return f" (95 % interval {change.lower * 100:+.0f} to {change.upper * 100:+.0f})"
