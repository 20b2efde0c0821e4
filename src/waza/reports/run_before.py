"""The run a report compares with: which tasks changed their status, and whether that is more than chance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct, field

from waza.errors import UsageError
from waza.model import Run
from waza.runs.tasks import TaskSummary, summarize_tasks
from waza.stats.difference import DifferenceVerdict, verdict_on_passing
from waza.stats.paired import Tally


class EarlierRun(Struct, frozen=True):
    """What reports need of an earlier run."""

    name: str
    statuses: dict[str, str]
    """By task id."""
    trials: dict[str, tuple[int, int]] = {}
    """By task id: how many trials passed, of how many that were decided."""


class Flip(NamedTuple):
    """A task whose status changed."""

    task: str
    was: str
    now: str


class TaskDelta(NamedTuple):
    """What changed between two runs, over the tasks that both have."""

    worse: list[Flip]
    better: list[Flip]
    others: list[Flip]
    """To or from undecided and not graded: neither better nor worse."""
    added: list[str]
    removed: list[str]
    passed_before: int
    passed_now: int
    common: int
    verdict: DifferenceVerdict


def before_of(run: Run) -> EarlierRun:
    """Return a stored run as something to compare with."""
    tasks = summarize_tasks(run)
    return EarlierRun(run.id, {task.id: task.status for task in tasks}, {task.id: _trials(task) for task in tasks})


class _Stats(Struct):
    passed_runs: int = 0
    failed_runs: int = 0


class _StatusChange(Struct):
    test_id: str
    status: str
    stats: _Stats = field(default_factory=_Stats)


class _Results(Struct):
    tasks: list[_StatusChange]
    eval_id: str = ""


def before_from_file(path: Path) -> EarlierRun:
    """Return the run in a `results.json`; raise UsageError when it is none."""
    try:
        results = msgspec.json.decode(path.read_bytes(), type=_Results)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: is not a results.json: {error}") from None
    trials = {
        task.test_id: (task.stats.passed_runs, task.stats.passed_runs + task.stats.failed_runs)
        for task in results.tasks
    }
    return EarlierRun(results.eval_id or path.name, {task.test_id: task.status for task in results.tasks}, trials)


def delta(before: EarlierRun, tasks: Sequence[TaskSummary]) -> TaskDelta:
    """Return which tasks changed their status since the earlier run."""
    old, now = before.statuses, {task.id: task.status for task in tasks}
    common = [task for task in now if task in old]
    flips = [Flip(task, old[task], now[task]) for task in common if old[task] != now[task]]
    tallies = list(_tallies(before, tasks))
    # The order of the trials is not known here, so that those of one run cannot be cut to as many as the other has.
    these_tasks = any(tally.trials_before != tally.trials_after for tally in tallies)
    worse = [flip for flip in flips if flip.was == "passed"]
    better = [flip for flip in flips if flip.now == "passed"]
    return TaskDelta(
        worse=[flip for flip in worse if flip.now == "failed"],
        better=[flip for flip in better if flip.was == "failed"],
        others=[flip for flip in flips if {flip.was, flip.now} != {"passed", "failed"}],
        added=[task for task in now if task not in old],
        removed=[task for task in old if task not in now],
        passed_before=sum(old[task] == "passed" for task in common),
        passed_now=sum(now[task] == "passed" for task in common),
        common=len(common),
        verdict=verdict_on_passing(tallies, these_tasks=these_tasks),
    )


def _trials(task: TaskSummary) -> tuple[int, int]:
    return task.passed, task.passed + task.failed


def _tallies(before: EarlierRun, tasks: Sequence[TaskSummary]) -> Iterator[Tally]:
    """Yield the tasks of which trials were decided in both runs."""
    for task in tasks:
        tally = Tally(*before.trials.get(task.id, (0, 0)), *_trials(task))
        if tally.trials_before and tally.trials_after:
            yield tally
