"""`--max-cost`: what a run has cost so far, and how much of that nobody told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from waza.engines._base import Engine
from waza.errors import UsageError
from waza.model import JSON, Result, is_amount
from waza.runner.order import Order
from waza.runner.suite import Listeners

_FREE_JUDGES = ("scripted",)


class Purse:
    """What a run has cost so far, held against a limit."""

    def __init__(self, limit: float, earlier: Iterable[Result] = (), *, is_free: bool = False) -> None:
        self.limit = limit
        self.spent = 0.0
        self.count = self.untold = 0
        """Results, and those of them whose cost is not known, or not all of it."""
        self._is_free = is_free
        self._has_warned = False
        for result in earlier:
            self.spend(result)

    def spend(self, result: Result) -> bool:
        """Count a result's cost and say whether all of it is known."""
        costs = list(self._costs(result))
        self.spent += sum(float(cost) for cost in costs if cost is not None)
        self.count += 1
        self.untold += None in costs
        return None not in costs

    def heard(self, result: Result, listeners: Listeners) -> None:
        """Count a result; end the run where the limit is reached, and say once that it may not hold."""
        is_known = self.spend(result)
        self.look(listeners)
        if not is_known and not self._has_warned:
            self._has_warned = True
            fact = f"no cost was recorded, so the limit of ${self.limit:.4f} may not hold"
            listeners.on_remark(f"task '{result.task_id}': {fact}")

    def look(self, listeners: Listeners) -> None:
        """End the run where the limit is reached, or was by the run it goes on with."""
        if self.spent >= self.limit:
            listeners.stop(f"${self.spent:.4f} spent, the limit is ${self.limit:.4f}")

    def close(self, listeners: Listeners) -> None:
        """Say at the end of a run that its limit could not be held, where that is so."""
        if self.untold:
            told = f"{self.untold} of {self.count} results have no cost"
            listeners.trouble.append(f"the limit of ${self.limit:.4f} could not be held: {told}")

    def _costs(self, result: Result) -> Iterator[float | None]:
        """Yield what the agent and its judges cost, None for what nobody told; what never ran cost nothing."""
        usage = result.trace.usage
        agent = usage.cost_usd if usage else None
        is_invalid = usage is not None and "cost_usd" in usage.invalid_numbers
        costs_nothing = agent is None and not is_invalid and (self._is_free or result.trace.status == "error")
        yield 0.0 if costs_nothing else agent
        told = (details for grade in result.grades for details in _askings(grade.details))
        for verdict in (details.get(key) for details in told for key in ("judge", "judge_swapped")):
            if isinstance(verdict, dict):
                cost = verdict.get("cost_usd")
                cost = cost if isinstance(cost, int | float) and is_amount(cost) else None
                yield 0.0 if cost is None and verdict.get("type") in _FREE_JUDGES else cost


def _askings(details: dict[str, JSON]) -> Iterator[dict[str, JSON]]:
    """Yield who was asked about a grade: the judge, or each juror, for the sum leaves out what is not known."""
    jury = details.get("jury")
    votes = jury.get("votes") if isinstance(jury, dict) else None
    if not isinstance(votes, list):
        yield details
        return
    for vote in votes:
        if isinstance(vote, dict) and isinstance(asked := vote.get("details"), dict):
            yield asked


def purse_for(order: Order) -> Purse | None:
    """Return the purse of an order with what the run it goes on with has cost; None where there is no limit.

    Raises UsageError where no limit could hold.
    """
    if order.max_cost_usd is None:
        return None
    engine = order.spec.engine(order.engine or None)
    refuse_untold(engine)
    earlier = chain(order.resume.run.results, order.resume.run.triggers) if order.resume else ()
    return Purse(order.max_cost_usd, earlier, is_free=engine.mocks is None)


def refuse_untold(engine: Engine) -> None:
    """Raise UsageError where an engine's agents never say what they cost."""
    if why := engine.costs_untold():
        raise UsageError(f"--max-cost cannot be held: {why}")
