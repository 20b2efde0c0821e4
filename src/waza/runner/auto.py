"""`trials_per_task: auto`: trials where they are needed, none where a task is settled.

Trials are handed out one at a time, to the task that had the fewest; results arrive while other trials are running. A
task gets no further trial once its pass rate is settled against the pass rule, by an interval that stays valid when it
is evaluated after every trial.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct

from waza.model import JSON, ResultStatus, Run, Task, Trial
from waza.runs.outcomes import outcomes_of
from waza.stats.scores import settled

MOST_UNDECIDED = 3
"""A task with this many undecided trials gets no further one."""
SHARES = {"all": 1.0, "any": 0.0}


class Auto(Struct, frozen=True, kw_only=True):
    """How far `auto` may go."""

    most: int
    """Largest number of trials of one task."""
    budget: int | None = None
    """Largest number of trials of all tasks together; a control arm's come on top."""
    share: float = 1.0
    """The pass rate a task is settled against: 1 for the pass rule `all`, 0 for `any`."""


def most_trials(tasks: int, auto: Auto) -> int:
    """Return the largest number of trials of a run."""
    return min(tasks * auto.most, auto.budget or tasks * auto.most)


def share_of(rule: JSON) -> float:
    """Return the pass rate that a pass rule requires."""
    return SHARES[rule] if isinstance(rule, str) else float(rule)


class AutoTrials(Iterator[Trial]):
    """Trials, each planned when the next one is requested, from the results known by then.

    With a control arm a trial means a pair, one of each arm, and a task is settled when both arms are: so both
    have the same number of trials.
    """

    def __init__(self, tasks: Sequence[Task], auto: Auto, model: str = "", controls: Collection[str] = ()) -> None:
        """`controls` are the ids of tasks that a control arm tries as well."""
        self._tasks = tasks
        self._auto = auto
        self._model = model
        self._taken: dict[str, set[int]] = {task.id: set() for task in tasks}
        self._statuses = {task.id: [Counter[str]() for _ in range(2 if task.id in controls else 1)] for task in tasks}
        self._queue: list[tuple[int, int]] | None = None
        self._count = 0

    def record(self, task_id: str, trial: int, status: ResultStatus, *, arm: int = 0) -> None:
        """Count how a trial ended, of this run or of the one it resumes; arm 1 is the control arm."""
        if task_id in self._statuses:
            self._take(task_id, trial)
            self._statuses[task_id][arm][status] += 1

    def most_of(self, task_id: str) -> int:
        """Return the largest number of trials a task may still come to have."""
        return len(self._taken[task_id]) if self._is_settled(task_id) else self._auto.most

    def __next__(self) -> Trial:
        """Return the next trial of the task that had the fewest and is not settled."""
        if self._queue is None:
            self._queue = [(len(self._taken[task.id]), place) for place, task in enumerate(self._tasks)]
            heapq.heapify(self._queue)
        while self._queue and not self._is_spent():
            count, place = heapq.heappop(self._queue)
            task = self._tasks[place]
            if count < self._auto.most and not self._is_settled(task.id):
                heapq.heappush(self._queue, (count + 1, place))
                number = _first_free(self._taken[task.id])
                self._take(task.id, number)
                return Trial(task=task, number=number, model=self._model)
        raise StopIteration

    def _is_spent(self) -> bool:
        return self._auto.budget is not None and self._count >= self._auto.budget

    def _take(self, task_id: str, number: int) -> None:
        self._count += number not in self._taken[task_id]
        self._taken[task_id].add(number)

    def _is_settled(self, task_id: str) -> bool:
        return all(self._is_arm_settled(statuses) for statuses in self._statuses[task_id])

    def _is_arm_settled(self, statuses: Counter[str]) -> bool:
        if statuses["error"] + statuses["skipped"] >= MOST_UNDECIDED:
            return True
        return bool(settled(statuses["passed"], statuses["failed"], self._auto.share))


def _first_free(taken: set[int]) -> int:
    number = len(taken) + 1
    return number if number not in taken else next(n for n in range(1, number + 1) if n not in taken)


def is_settled(run: Run, control: Run | None = None) -> bool:
    """Return whether a stored run with trials on `auto`, and its control arm, need no further trial."""
    tasks = [Task(id=task_id, prompt="") for task_id in run.suite.task_ids]
    controls = set(control.suite.task_ids) if control else ()
    trials = AutoTrials(tasks, Auto(**(run.suite.auto_trials or {})), controls=controls)
    for arm, one in enumerate([run, control] if control else [run]):
        for outcome in outcomes_of(one.results):
            trials.record(outcome.task_id, outcome.trial, outcome.status, arm=arm)
    return next(trials, None) is None
