"""Going on with a stored run: what is done, what changed since, what is to be run again.

Everything in a stored spec either affects results (then old results must not be mixed with new ones) or only pace and
presentation; `PACE` and `AFFECTS` name every setting of a suite, and a test fails when one is in neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from waza.errors import UsageError
from waza.model import JSON, Run
from waza.results.store import newest_run, read_run

PACE = {
    "parallel",
    "workers",
    "fail_fast",
    "max_attempts",
    "group_by",
    "pass_rule",
    "min_pass_rate",
    "max_failures",
    "trials_per_task",
    "timeout_seconds",
}
"""Settings a resumed run may change: pace, how trials are counted, the default time (each task carries its own)."""
AFFECTS = {"executor", "model", "judge_model", "skill_directories"}
"""Settings that change results; so do all keys of engines."""
_READERS = {"name", "description", "tags", "golden"}
"""Fields of a task for readers and gates only."""


class Resumed(NamedTuple):
    """A stored run to go on with."""

    folder: Path
    run: Run
    done: frozenset[tuple[str, int]]
    """Trials that are not run again."""
    removed: list[str]
    """Tasks of the stored run that the suite no longer has."""


def resume(folder: Path, new: Run, *, rerun_changed: bool = False, rerun_errors: bool = False) -> Resumed:
    """Return what is left to do of the run in `folder` for the suite as it is in `new`.

    Raises UsageError that lists what changed when old results would not fit the suite any more.
    """
    old = read_run(folder)
    changed = dict(changes(old.spec, new.spec))
    if changed and not rerun_changed:
        listed = "; ".join(f"{task}: {', '.join(fields)}" for task, fields in list(changed.items())[:10])
        more = f" and {len(changed) - 10} more tasks" if len(changed) > 10 else ""
        raise UsageError(
            f"run {old.id} was made from another suite: {listed}{more} changed since. "
            f"Run the changed tasks again with --rerun-changed, or start a new run without --resume"
        )
    kept = {task["id"] for task in new.spec["tasks"]}
    done = frozenset(
        (result.task_id, result.trial)
        for result in old.results
        if result.task_id not in changed and not (rerun_errors and result.trace.status == "error")
    )
    removed = sorted({task["id"] for task in old.spec["tasks"]} - kept)
    return Resumed(folder, old, done, removed)


def newest(runs: Path, new: Run) -> Path | None:
    """Return the newest run of the same eval file and model, or None when there is none yet."""
    return newest_run(runs, file=str(new.spec["file"]), model=new.model)


def changes(old: dict[str, JSON], new: dict[str, JSON]) -> Iterator[tuple[str, list[str]]]:
    """Yield each task that both suites have and whose results would differ, with the fields that changed."""
    settings = [f"config.{key}" for key in _changed_keys(_affecting(old["config"]), _affecting(new["config"]))]
    before = {task["id"]: task for task in old["tasks"]}
    for task in new["tasks"]:
        if (previous := before.get(task["id"])) is None:
            continue
        fields = list(settings)
        fields += [key for key in _changed_keys(previous, task) if key not in _READERS]
        if old["graders"].get(task["id"]) != new["graders"].get(task["id"]):
            fields.append("graders")
        if fields:
            yield task["id"], fields


def _affecting(config: dict[str, JSON]) -> dict[str, JSON]:
    return {key: value for key, value in config.items() if key not in PACE}


def _changed_keys(old: dict[str, JSON], new: dict[str, JSON]) -> list[str]:
    return sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
