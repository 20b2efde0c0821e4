"""`--max-cost`: what a run was billed so far, and for how many results that is not known."""

from __future__ import annotations

from waza.engines.base import Engine
from waza.errors import UsageError
from waza.model import Result, Run
from waza.runner.request import RunRequest
from waza.runner.suite import Listeners
from waza.runs.canaries import canaries_of
from waza.runs.costs import costs_of
from waza.runs.outcomes import outcomes_of, run_costs
from waza.spending import NO_COSTS, Costs


class CostLimit:
    """What a run was billed so far, compared with a limit: the same sum that its summary shows."""

    def __init__(self, limit: float, earlier: Run | None = None) -> None:
        """`earlier` is the run it continues, with the results that are replaced and a control arm's."""
        self.limit = limit
        self.costs = NO_COSTS
        self.count = self.unreported = 0
        """Results, and those of them whose cost is not known, or not all of it."""
        self._has_warned = False
        if earlier is not None:
            self.costs = run_costs(earlier)
            found = [outcome for some in (earlier.results, earlier.triggers) for outcome in outcomes_of(some)]
            self.count = len(found)
            self.unreported = sum(outcome.costs.without_cost > 0 for outcome in found)

    @property
    def spent(self) -> float:
        """The known cost in dollars."""
        return self.costs.total_usd

    def spend(self, result: Result) -> bool:
        """Count a result's cost and return whether all of it is known."""
        costs = costs_of(result)
        self.costs += costs
        self.count += 1
        self.unreported += costs.without_cost > 0
        return not costs.without_cost

    def spend_on_canaries(self, run: Run) -> None:
        """Count the cost of the canaries put to the judge before the first trial."""
        for canary in canaries_of(run):
            self.costs += Costs(judge=canary.billed)

    def record(self, result: Result, listeners: Listeners) -> None:
        """Count a result; end the run where the limit is reached, and warn once where it may be exceeded."""
        is_known = self.spend(result)
        self.check(listeners)
        if not is_known and not self._has_warned:
            self._has_warned = True
            fact = f"no cost was recorded, so the limit of ${self.limit:.4f} may be exceeded"
            listeners.on_remark(f"task '{result.task_id}': {fact}")

    def check(self, listeners: Listeners) -> None:
        """End the run where the limit is reached, or was by the run it resumes."""
        if self.spent >= self.limit:
            listeners.stop(f"${self.spent:.4f} spent, the limit is ${self.limit:.4f}")

    def close(self, listeners: Listeners) -> None:
        """Report at the end of a run that its limit could not be enforced, where that is so."""
        if self.unreported:
            fact = f"{self.unreported} of {self.count} results have no cost"
            listeners.trouble.append(f"the limit of ${self.limit:.4f} could not be enforced: {fact}")


def cost_limit_for(request: RunRequest) -> CostLimit | None:
    """Return the cost limit of a request, with the costs of the run it resumes; None where there is no limit.

    Raises UsageError where no limit can be enforced.
    """
    if request.max_cost_usd is None:
        return None
    refuse_unreported_costs(request.spec.engine(request.engine or None))
    return CostLimit(request.max_cost_usd, request.resume.run if request.resume else None)


def refuse_unreported_costs(engine: Engine) -> None:
    """Raise UsageError where an engine's agents never report their cost."""
    if why := engine.costs_unreported():
        raise UsageError(f"--max-cost cannot be enforced: {why}")
