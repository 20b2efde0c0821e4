"""Resuming a stored run: what is done, what changed since, what has to be run again; controls of trigger tests.

Everything in a stored spec either affects results (then old results must not be mixed with new ones) or only pace and
presentation; `PACE` and `AFFECTS` name every setting of a suite, and a test fails when one is in neither. Each result
carries the fingerprint of what it was made from, so that a result that no longer fits is never counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from waza.compact import CompactDict
from waza.errors import UsageError, WazaError
from waza.model import JSON, Result, Run, Trial
from waza.runs.folder import read_run_json
from waza.runs.partial import FILES, without_files
from waza.runs.store import RunFolder, open_run, run_folders
from waza.runs.triggers import TriggerPrompt, answer_to, prompts_of
from waza.suites.suite import encoded, fingerprint

PACE = {
    "parallel",
    "workers",
    "trials_per_minute",
    "fail_fast",
    "max_attempts",
    "group_by",
    "pass_rule",
    "min_pass_rate",
    "max_failures",
    "trials_per_task",
    "max_trials",
    "trials_budget",
    "timeout_seconds",
    "canaries",
}
"""Settings a resumed run may change: pace, how trials are counted, the default time (each task carries its own)."""
JUDGE = {"judge", "judge_model", "judge_reasoning_effort"}
"""Settings of the judge; the judge they result in is stored next to the spec, with the tasks it judges."""
AFFECTS = {"executor", "model", "skill_directories", "tool_names", "on_agent_crash"}
"""Settings that change results; so do all keys of engines."""
_MOST_CACHED = 256
"""How many encoded graders are cached: most tasks have the suite's and no others."""
_READERS = {"name", "description", "tags", "golden", "metadata"}
"""Fields of a task for readers and gates only."""


class Resumed(NamedTuple):
    """A stored run to continue; its journal is locked until `kept` is closed."""

    kept: RunFolder
    run: Run
    done: frozenset[tuple[str, int]]
    """Trials that are not run again."""
    removed: list[str]
    """Tasks of the stored run that the suite no longer has."""


def resume(
    folder: Path, new: Run, *, rerun_changed: bool = False, rerun_errors: bool = False, skip_graders: bool = False
) -> Resumed:
    """Return what is left to do of the run in `folder` for the suite as it is in `new`.

    The folder is locked before it is read: a second process would not see what the first one writes.
    Raises StoreError when another process resumes it already, UsageError when it is another suite's run or when
    results would no longer match the suite, with what changed.
    """
    kept = RunFolder.open(folder)
    try:
        how = {"rerun_changed": rerun_changed, "rerun_errors": rerun_errors, "skip_graders": skip_graders}
        return _left_of(kept, new, **how)
    except BaseException:
        kept.close()
        raise


def _left_of(kept: RunFolder, new: Run, *, rerun_changed: bool, rerun_errors: bool, skip_graders: bool) -> Resumed:
    old = open_run(kept.path)
    stored, suite = old.suite, new.suite
    if stored.file != suite.file or stored.graded_from is not None:
        raise UsageError(f"run {old.id} is not a run of this suite; `waza list runs` shows which there are")
    changed = dict(changes(old.spec, new.spec))
    if changed and not rerun_changed:
        listed = "; ".join(f"{task}: {', '.join(fields)}" for task, fields in list(changed.items())[:10])
        more = f" and {len(changed) - 10} more tasks" if len(changed) > 10 else ""
        raise UsageError(
            f"run {old.id} was made from another suite: {listed}{more} changed since. "
            f"Run the changed tasks again with --rerun-changed, or start a new run without --resume"
        )
    known = {task["id"] for task in chain(suite.tasks, suite.trigger_tasks)}
    answers = [] if _controls(old).failed else old.triggers
    done = frozenset(
        (result.task_id, result.trial)
        for result in chain(old.results, answers)
        if result.task_id in known
        and result.task_id not in changed
        and not (rerun_errors and result.trace.status == "error")
        and (result.status != "skipped" or skip_graders or suite.graders_of(result.task_id) == [])
    )
    removed = sorted({task["id"] for task in chain(stored.tasks, stored.trigger_tasks)} - known)
    return Resumed(kept, old, done, removed)


def _controls(run: Run) -> Controls:
    """Return the controls of a stored run; where one failed, the other answers do not count."""
    return Controls(prompts_of(run).values(), run.suite.config.trials, run.triggers)


def newest(runs: Path, file: str, model: str | None, *, has_tasks: bool = True) -> Path | None:
    """Return the newest run an agent made of that eval file (and model, if given), or None when there is none yet.

    Without `has_tasks` it is one of trigger tests alone.
    """
    for folder in run_folders(runs):
        if (run := stored_head(folder)) is None:
            continue
        suite = run.suite
        if suite.graded_from is not None or suite.file != file or bool(suite.tasks) is not has_tasks:
            continue
        if model is None or run.model == model:
            return folder
    return None


def stored_head(folder: Path) -> Run | None:
    """Return a stored run without its results; None when it cannot be read."""
    try:
        return read_run_json(folder)
    except WazaError:
        return None


def fingerprints(spec: dict[str, JSON]) -> CompactDict[str]:
    """Return for each task a hash of everything its results depend on."""
    config, hooks = encoded(_affecting(spec["config"])), encoded(spec.get("hooks"))
    known: dict[int, tuple[JSON, JSON]] = {}

    def graders(task_id: str) -> JSON:
        """Return the graders of a task; those that tasks share are encoded once."""
        each = spec["graders"].get(task_id)
        if not each:
            return each
        if len(known) > _MOST_CACHED:
            known.clear()
        for one in each:
            if id(one) not in known:
                known[id(one)] = one, encoded(one)  # with the object itself: the id is only its own while it is there
        return [known[id(one)][1] for one in each]

    def made_from(task: dict[str, JSON]) -> list[JSON]:
        return [_asked(task), graders(task["id"]), config, hooks, *_judged(spec, task["id"])]

    like = spec["graders"] if isinstance(spec["graders"], CompactDict) else None
    return CompactDict(((task["id"], fingerprint(made_from(task))) for task in _tasks(spec)), like)


def _tasks(spec: dict[str, JSON]) -> Iterator[dict[str, JSON]]:
    """Yield the tasks of a suite and the prompts of its trigger tests."""
    return chain(spec["tasks"], (spec.get("triggers") or {}).get("tasks", ()))


def changes(old: dict[str, JSON], new: dict[str, JSON]) -> Iterator[tuple[str, list[str]]]:
    """Yield each task that both suites have and whose results would differ, with the fields that changed."""
    settings = [f"config.{key}" for key in _changed_keys(_affecting(old["config"]), _affecting(new["config"]))]
    settings += ["hooks"] if old.get("hooks") != new.get("hooks") else []
    before = CompactDict((task["id"], task) for task in _tasks(old))
    for task in _tasks(new):
        if (previous := before.get(task["id"])) is None:
            continue
        fields = settings + _changed_keys(_asked(previous), _asked(task))
        fields += _changed_graders(old["graders"].get(task["id"]) or [], new["graders"].get(task["id"]) or [])
        if _judged(old, task["id"]) != _judged(new, task["id"]):
            fields.append("judge")
        if fields:
            yield task["id"], fields


def _changed_graders(old: list[dict[str, JSON]], new: list[dict[str, JSON]]) -> list[str]:
    """Return what differs between the graders of a task; the files' names where only their content differs."""
    if old == new:
        return []
    if list(map(without_files, old)) != list(map(without_files, new)):
        return ["graders"]
    files = []
    for before, after in ((before.get(FILES), after.get(FILES) or {}) for before, after in zip(old, new, strict=True)):
        unknown = ": its earlier content is not known" if before is None else ""
        files += [f"{name}{unknown}" for name in _changed_keys(before or {}, after)]
    return [f"graders ({', '.join(dict.fromkeys(files))})"]


def _judged(spec: dict[str, JSON], task_id: str) -> list[JSON]:
    """Return the judge of a task and its rubric hashes; nothing where the task needs none."""
    hashes = (spec.get("judged") or {}).get(task_id)
    return [] if hashes is None else [spec.get("judge"), hashes]


def _asked(task: dict[str, JSON]) -> dict[str, JSON]:
    return {key: value for key, value in task.items() if key not in _READERS}


def _affecting(config: dict[str, JSON]) -> dict[str, JSON]:
    return {key: value for key, value in config.items() if key not in PACE | JUDGE}


def _changed_keys(old: dict[str, JSON], new: dict[str, JSON]) -> list[str]:
    return sorted(key for key in {*old, *new} if old.get(key) != new.get(key))


class Controls:
    """The results so far of the controls that name a skill outright.

    One that registered in no trial makes the run INVALID, whatever the answers to the other prompts.
    """

    def __init__(
        self, prompts: Collection[TriggerPrompt] = (), trials: int = 1, earlier: Sequence[Result] = ()
    ) -> None:
        self._explicit = {prompt.id: prompt for prompt in prompts if prompt.control == "explicit"}
        known = Counter(result.task_id for result in earlier)
        self._left = {name: max(trials, known[name]) for name in self._explicit}
        self._others = {prompt.id for prompt in prompts if not prompt.control}
        self._known = asyncio.Event()
        self.failed: list[str] = []
        """The skills whose control did not register."""
        self.skipped = 0
        """Trials that were not started because of that."""
        for result in earlier:
            self.record(result)
        self._check()

    def record(self, result: Result) -> None:
        """Count how a trial ended."""
        if (left := self._left.get(result.task_id)) is None:
            return
        prompt = self._explicit[result.task_id]
        if answer_to(result, prompt, {prompt.skill}).did_trigger:
            del self._left[result.task_id]
        else:
            self._left[result.task_id] = left - 1
            self.failed += [prompt.skill] if left == 1 else []
        self._check()

    def _check(self) -> None:
        if self.failed or not self._left:
            self._known.set()

    async def allow(self, trial: Trial) -> bool:
        """Return whether a trial may start; a prompt of trigger tests waits until its controls are decided."""
        if trial.task.id not in self._others:
            return True
        await self._known.wait()
        self.skipped += bool(self.failed)
        return not self.failed

    def release(self) -> None:
        """Let no trial wait any longer: the run is to stop, and controls may never be decided."""
        self._known.set()

    def reason(self, has_tasks: bool) -> str:
        """Return why trials were not started."""
        others = "; the tasks were run all the same" if has_tasks else ""
        fact = f"the control that names '{self.failed[0]}' outright did not register"
        return f"trigger tests are INVALID, so their other prompts were not asked: {fact}{others}"
