"""What one trial came to: its tool use, what it was billed, and the outcome that summaries keep in memory.

`ResultView` has the fields of a stored result that are read for it, and no others, to make reading cheap. A result of
this version has its costs attempt by attempt, counted while it was made. For one that does not (an older run, another
program's file) they are derived from its trace and grades.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from sys import intern
from typing import Any, NamedTuple

from msgspec import Struct, field

from waza.model import JSON, Attempt, Grade, GradeStatus, Result, ResultStatus, Run, Trace, Usage
from waza.runs.canaries import billed_before_trials
from waza.runs.grader_facts import FREE_JUDGES_OF_OLDER_RUNS
from waza.spending import NO_COSTS, NOTHING, Costs, Spending, is_amount, spent
from waza.stats.scores import Score, score_of_grades


class CallView(Struct, frozen=True, gc=False):
    """A tool call: whether it worked."""

    success: bool = True


class TurnView(Struct, frozen=True):
    """One prompt's own trace: what it cost."""

    usage: Usage | None = None


class TraceView(Struct, frozen=True):
    """A trace: what it cost and which calls there were."""

    duration_ms: float | None = None
    usage: Usage | None = None
    turns: list[TurnView] | None = None
    tool_events: list[CallView] | None = None


class GradeView(Struct, frozen=True):
    """A grade without its checks."""

    name: str
    status: GradeStatus
    score: float
    weight: float = 1.0
    details: dict[str, JSON] = field(default_factory=dict)


class ResultView(Struct, frozen=True, kw_only=True):
    """A result with the fields that summaries read."""

    task_id: str
    trial: int
    status: ResultStatus
    trace: TraceView
    reason: str = ""
    grades: list[GradeView] = field(default_factory=list)
    attempts: int = 1
    attempt_log: list[Attempt] = field(default_factory=list)
    started_at: str = ""
    duration_ms: float = 0.0
    grader_duration_ms: float | None = None
    judge_duration_ms: float | None = None
    fingerprint: str = ""


class ToolUse(Struct, frozen=True, kw_only=True, gc=False):
    """How one trial used its tools, in numbers."""

    calls: int
    succeeded: int
    compared: int
    """Calls to tools for which some expectation states arguments."""
    fitting: int
    """Those of them whose arguments all match one of these expectations."""
    first_fits: bool | None
    """Whether the first call is the expected one; None without an expectation that names tools."""


def tool_use(result: Result | ResultView) -> ToolUse | None:
    """Return how a trial used its tools; None when its calls were not recorded."""
    events = result.trace.tool_events
    if events is None:
        return None
    facts = merged_tool_facts(grade.details for grade in result.grades)
    calls, right = _argument_calls(facts)
    succeeded = sum(event.success for event in events)
    return _shared_use(len(events), succeeded, len(calls), len(right), facts.get("first_call_fits"))


@lru_cache(maxsize=1024, typed=True)
def _shared_use(calls: int, succeeded: int, compared: int, fitting: int, first_fits: bool | None) -> ToolUse:
    """Return the same record for the same numbers: thousands of trials have few that differ."""
    return ToolUse(calls=calls, succeeded=succeeded, compared=compared, fitting=fitting, first_fits=first_fits)


def merged_tool_facts(details: Iterable[Mapping[str, Any]], *, is_choice: bool = False) -> dict[str, JSON]:
    """Return the facts of several graders about tool calls merged into one; empty where none has any.

    Where one of them expects an order, its first tool is the expected one; otherwise any expected tool is. Of a
    conversation's turns the first one with an expectation counts. `is_choice`: one of the graders is enough.
    """
    first: list[tuple[int, bool, bool]] = []
    calls: set[int] = set()
    right: set[int] = set()
    for facts in details:
        fits, turn = facts.get("first_call_fits"), facts.get("turn")
        if isinstance(fits, bool):
            is_ordered = facts.get("first_call_is_ordered") is True and not is_choice
            first.append((turn if isinstance(turn, int) else 0, is_ordered, fits))
        ours = _argument_calls(facts)
        calls |= ours[0]
        right |= ours[1]
    merged: dict[str, JSON] = {}
    if first:
        earliest = min(turn for turn, _, _ in first)
        has_order = any(is_ordered for turn, is_ordered, _ in first if turn == earliest)
        merged["first_call_fits"] = any(fits for turn, order, fits in first if (turn, order) == (earliest, has_order))
        merged |= {"first_call_is_ordered": True} if has_order else {}
    if calls:
        merged["argument_calls"] = {"calls": sorted(calls), "right": sorted(right)}
    return merged


def _argument_calls(facts: Mapping[str, Any]) -> tuple[set[int], set[int]]:
    """Return the places of the calls whose arguments are stated, and of those that are right."""
    match facts.get("argument_calls"):
        case {"calls": [*calls], "right": [*right]}:
            named = {call for call in calls if isinstance(call, int)}
            return named, {call for call in right if isinstance(call, int) and call in named}
    return set(), set()


def mock_calls(trace: Trace) -> list[dict[str, JSON]] | None:
    """Return every call of a mocked program or tool in `outcome.mocks.calls`, in order; None without mocks."""
    mocks = trace.outcome.get("mocks")
    calls = mocks.get("calls") if isinstance(mocks, dict) else None
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else None


def command_invocations(trace: Trace) -> list[dict[str, JSON]] | None:
    """Return the calls of mocked programs, as in results.json; None where no mocks were in use."""
    calls = mock_calls(trace)
    if calls is None:
        return None
    return [
        {
            "command": call["command"],
            "args": call.get("args") or [],
            "exit_code": call.get("exit_code"),
            "matched": call.get("answer") is not None,
            **({"error": call["error"]} if call.get("error") else {}),
        }
        for call in calls
        if "command" in call
    ]


REQUEST_KEYS = ("judge", "judge_swapped")
"""The keys of a grade's details with the costs of requests to a judge."""


def costs_of(result: Result | ResultView) -> Costs:
    """Return what a trial was billed, all of its attempts together."""
    if not result.attempt_log:
        return _shared(Costs(agent=agent_spending(result.trace), judge=judge_spending(result.grades)))
    total = NO_COSTS
    for attempt in result.attempt_log:
        total += attempt.costs
    return _shared(total)


@lru_cache(maxsize=1024)
def _shared(costs: Costs) -> Costs:
    """Return equal costs as one object, to save memory: thousands of trials have few different ones."""
    return costs


def agent_spending(trace: Trace | TraceView) -> Spending:
    """Return what an agent reported of its costs; those of each prompt where there is no sum over all prompts."""
    turns: Sequence[Trace | TurnView] = trace.turns or ()
    if not turns or (trace.usage is not None and trace.usage.cost_usd is not None):
        return _reported(trace.usage)
    total = NOTHING
    for turn in turns:
        total += _reported(turn.usage)
    return total


def is_invalid_cost(trace: Trace) -> bool:
    """Return whether a cost was reported that cannot be true."""
    usages = [part.usage for part in (trace, *(trace.turns or ()))]
    return any(usage is not None and "cost_usd" in usage.invalid_numbers for usage in usages)


def _reported(usage: Usage | None) -> Spending:
    return spent(usage.cost_usd, usage.input_tokens, usage.output_tokens) if usage is not None else spent(None)


def judge_spending(grades: Iterable[Grade | GradeView]) -> Spending:
    """Return what the grades report of the requests to their judges."""
    total = NOTHING
    for grade in grades:
        for request in _judge_requests(grade.details):
            total += _request_spending(request)
    return total


def _judge_requests(details: dict[str, JSON]) -> Iterator[dict[str, JSON]]:
    """Yield the details of each request to a judge, of every juror: the sum over a jury leaves out unknown costs."""
    jury = details.get("jury")
    votes = jury.get("votes") if isinstance(jury, dict) else None
    if isinstance(votes, list):
        for vote in votes:
            if isinstance(vote, dict) and isinstance(vote_details := vote.get("details"), dict):
                yield from _judge_requests(vote_details)
        return
    yield from (request for key in REQUEST_KEYS if isinstance(request := details.get(key), dict))
    for part in _part_details(details):
        yield from _judge_requests(part)


def _part_details(details: dict[str, JSON]) -> Iterator[dict[str, JSON]]:
    """Yield the details of the parts of a combination."""
    parts = details.get("parts")
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict) and isinstance(inner := part.get("details"), dict):
            yield inner


def _request_spending(request: dict[str, JSON]) -> Spending:
    """Return the cost of one question to a judge: the requests it reports, or as many as there were reminders."""
    if request.get("cached") is True:
        return NOTHING
    tokens = request.get("tokens")
    tokens = tokens if isinstance(tokens, dict) else {}
    cost = request.get("cost_usd")
    if cost is None and request.get("type") in FREE_JUDGES_OF_OLDER_RUNS:
        cost = 0.0
    found = spent(cost, tokens.get("input"), tokens.get("output"))
    requests, unknown = request.get("requests"), request.get("requests_without_cost")
    further = requests - 1 if isinstance(requests, int) and 0 < requests < 10**6 else 0
    unknown = unknown if isinstance(unknown, int) and 0 < unknown < 10**6 else found.without_cost
    known = spent(found.cost_usd, found.input_tokens, found.output_tokens)
    return known + Spending(count=further, without_cost=unknown)


class CacheUse(NamedTuple):
    """How a run used the judge cache."""

    verdicts: int = 0
    """All verdicts of judges."""
    cached: int = 0
    """Those that came from the cache, because the same question was answered before."""
    refused: int = 0
    """Entries that were not signed with the user's key; the judge was asked instead."""


def cache_use(run: Run) -> CacheUse:
    """Return how many verdicts of a run came from the cache."""
    if not run.suite.judged:
        return CacheUse()
    every = [about for result in run.results for grade in result.grades for about in _requests(grade.details)]
    counts = (sum(about.get(key) is True for about in every) for key in ("cached", "cache_entry_refused"))
    return CacheUse(len(every), *counts)


def _requests(details: dict[str, JSON]) -> Iterator[dict[str, JSON]]:
    """Yield the details of each request to a judge in a grade, those of jurors too."""
    jury = details.get("jury")
    votes = jury.get("votes") if isinstance(jury, dict) else None
    for vote in votes if isinstance(votes, list) else ():
        if isinstance(vote, dict) and isinstance(vote.get("details"), dict):
            yield from _requests(vote["details"])
    if isinstance(votes, list):
        return  # the grade's own `judge` is the sum of theirs
    for about in (details.get("judge"), details.get("judge_swapped")):
        if isinstance(about, dict) and "cached" in about:
            yield about
    for part in _part_details(details):
        yield from _requests(part)


GRADED_FROM = "graded_from"
"""In the spec of a run that no agent made: the run it was graded from, or `traces`."""


class RuleUse(NamedTuple):
    """One rule over the trace of a trial."""

    grader: str
    """The grader's name; that of a part follows its combination's, as in `both/careful`."""
    rule: str
    applied: bool
    """False where nothing in the trace opened a window for it."""


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
    rules: tuple[RuleUse, ...] = ()
    """The rules over its trace, of all graders; empty for most runs."""


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
        rules=_rules(result),
    )


def _rules(result: Result | ResultView) -> tuple[RuleUse, ...]:
    """Return the rules in the details of a trial's grades, those of the parts of combinations too."""
    found = [use for grade in result.grades for use in _rules_in(grade.name, grade.details)]
    return _shared_rules(tuple(found)) if found else ()


@lru_cache(maxsize=1024)
def _shared_rules(rules: tuple[RuleUse, ...]) -> tuple[RuleUse, ...]:
    """Return equal rules as one object, to save memory: the trials of a run have the same ones."""
    return rules


def _rules_in(grader: str, details: dict[str, JSON]) -> Iterator[RuleUse]:
    rules = details.get("rules")
    for rule in rules if isinstance(rules, list) else ():
        match rule:
            case {"name": str(name), "status": str(status), "windows": int(windows)}:
                # With `when_absent: pass`, a rule without a window passed.
                is_absent = status == "not_applied" or (status == "passed" and not windows)
                yield RuleUse(intern(grader), intern(name), not is_absent)
    parts = details.get("parts")
    for part in parts if isinstance(parts, list) else ():
        match part:
            case {"name": str(name), "details": dict(inner)}:
                yield from _rules_in(f"{grader}/{name}", inner)


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

    `trials` is the sum over its results; replaced results, canaries and probes are added.
    """
    other: Costs = run.other_costs + Costs(judge=billed_before_trials(run))
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
