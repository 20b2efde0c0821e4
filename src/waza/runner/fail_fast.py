"""`fail_fast`: which result shows that a task can no longer pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from waza.model import JSON, Result
from waza.results.tasks import passes_needed
from waza.runner.auto import AutoTrials
from waza.runner.order import Order


class Misses:
    """The trials of each task that did not pass, held against the pass rule; prompts of trigger tests do not count."""

    def __init__(self, tasks: Iterable[str], rule: JSON, most: Callable[[str], int]) -> None:
        self._tasks = frozenset(tasks)
        self._rule = rule
        self._most = most
        self._count: Counter[str] = Counter()
        self._lost: set[str] = set()

    def lost(self, result: Result) -> bool:
        """Count a result and say whether it is the one that leaves its task too few trials to pass."""
        task_id = result.task_id
        if result.status not in ("failed", "error") or task_id not in self._tasks or task_id in self._lost:
            return False
        self._count[task_id] += 1
        most = self._most(task_id)
        if most - self._count[task_id] >= passes_needed(self._rule, most):
            return False
        self._lost.add(task_id)
        return True


def misses_of(order: Order, auto: AutoTrials | None) -> Misses | None:
    """Return what ends an order early, with what is known from the run it goes on with; None without `fail_fast`."""
    if not order.spec.config.fail_fast:
        return None
    tasks = [task.id for task in order.spec.tasks]
    misses = Misses(tasks, order.spec.config.pass_rule, auto.most_of if auto else lambda _: order.trials)
    if order.resume is not None:
        for result in order.resume.run.results:
            if (result.task_id, result.trial) in order.resume.done:
                misses.lost(result)
    return misses
