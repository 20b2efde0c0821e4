"""`trials_per_task: auto`: trials where they are needed, none where a task is settled.

Trials are handed out one at a time, to the task that had the fewest; results come back while others are under way. A
task gets no further trial once its pass rate is settled against the pass rule, by an interval one may look at after
every trial.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from waza.model import JSON, ResultStatus, Run, Task, Trial
from waza.runs.outcomes import outcomes_of
from waza.stats.scores import settled

MOST_UNDECIDED = 3
"""A task of which so many trials could not be decided gets no further one."""
SHARES = {"all": 1.0, "any": 0.0}


class Auto(Struct, frozen=True, kw_only=True):
    """How far `auto` may go."""

    most: int
    """Trials a task may get."""
    budget: int | None = None
    """Trials all tasks may get together."""
    share: float = 1.0
    """The pass rate a task is settled against: 1 for the pass rule `all`, 0 for `any`."""


def most_trials(tasks: int, auto: Auto) -> int:
    """Return how many trials there may be in all."""
    return min(tasks * auto.most, auto.budget or tasks * auto.most)


def share_of(rule: JSON) -> float:
    """Return the pass rate that a pass rule stands for."""
    return SHARES[rule] if isinstance(rule, str) else float(rule)


class AutoTrials(Iterator[Trial]):
    """Trials, each planned when it is asked for, from what is known by then."""

    def __init__(self, tasks: Sequence[Task], auto: Auto, model: str = "") -> None:
        self._tasks = tasks
        self._auto = auto
        self._model = model
        self._taken: dict[str, set[int]] = {task.id: set() for task in tasks}
        self._seen: dict[str, Counter[str]] = {task.id: Counter() for task in tasks}
        self._queue: list[tuple[int, int]] | None = None
        self._count = 0

    def heard(self, task_id: str, trial: int, status: ResultStatus) -> None:
        """Note how a trial ended, be it of this run or of the one it goes on with."""
        if task_id in self._seen:
            self._take(task_id, trial)
            self._seen[task_id][status] += 1

    def most_of(self, task_id: str) -> int:
        """Return how many trials a task may come to have."""
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
        seen = self._seen[task_id]
        if seen["error"] + seen["skipped"] >= MOST_UNDECIDED:
            return True
        return bool(settled(seen["passed"], seen["failed"], self._auto.share))


def _first_free(taken: set[int]) -> int:
    number = len(taken) + 1
    return number if number not in taken else next(n for n in range(1, number + 1) if n not in taken)


def is_over(run: Run) -> bool:
    """Say whether a stored run with trials on `auto` has all the trials it was to have."""
    tasks = [Task(id=str(task["id"]), prompt="") for task in run.spec["tasks"]]
    trials = AutoTrials(tasks, Auto(**run.spec["auto_trials"]))
    for outcome in outcomes_of(run.results):
        trials.heard(outcome.task_id, outcome.trial, outcome.status)
    return next(trials, None) is None
