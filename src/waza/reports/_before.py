"""The run a report compares with, and which tasks came out differently; not whether that is chance."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct, field

from waza.errors import UsageError
from waza.model import Run
from waza.results.tasks import TaskSummary, summarize_tasks


class Before(Struct, frozen=True):
    """An earlier run, as far as reports look at it."""

    name: str
    statuses: dict[str, str]
    """By task id."""


class Flip(NamedTuple):
    """A task that came out differently."""

    task: str
    was: str
    now: str


class Delta(NamedTuple):
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


def before_of(run: Run) -> Before:
    """Return a stored run as something to compare with."""
    return Before(run.id, {task.id: task.status for task in summarize_tasks(run)})


class _Task(Struct):
    test_id: str
    status: str


class _Results(Struct):
    tasks: list[_Task]
    eval_id: str = ""
    summary: dict[str, object] = field(default_factory=dict)


def before_from_file(path: Path) -> Before:
    """Return what a `results.json` says; raise UsageError when it is none."""
    try:
        results = msgspec.json.decode(path.read_bytes(), type=_Results)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: is not a results.json: {error}") from None
    return Before(results.eval_id or path.name, {task.test_id: task.status for task in results.tasks})


def delta(before: Before, tasks: list[TaskSummary]) -> Delta:
    """Return which tasks came out differently than before."""
    old, now = before.statuses, {task.id: task.status for task in tasks}
    common = [task for task in now if task in old]
    flips = [Flip(task, old[task], now[task]) for task in common if old[task] != now[task]]
    worse = [flip for flip in flips if flip.was == "passed"]
    better = [flip for flip in flips if flip.now == "passed"]
    return Delta(
        worse=[flip for flip in worse if flip.now == "failed"],
        better=[flip for flip in better if flip.was == "failed"],
        others=[flip for flip in flips if {flip.was, flip.now} != {"passed", "failed"}],
        added=[task for task in now if task not in old],
        removed=[task for task in old if task not in now],
        passed_before=sum(old[task] == "passed" for task in common),
        passed_now=sum(now[task] == "passed" for task in common),
        common=len(common),
    )
