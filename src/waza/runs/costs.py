"""What a trial was billed: every attempt of its agent, every request to its judges.

A result of this version has it, attempt by attempt, counted while it was made. For one that does not (an older
run, another program's file) it is read from the trace, and from what the grades report about their judges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from waza.model import JSON, Grade, Result, Run, Trace, Usage
from waza.runs.grader_facts import FREE_JUDGES_OF_OLDER_RUNS
from waza.runs.result_view import GradeView, ResultView, TraceView, TurnView
from waza.spending import NO_COSTS, NOTHING, Costs, Spending, spent

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
