"""What a trial was billed: every attempt of its agent, every request to its judges.

A result of this version says so itself, attempt by attempt, counted while it was made. For one that does not (an older
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

ASKINGS = ("judge", "judge_swapped")
"""Where a grade reports what asking a judge took."""


def costs_of(result: Result | ResultView) -> Costs:
    """Return what a trial was billed, all of its attempts together."""
    if not result.attempt_log:
        return _one_of_many(Costs(agent=agent_spending(result.trace), judge=judge_spending(result.grades)))
    found = NO_COSTS
    for attempt in result.attempt_log:
        found += attempt.costs
    return _one_of_many(found)


@lru_cache(maxsize=1024)
def _one_of_many(costs: Costs) -> Costs:
    """Return equal costs as one object: of thousands of trials few differ in them."""
    return costs


def agent_spending(trace: Trace | TraceView) -> Spending:
    """Return what an agent reported of its costs; those of each prompt where there is no sum over all prompts."""
    turns: Sequence[Trace | TurnView] = trace.turns or ()
    if not turns or (trace.usage is not None and trace.usage.cost_usd is not None):
        return _reported(trace.usage)
    found = NOTHING
    for turn in turns:
        found += _reported(turn.usage)
    return found


def is_invalid_cost(trace: Trace) -> bool:
    """Return whether a cost was reported that cannot be true."""
    usages = [part.usage for part in (trace, *(trace.turns or ()))]
    return any(usage is not None and "cost_usd" in usage.invalid_numbers for usage in usages)


def _reported(usage: Usage | None) -> Spending:
    return spent(usage.cost_usd, usage.input_tokens, usage.output_tokens) if usage is not None else spent(None)


def judge_spending(grades: Iterable[Grade | GradeView]) -> Spending:
    """Return what the grades report of the requests to their judges."""
    found = NOTHING
    for grade in grades:
        for asked in _askings(grade.details):
            found += _asked(asked)
    return found


def _askings(details: dict[str, JSON]) -> Iterator[dict[str, JSON]]:
    """Yield each asking of a judge, of every juror: the sum over a jury leaves out what is not known."""
    jury = details.get("jury")
    votes = jury.get("votes") if isinstance(jury, dict) else None
    if isinstance(votes, list):
        for vote in votes:
            if isinstance(vote, dict) and isinstance(told := vote.get("details"), dict):
                yield from _askings(told)
        return
    yield from (asking for key in ASKINGS if isinstance(asking := details.get(key), dict))


def _asked(asking: dict[str, JSON]) -> Spending:
    """Return what one asking took: the requests it reports, or as many as there were reminders."""
    if asking.get("cached") is True:
        return NOTHING
    tokens = asking.get("tokens")
    tokens = tokens if isinstance(tokens, dict) else {}
    cost = asking.get("cost_usd")
    if cost is None and asking.get("type") in FREE_JUDGES_OF_OLDER_RUNS:
        cost = 0.0
    found = spent(cost, tokens.get("input"), tokens.get("output"))
    requests, unknown = asking.get("requests"), asking.get("requests_without_cost")
    further = requests - 1 if isinstance(requests, int) and 0 < requests < 10**6 else 0
    unknown = unknown if isinstance(unknown, int) and 0 < unknown < 10**6 else found.without_cost
    known = spent(found.cost_usd, found.input_tokens, found.output_tokens)
    return known + Spending(count=further, without_cost=unknown)


class CacheUse(NamedTuple):
    """What the judge cache gave to a run."""

    verdicts: int = 0
    """All verdicts of judges."""
    cached: int = 0
    """Those that were not asked for, because the same question was answered before."""
    refused: int = 0
    """Entries that were not signed with the user's key; the judge was asked instead."""


def cache_use(run: Run) -> CacheUse:
    """Return how many verdicts of a run came from the cache."""
    if not run.spec.get("judged"):
        return CacheUse()
    every = [about for result in run.results for grade in result.grades for about in _requests(grade.details)]
    counts = (sum(about.get(key) is True for about in every) for key in ("cached", "cache_entry_refused"))
    return CacheUse(len(every), *counts)


def _requests(details: dict[str, JSON]) -> Iterator[dict[str, JSON]]:
    """Yield what is known about each asking of a judge in a grade's details, those of jurors too."""
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
