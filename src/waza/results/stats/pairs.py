"""The tasks of two runs, paired by id, and each pair's own change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from sys import intern
from typing import NamedTuple, overload

from waza.compact import CompactDict, picked
from waza.model import Run
from waza.results.stats.changes import Kind, TaskChange
from waza.results.stats.paired import Tally, holm, shuffled_trials
from waza.results.tasks import TaskSummary, summarize_tasks

ASKED = ("prompt", "follow_up_prompts", "files", "context", "environment", "workdir")
"""Fields of a task that are what the agent is asked; a task in which they differ is another task."""
_ORDER: dict[Kind, int] = {"broke": 0, "mended": 1, "undecided": 2, "moved": 3, "same": 4}


class Pair(NamedTuple):
    """A task in both runs."""

    before: TaskSummary
    after: TaskSummary

    @property
    def tally(self) -> Tally | None:
        """Its decided trials; None where a side has none."""
        one, other = self.before, self.after
        if not one.passed + one.failed or not other.passed + other.failed:
            return None
        return Tally(one.passed, one.passed + one.failed, other.passed, other.passed + other.failed)


class Pairs(Sequence[Pair]):
    """The tasks of two runs that are paired; the summaries stay in the lists they are in."""

    def __init__(self, before: Sequence[TaskSummary], after: Sequence[TaskSummary]) -> None:
        self._before, self._after = before, after

    def __len__(self) -> int:
        return len(self._before)

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> list[Pair]: ...
    def __getitem__(self, index: int | slice) -> Pair | list[Pair]:
        if isinstance(index, slice):
            return list(map(Pair, self._before[index], self._after[index]))
        return Pair(self._before[index], self._after[index])

    def __iter__(self) -> Iterator[Pair]:
        return map(Pair, self._before, self._after)

    def side(self, which: int) -> Sequence[TaskSummary]:
        """Return the tasks of the earlier run (0), or of the later one."""
        return self._after if which else self._before


class Pairing(NamedTuple):
    """Which tasks two runs share."""

    pairs: Pairs
    removed: list[str]
    added: list[str]
    asked_otherwise: list[str]


def paired(before: Run, after: Run) -> Pairing:
    """Return the tasks of two runs, paired by id; those that were skipped in one are left out of it."""
    tasks = [summarize_tasks(run) for run in (before, after)]
    ones, others = (
        {intern(task.id): place for place, task in enumerate(some) if task.status != "skipped"} for some in tasks
    )
    otherwise = _asked_otherwise(before, after)
    shared = [task_id for task_id in ones if task_id in others]
    kept = [task_id for task_id in shared if task_id not in otherwise]
    return Pairing(
        Pairs(picked(tasks[0], map(ones.__getitem__, kept)), picked(tasks[1], map(others.__getitem__, kept))),
        [task_id for task_id in ones if task_id not in others],
        [task_id for task_id in others if task_id not in ones],
        [task_id for task_id in shared if task_id in otherwise],
    )


def _asked_otherwise(before: Run, after: Run) -> set[str]:
    others = CompactDict((str(task["id"]), task) for task in after.spec.get("tasks") or [])
    found: set[str] = set()
    for task in before.spec.get("tasks") or []:
        other = others.get(str(task["id"]))
        if other is not None and any(task.get(key) != other.get(key) for key in ASKED):
            found.add(str(task["id"]))
    return found


def bounds(pairs: Sequence[Pair]) -> tuple[list[Tally], list[Tally]]:
    """Return the tallies if all undecided trials were for the later run, and if all were against it."""
    best = [Tally(one.passed, _total(one), other.passed + other.errors, _total(other)) for one, other in pairs]
    worst = [Tally(one.passed + one.errors, _total(one), other.passed, _total(other)) for one, other in pairs]
    return best, worst


def _total(task: TaskSummary) -> int:
    return task.passed + task.failed + task.errors


def task_changes(pairs: Sequence[Pair]) -> list[TaskChange]:
    """Return every paired task, the flips first; each with a test of its own, adjusted for how many there are."""
    tested = [pair.before.id for pair in pairs if pair.tally]
    p_values = dict(zip(tested, holm([shuffled_trials([t]) for pair in pairs if (t := pair.tally)]), strict=True))
    changes = [_task_change(pair, p_values.get(pair.before.id)) for pair in pairs]
    return sorted(changes, key=lambda change: (_ORDER[change.kind], not change.golden, change.p_value or 1.0))


def _task_change(pair: Pair, p_value: float | None) -> TaskChange:
    one, other = pair
    return TaskChange(
        id=one.id,
        kind=_kind(one, other),
        status_before=one.status,
        status_after=other.status,
        passed_before=one.passed,
        decided_before=one.passed + one.failed,
        passed_after=other.passed,
        decided_after=other.passed + other.failed,
        score_before=one.score.weighted,
        score_after=other.score.weighted,
        p_value=p_value,
        golden=one.golden or other.golden,
    )


def _kind(one: TaskSummary, other: TaskSummary) -> Kind:
    if one.status == other.status:
        same = (one.pass_rate, one.score.weighted) == (other.pass_rate, other.score.weighted)
        return "same" if same else "moved"
    if "error" in (one.status, other.status):
        return "undecided"
    return "mended" if other.status == "passed" else "broke"
