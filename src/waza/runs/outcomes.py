"""The outcome of a result: enough for every summary, small enough to keep all trials of a run in memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from sys import intern

from msgspec import Struct

from waza.model import Result, ResultStatus, Run, Usage
from waza.runs.canaries import canaries_of
from waza.runs.costs import costs_of
from waza.runs.result_view import ResultView
from waza.runs.tool_use import ToolUse, tool_use
from waza.spending import NO_COSTS, Costs, Spending, is_amount
from waza.stats.scores import Score, score_of_grades

GRADED_FROM = "graded_from"
"""In the spec of a run that no agent made: the run it was graded from, or `traces`."""


class TrialOutcome(Struct, frozen=True, kw_only=True, gc=False):
    """One trial in numbers."""

    task_id: str
    trial: int
    status: ResultStatus
    reason: str
    start_ms: float | None
    """When it began, in milliseconds since 1970; None where that was not recorded."""
    duration_ms: float
    """How long the agent worked; graders and judges do not count."""
    score: Score
    attempts: int
    usage: Usage | None
    tools: ToolUse | None
    """None when its tool calls were not recorded."""
    shared_names: tuple[str, ...]
    """Names that two of its graders share."""
    grader_duration_ms: float | None = None
    judge_duration_ms: float | None = None
    costs: Costs = NO_COSTS
    """What it was billed, all attempts together."""


class KnownResults(Sequence[Result]):
    """Results whose outcomes are known, so that numbers need no second read."""

    outcomes: Sequence[TrialOutcome]


def outcomes_of(results: Sequence[Result]) -> Sequence[TrialOutcome]:
    """Return the outcome of each result, in order."""
    if isinstance(results, KnownResults):
        return results.outcomes
    return [outcome_of(result) for result in results]


def outcome_of(result: Result | ResultView) -> TrialOutcome:
    """Return one trial in numbers."""
    return TrialOutcome(
        task_id=intern(result.task_id),
        trial=result.trial,
        status=result.status,
        reason=result.reason,
        start_ms=_start_ms(result.started_at),
        duration_ms=duration_of(result),
        # Where it is not a grade that could not be decided but the whole trial, its grades are no score.
        score=score_of_grades([] if result.status == "error" and result.reason else result.grades),
        attempts=result.attempts,
        usage=result.trace.usage,
        tools=tool_use(result),
        shared_names=_shared_names(result) if len(result.grades) > 1 else (),
        grader_duration_ms=_amount(result.grader_duration_ms),
        judge_duration_ms=_amount(result.judge_duration_ms),
        costs=costs_of(result),
    )


def run_costs(run: Run) -> Costs:
    """Return what a run was billed: this is what its summary shows, and what a cost limit counts.

    A run that was graded from another one, or from recordings, was billed for its judges alone: agents had been paid.
    """
    trials = NO_COSTS
    for some in (run.results, run.triggers):
        for outcome in outcomes_of(some):
            trials += outcome.costs
    return split_costs(run, trials)[0]


def split_costs(run: Run, trials: Costs) -> tuple[Costs, Spending | None]:
    """Return what a run was billed, and what agents had been billed before where it was graded from what they did.

    `trials` is the sum over its results; replaced results and canaries are added.
    """
    other: Costs = run.other_costs
    for canary in canaries_of(run):
        other += Costs(judge=canary.billed)
    if run.suite.graded_from is None:
        return trials + other, None
    return Costs(judge=trials.judge + other.judge), trials.agent


def shown_names(result: Result | ResultView) -> list[str]:
    """Return the name of each grade as it is shown: the second one called `a` is `a#2`."""
    names: list[str] = []
    for grade in result.grades:
        name, count = grade.name, 1
        while name in names:
            count += 1
            name = f"{grade.name}#{count}"
        names.append(name)
    return names


def duration_of(result: Result | ResultView) -> float:
    """Return how long the agent worked on a trial, in milliseconds; 0 where that was not recorded.

    Where the trace does not have it, it is the whole trial's time without the graders' as far as that is known.
    """
    agent_ms = result.trace.duration_ms
    if agent_ms is not None and is_amount(agent_ms):
        return float(agent_ms)
    rest_ms = result.duration_ms - (result.grader_duration_ms or 0.0) - (result.judge_duration_ms or 0.0)
    return float(rest_ms) if is_amount(rest_ms) else 0.0


def _amount(value: float | None) -> float | None:
    return value if value is not None and is_amount(value) else None


def _shared_names(result: Result | ResultView) -> tuple[str, ...]:
    names = [grade.name for grade in result.grades]
    return tuple(name for name, shown in zip(names, shown_names(result), strict=True) if shown != name)


def _start_ms(started_at: str) -> float | None:
    try:
        return datetime.fromisoformat(started_at).timestamp() * 1000
    except (ValueError, OverflowError, OSError):
        return None
