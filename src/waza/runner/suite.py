"""The trials of a run, several at once, with hooks around them. Stores nothing itself and prints nothing.

Hooks are split like a shell line and started without a shell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from msgspec.structs import replace as changed

from waza.engines.base import Engine
from waza.errors import EngineError
from waza.files.paths import SpecFolder
from waza.files.pinned import PinnedFiles
from waza.judges.rate_limits import agent_pace
from waza.model import Result, Trial
from waza.process.run_program import base_environment, run_process
from waza.runner.journal_writer import JournalWriter, as_it_is
from waza.runner.request import concurrency
from waza.runner.resume import Controls
from waza.runner.trial import RunContext, failed_trial, run_trial
from waza.suites.load import where_and_what
from waza.suites.shapes import HookShape
from waza.suites.sources import source_files
from waza.suites.suite import EvalSpec
from waza.suites.tasks import values_of

YIELD_EVERY_S = 0.05
"""How long trials may follow one another before signals are delivered."""


@dataclass
class Stop:
    """A request to end a run early; `reason` says why, `signal` which one asked for it."""

    reason: str = ""
    signal: int = 0
    yielded_at: float = 0.0
    """When a worker last gave way to the event loop."""

    async def is_wanted(self) -> bool:
        """Return whether the run is to end; ask before each trial.

        The event loop delivers signals, and with agents that answer at once no worker ever waits for it: so it gets
        its turn now and then.
        """
        now = monotonic()
        if now - self.yielded_at > YIELD_EVERY_S:
            self.yielded_at = now
            await asyncio.sleep(0)
        return bool(self.reason)

    def __call__(self, reason: str) -> None:
        """Ask the run to start no further trial."""
        self.reason = self.reason or reason


@dataclass(frozen=True)
class Listeners:
    """Callbacks for what happens during a run."""

    on_start: Callable[[Trial], None] = lambda trial: None
    on_done: Callable[[Result], None] = lambda result: None
    """A trial has ended; its result is not stored yet."""
    on_result: Callable[[Result], None] = lambda result: None
    """A result is durable."""
    on_remark: Callable[[str], None] = lambda text: None
    stop: Stop = field(default_factory=Stop)
    trouble: list[str] = field(default_factory=list)
    """Problems outside of trials: no trial failed, but the run exits as undecided."""


def pin_files(spec: EvalSpec, files: PinnedFiles | None) -> None:
    """Pin the project's files that affect grading, as they are before the first agent starts.

    While snapshots are being rewritten there are none to rely on.
    """
    graders = {id(grader): grader for each in spec.graders.values() for grader in each}.values()
    if files is None or any(getattr(grader, "update_snapshots", False) for grader in graders):
        return
    for grader in graders:
        grader.pin(files)
    if spec.hooks.before_task or spec.hooks.after_task:
        return  # they may write input files
    for task in spec.tasks:
        named = [Path(file.source) for file in task.files if file.source]
        with suppress(ValueError):  # reported by whoever reads it
            named += source_files(task, spec.folder) if task.context.get("source") else []
        for path in named:
            inside = path.is_relative_to(spec.folder.base)
            files.pin(spec.folder.base if inside else path if path.is_dir() else path.parent)


@dataclass(frozen=True, eq=False)
class Arm:
    """One way to run the tasks of a suite: a run has one arm, with `--baseline` a second one without the skill."""

    spec: EvalSpec
    context: RunContext
    store: Callable[..., Sequence[Any]]
    """Makes results durable and returns them as stored."""
    read: Callable[[Any], Result] = as_it_is
    """Returns the result of what `store` returned."""
    on_done: Callable[[Result], None] = lambda result: None
    """Called when a trial of this arm has ended, before its result is stored."""
    suffix: str = ""
    """Appended to task ids for listeners."""

    def shown_trial(self, trial: Trial) -> Trial:
        """Return the trial as listeners get it."""
        return changed(trial, task=changed(trial.task, id=trial.task.id + self.suffix)) if self.suffix else trial

    def shown_result(self, result: Result) -> Result:
        """Return the result as listeners get it."""
        return changed(result, task_id=result.task_id + self.suffix) if self.suffix else result


Round = Sequence[tuple[Arm, Trial]]
"""Trials that one worker runs one after the other: one, or the same trial in each arm."""


async def run_suite(
    arms: Sequence[Arm],
    rounds: Iterator[Round],
    listeners: Listeners,
    *,
    workers: int | None = None,
    controls: Controls | None = None,
) -> None:
    """Run the rounds of trials, started in order; the first arm's suite has the hooks and the number of workers.

    Trials that `controls` refuse are left out.
    """
    spec, controls = arms[0].spec, controls or Controls()
    width = concurrency(spec, workers)
    active = {arm: _active(arm, listeners, width) for arm in arms}
    writers = [one.writer for one in active.values()]
    environment = {"WAZA_EVAL_DIR": str(spec.folder.base)}
    try:
        for remark in await run_hooks(spec.hooks.before_run, spec.folder, environment, spec.inputs):
            listeners.on_remark(remark)
        pin_files(spec, arms[0].context.pinned)
        for arm in arms:
            await arm.context.engine.start(width)
        async with asyncio.TaskGroup() as group:
            watches = [group.create_task(writer.trouble()) for writer in writers]
            at_work = []
            for _ in range(width):
                at_work.append(group.create_task(_worker(rounds, active, listeners, controls)))
                await asyncio.sleep(0)  # its agent starts before the next worker looks for one
            await asyncio.wait(at_work)
            for watch in watches:
                watch.cancel()
    finally:
        async with AsyncExitStack() as stack:  # each step is taken, whatever the ones before it raise
            stack.push_async_callback(end_suite, spec, [arm.context.engine for arm in arms], listeners, environment)
            for writer in writers:
                stack.push_async_callback(writer.close)


async def end_suite(
    spec: EvalSpec, engines: Sequence[Engine], listeners: Listeners, environment: dict[str, str]
) -> None:
    """Stop the engines and run the last hooks; problems there are reported and cost no result."""
    for engine in engines:
        try:
            await engine.stop()
        except Exception as error:  # noqa: BLE001  the results are there; only the engine's own clean-up failed
            listeners.trouble.append(f"the engine did not stop: {type(error).__name__}: {error}")
    try:
        for remark in await run_hooks(spec.hooks.after_run, spec.folder, environment, spec.inputs):
            listeners.on_remark(remark)
    except EngineError as error:
        listeners.trouble.append(str(error))


class _Active(NamedTuple):
    """What an arm has while its suite is run."""

    context: RunContext
    writer: JournalWriter


def _active(arm: Arm, listeners: Listeners, width: int) -> _Active:
    """Return an arm's context, at the pace that all agents of its vendor share, and its journal writer."""
    pace = agent_pace(
        arm.context.engine_name, getattr(arm.context.engine, "base_url", None), arm.spec.config.trials_per_minute
    )
    writer = JournalWriter(arm.store, lambda result: listeners.on_result(arm.shown_result(result)), width, arm.read)
    return _Active(arm.context._replace(pace=pace), writer)


async def _worker(
    rounds: Iterator[Round], active: Mapping[Arm, _Active], listeners: Listeners, controls: Controls
) -> None:
    """Run the next round until there is none, or the run is to stop; one result may be on its way meanwhile."""
    stored: asyncio.Future[None] | None = None
    for arm, trial in chain.from_iterable(rounds):
        is_allowed = await controls.allow(trial)
        if await listeners.stop.is_wanted():
            controls.release()
            break
        if not is_allowed:
            continue
        listeners.on_start(arm.shown_trial(trial))
        result = await with_hooks(arm.spec, trial, active[arm].context, listeners)
        listeners.on_done(arm.shown_result(result))
        arm.on_done(result)
        if stored is not None:
            await stored
        stored = active[arm].writer.store(result)
    for one in active.values():
        one.writer.hurry()
    if stored is not None:
        await stored


async def with_hooks(spec: EvalSpec, trial: Trial, context: RunContext, listeners: Listeners) -> Result:
    """Return one trial's result, with the suite's commands before and after it."""
    if not spec.hooks.before_task and not spec.hooks.after_task:
        return await run_trial(trial, spec.graders[trial.task.id], context)
    environment = {"WAZA_TASK_ID": trial.task.id, "WAZA_TRIAL": str(trial.number)}
    values = values_of(trial.task, spec.inputs)
    try:
        with context.pinned.own_changes() if context.pinned else nullcontext():
            remarks = await run_hooks(spec.hooks.before_task, spec.folder, environment, values)
        for remark in remarks:
            listeners.on_remark(remark)
        result = await run_trial(trial, spec.graders[trial.task.id], context)
    except EngineError as error:
        result = failed_trial(trial, context, str(error))
    try:
        with context.pinned.own_changes() if context.pinned else nullcontext():
            remarks = await run_hooks(spec.hooks.after_task, spec.folder, environment, values)
        for remark in remarks:
            listeners.on_remark(remark)
    except EngineError as error:
        result = changed(result, status="error", reason=str(error))
    return result


TIMEOUT_S = 600


async def run_hooks(
    hooks: list[HookShape],
    folder: SpecFolder,
    environment: Mapping[str, str],
    values: Mapping[str, str] | None = None,
) -> list[str]:
    """Run the commands one after the other and return the failures of those that may fail.

    `values` are those of `{{.Vars.name}}` in the commands.

    Raises EngineError for a command that failed and has `error_on_fail`.
    """
    remarks = []
    for hook in hooks:
        if trouble := await _run_hook(hook, folder, environment, values or {}):
            if hook.error_on_fail:
                raise EngineError(trouble)
            remarks.append(trouble)
    return remarks


async def _run_hook(
    hook: HookShape, folder: SpecFolder, environment: Mapping[str, str], values: Mapping[str, str]
) -> str:
    """Run one command and return a sentence about its failure, or nothing."""
    try:
        cwd, argv = where_and_what(hook, folder, values)
        finished = await run_process(argv, cwd=cwd, env=base_environment(environment, home=None), timeout_s=TIMEOUT_S)
    except ValueError as error:
        return f"hook '{hook.command}': {error}"
    if finished.exit_code in hook.exit_codes:
        return ""
    fact = finished.trouble or f"exit code {finished.exit_code}"
    stderr = finished.stderr.text.strip()[-300:]
    return f"hook '{hook.command}': {fact}" + (f": {stderr}" if stderr else "")
