"""Which trial comes next, and which result ends a run early: `auto`, `fail_fast`, `--max-cost`, trigger controls.

A worker of a baseline run takes a pair of trials, one of each arm. Which one comes first alternates from pair to pair,
so that a steady drift cancels out; where a judge compares the outputs, the control arm is first because its output is
needed. For `--max-cost` it is counted what the run was billed so far, and for how many results that is not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from waza.engines.base import Engine
from waza.errors import UsageError
from waza.model import JSON, Result, Run, Trial
from waza.runner.auto import AutoTrials
from waza.runner.baseline import is_compared
from waza.runner.request import RunRequest
from waza.runner.suite import Arm, Listeners, Round
from waza.runs.canaries import billed_before_trials
from waza.runs.outcomes import costs_of, outcomes_of, run_costs
from waza.runs.tasks import passes_needed
from waza.spending import NO_COSTS, Costs

Outputs = dict[tuple[str, int], str]
"""By task id and trial: the output of another run or of the control arm."""


class Schedule:
    """The trials of a run's arms, and what their results mean for those that are left."""

    def __init__(self, requests: Sequence[RunRequest], listeners: Listeners, cost_limit: CostLimit | None) -> None:
        self.cost_limit = cost_limit
        self.controls = requests[0].controls()
        self.outputs: Outputs = dict(requests[0].baselines)
        self._requests = requests
        self._listeners = listeners
        self._done = [request.resume.done if request.resume else frozenset() for request in requests]
        self._auto = self._auto_trials()
        self._fail_fast = self._fail_fast_rule()
        for arm in range(len(requests)):
            for result in self._earlier(arm):
                self._record_task(result, arm)

    def record(self, result: Result, *, arm: int = 0) -> None:
        """Take a result into account, and stop the run where it is the one that ends it; arm 1 is the control arm."""
        if arm == 0:
            self.controls.record(result)
        if self.cost_limit is not None:
            self.cost_limit.record(result, self._listeners)
        if self._record_task(result, arm):
            self._listeners.stop(f"task '{result.task_id}' did not pass")

    def rounds(self, arms: Sequence[Arm]) -> Iterator[Round]:
        """Yield the trials that are not done, each in all arms that have its task."""
        spec = self._requests[0].spec
        is_control_first = any(is_compared(spec, task.id) for task in spec.tasks)
        controls = {task.id for request in self._requests[1:] for task in request.spec.tasks}
        for place, trial in enumerate(self._trials()):
            numbers = [1, 0] if trial.task.id in controls else [0]
            if place % 2 and not is_control_first:
                numbers.reverse()
            key = trial.task.id, trial.number
            if left := [(arms[number], trial) for number in numbers if key not in self._done[number]]:
                yield left

    def _trials(self) -> Iterator[Trial]:
        request = self._requests[0]
        if self._auto is None:
            return request.planned()
        return chain(self._half_done(), request.trigger_trials(), self._auto)

    def _half_done(self) -> Iterator[Trial]:
        """Yield the trials of a resumed run that only one arm has a result of; `auto` does not hand them out again."""
        if len(self._done) == 1:
            return
        numbers = {key for done in self._done for key in done}
        tasks = {task.id: task for task in self._requests[0].spec.tasks}
        for task_id, number in sorted(numbers):
            if task_id in tasks:
                yield Trial(task=tasks[task_id], number=number, model=self._requests[0].model)

    def _auto_trials(self) -> AutoTrials | None:
        request = self._requests[0]
        if request.auto is None:
            return None
        controls = {task.id for control in self._requests[1:] for task in control.spec.tasks}
        return AutoTrials(request.spec.tasks, request.auto, request.model, controls)

    def _fail_fast_rule(self) -> FailFast | None:
        request, auto = self._requests[0], self._auto
        if not request.spec.config.fail_fast:
            return None
        tasks = [task.id for task in request.spec.tasks]
        return FailFast(tasks, request.spec.config.pass_rule, auto.most_of if auto else lambda _: request.trials)

    def _earlier(self, arm: int) -> Iterator[Result]:
        """Yield the results of the resumed run that are not run again."""
        resumed = self._requests[arm].resume
        is_needed = arm or self._auto is not None or self._fail_fast is not None
        if resumed is not None and is_needed:
            yield from (one for one in resumed.run.results if (one.task_id, one.trial) in resumed.done)

    def _record_task(self, result: Result, arm: int) -> bool:
        """Take a task's result into account; return whether `fail_fast` ends the run with it."""
        if self._auto is not None:
            self._auto.record(result.task_id, result.trial, result.status, arm=arm)
        if arm:
            if result.trace.status == "success":
                self.outputs[result.task_id, result.trial] = result.trace.output
            return False
        return self._fail_fast is not None and self._fail_fast.is_decisive(result)


class FailFast:
    """Decides for `fail_fast` when a task can no longer pass; trigger prompts and control arms do not count."""

    def __init__(self, tasks: Iterable[str], rule: JSON, most: Callable[[str], int]) -> None:
        """`most` returns the largest number of trials a task may have."""
        self._tasks = frozenset(tasks)
        self._rule = rule
        self._most = most
        self._failures: Counter[str] = Counter()
        self._failed: set[str] = set()

    def is_decisive(self, result: Result) -> bool:
        """Count a result and return whether it is the one that leaves its task too few trials to pass."""
        task_id = result.task_id
        if result.status not in ("failed", "error") or task_id not in self._tasks or task_id in self._failed:
            return False
        self._failures[task_id] += 1
        most = self._most(task_id)
        if most - self._failures[task_id] >= passes_needed(self._rule, most):
            return False
        self._failed.add(task_id)
        return True


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
        """Count the cost of the questions put to judges before the first trial."""
        self.costs += Costs(judge=billed_before_trials(run))

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
