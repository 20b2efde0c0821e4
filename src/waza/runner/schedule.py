"""Which trial comes next, and which result ends a run early: `auto`, `fail_fast`, `--max-cost`, trigger controls.

A worker of a baseline run takes a pair of trials, one of each arm. Which one comes first alternates from pair to pair,
so that a steady drift cancels out; where a judge compares the outputs, the control arm is first because its output is
needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from waza.model import JSON, Result, Trial
from waza.runner.auto import AutoTrials
from waza.runner.baseline import is_compared
from waza.runner.cost_limit import CostLimit
from waza.runner.request import RunRequest
from waza.runner.suite import Arm, Listeners, Round
from waza.runs.tasks import passes_needed

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
