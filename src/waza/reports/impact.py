"""What a skill does to a suite, in words and numbers; the form is `_document.py`'s business."""

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


def impact_document(found: Impact, *, whole: bool = False) -> Iterator[Block]:
    """Yield what the skill does: verdict, activation and benefit, numbers, tasks; `whole` lists all of them."""
    yield Heading(("With and without ", ForeignText(found.skill)))
    yield TextLine((impact_sentence(found),), TONES[found.word])
    yield from _reservations(found)
    rows = [row for row in (_activation(found), _benefit(found), _lift(found)) if row]
    if rows:
        yield Grid(("the skill's", "value", "95 % interval", "is"), rows, texts=(0, 3))
    if found.silent is not None:
        told = f"Trials that did not use it differ from the control arm by {signed(found.silent.difference)}"
        yield TextLine((f"{told}{_between(found.silent)}; about 0 is as it should be.",), "soft")
    yield Grid(("a trial", "with", "without", "difference", "95 % interval"), list(_numbers(found)))
    for rate in found.pairwise:
        yield TextLine(_compared(rate))
    yield from _tasks(found, whole)


def impact_sentence(found: Impact) -> str:
    """Return the verdict in one or two sentences."""
    if found.lift is None:
        return "Too little evidence: no task was decided in both arms."
    scope = "these tasks" if found.these_tasks else "tasks like these"
    told = f"pass rate {signed(found.lift.value)} with the skill over {plural(found.verdict.tasks, 'task')}"
    told += f" (95 % interval {_span(found.lift)}, for {scope}), p = {p_value(found.verdict.p_value)}"
    said = f"{found.word.capitalize()}: {told}."
    if found.word == "too little evidence" and found.verdict.tasks_needed:
        said += f" To show a difference of {found.verdict.margin * 100:.0f} points it takes about "
        said += f"{plural(found.verdict.tasks_needed, 'task')} like these."
    return said


def _reservations(found: Impact) -> Iterator[TextLine]:
    if found.unclean:
        told = f"The control arm is not clean: {plural(found.unclean, 'trial')} had the skill, or nobody can tell."
        yield TextLine((told,), "bad")
    if undecided := found.undecided_with + found.undecided_without - found.unclean:
        change = "" if found.holds else "; had they come out one way or the other, the verdict might change"
        yield TextLine((f"Undecided: {plural(undecided, 'trial')}{change}.",), "open")
    for note in found.notes:
        yield TextLine((note[0].upper() + note[1:] + ".",), "open")
    if found.not_compared:
        listed: list[str | ForeignText] = []
        for task in found.not_compared[:10]:
            listed += [", ", ForeignText(task)] if listed else [ForeignText(task)]
        yield TextLine(("Not compared, they have no grader that both arms could pass: ", *listed), "open")


Row = tuple[Words, ...]


def _activation(found: Impact) -> Row | None:
    if found.activation is None:
        return None
    span = f"{percent(found.activation.lower)[:-2]}–{percent(found.activation.upper)}"
    return ("activation",), (percent(found.activation.value),), (span,), ("the share of trials with it that use it",)


def _benefit(found: Impact) -> Row | None:
    if found.benefit is None:
        return None
    return ("benefit",), (signed(found.benefit.value),), (_span(found.benefit),), ("how many more of those pass",)


def _lift(found: Impact) -> Row | None:
    if found.activation is None or found.lift is None:
        return None
    return ("lift",), (signed(found.lift.value),), (_span(found.lift),), ("activation × benefit",)


def _numbers(found: Impact) -> Iterator[Row]:
    tasks = [task for task in found.tasks if task.difference is not None]
    if tasks and found.lift is not None:
        ones = sum(task.passed_with / task.trials_with for task in tasks) / len(tasks)
        others = sum(task.passed_without / task.trials_without for task in tasks) / len(tasks)
        rates = (percent(ones), percent(others), signed(found.lift.value), _span(found.lift))
        yield ("passes",), *((word,) for word in rates)
    for name, change, shown in (
        ("score", found.score, score),
        ("tokens", found.tokens, lambda value: f"{value:,.0f}"),
        ("time", found.duration_ms, seconds),
        ("cost", found.cost_usd, lambda value: f"${value:.4f}"),
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
    told = shown(abs(value))
    return ("-" if value < 0 and told != shown(0.0) else "+") + told


def _compared(rate: WinRate) -> Words:
    told = f": the skill's output won {rate.wins}, tied {rate.ties}, lost {rate.losses}"
    told += f", undecided {rate.undecided}" if rate.undecided else ""
    if rate.win_rate_ci is not None:
        span = f"{rate.win_rate_ci.lower * 100:.0f}–{percent(rate.win_rate_ci.upper)}"
        told += f"; win rate {percent(rate.win_rate)} (95 % interval {span})"
    return ForeignText(rate.grader), told


def _tasks(found: Impact, whole: bool) -> Iterator[Block]:
    ordered = sorted(found.tasks, key=lambda task: task.difference.value if task.difference else 2.0)
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
