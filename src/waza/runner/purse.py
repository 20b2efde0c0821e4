"""`--max-cost`: what a run has cost so far, and how much of that nobody told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from waza.engines._base import Engine
from waza.errors import UsageError
from waza.model import Result
from waza.results.outcomes import costs_of
from waza.runner.order import Order
from waza.runner.suite import Listeners


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
        """Yield what the agent and its judges cost, None for what was not recorded; what never ran cost nothing."""
        usage = result.trace.usage
        is_invalid = usage is not None and "cost_usd" in usage.invalid_numbers
        costs_nothing = not is_invalid and (self._is_free or result.trace.status == "error")
        agent, *judges = costs_of(result)
        yield 0.0 if agent is None and costs_nothing else agent
        yield from judges


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
