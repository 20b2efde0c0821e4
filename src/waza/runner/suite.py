"""All trials of a run, several at once, under one limit. Keeps nothing and prints nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from msgspec.structs import replace as changed

from waza.engines.base import Engine
from waza.errors import EngineError
from waza.files.pinned import PinnedFiles
from waza.model import Result, Trial
from waza.runner.controls import Controls
from waza.runner.hooks import run_hooks
from waza.runner.journal_writer import JournalWriter, as_it_is
from waza.runner.pace import pace_for
from waza.runner.request import concurrency
from waza.runner.trial import RunContext, failed_trial, run_trial
from waza.suites.sources import source_files
from waza.suites.suite import EvalSpec

LOOK_S = 0.05
"""How long trials may follow one another before signals are looked for."""


@dataclass
class Stop:
    """A request to end a run early; `reason` says why, `signal` which one asked for it."""

    reason: str = ""
    signal: int = 0
    looked_at: float = 0.0
    """When the event loop was last let go."""

    async def is_wanted(self) -> bool:
        """Say whether the run is to end; ask before each trial.

        Now and then the event loop gets its turn: it delivers signals, and agents that answer at once never wait.
        """
        now = monotonic()
        if now - self.looked_at > LOOK_S:
            self.looked_at = now
            await asyncio.sleep(0)
        return bool(self.reason)

    def __call__(self, reason: str) -> None:
        """Ask the run to start no further trial."""
        self.reason = self.reason or reason


@dataclass(frozen=True)
class Listeners:
    """Who wants to know what happens during a run."""

    on_start: Callable[[Trial], None] = lambda trial: None
    on_done: Callable[[Result], None] = lambda result: None
    """A trial has ended; what came of it is not safe yet."""
    on_result: Callable[[Result], None] = lambda result: None
    """A result is safe."""
    on_remark: Callable[[str], None] = lambda text: None
    stop: Stop = field(default_factory=Stop)
    trouble: list[str] = field(default_factory=list)
    """What went wrong beside the trials: nothing failed, but the run is not all right."""


def pin_files(spec: EvalSpec, files: PinnedFiles | None) -> None:
    """Note the project's files that decide about trials, as they are before the first agent starts.

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
        with suppress(ValueError):  # whoever reads it says so
            named += source_files(task, spec.folder) if task.context.get("source") else []
        for path in named:
            inside = path.is_relative_to(spec.folder.base)
            files.pin(spec.folder.base if inside else path if path.is_dir() else path.parent)


async def run_suite(
    spec: EvalSpec,
    trials: Iterator[Trial],
    setting: RunContext,
    listeners: Listeners,
    store: Callable[..., Sequence[Any]],
    *,
    workers: int | None = None,
    read: Callable[[Any], Result] = as_it_is,
    controls: Controls | None = None,
) -> None:
    """Run the trials, started in order; `store` keeps results, `read` gives them back as kept: so they are told.

    Trials that `controls` hold back are left out.
    """
    width = concurrency(spec, workers)
    controls = controls or Controls()
    journal_writer = JournalWriter(store, listeners.on_result, width, read)
    setting = paced(setting, spec)
    environment = {"WAZA_EVAL_DIR": str(spec.folder.base)}
    try:
        for remark in await run_hooks(spec.hooks.before_run, spec.folder, environment):
            listeners.on_remark(remark)
        pin_files(spec, setting.pinned)
        await setting.engine.start(width)
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(journal_writer.trouble())
            at_work = []
            for _ in range(width):
                at_work.append(group.create_task(_worker(spec, trials, setting, journal_writer, listeners, controls)))
                await asyncio.sleep(0)  # its agent starts before the next worker looks for one
            await asyncio.wait(at_work)
            watch.cancel()
    finally:
        try:
            await journal_writer.close()
        finally:
            await end_suite(spec, [setting.engine], listeners, environment)


async def end_suite(
    spec: EvalSpec, engines: Sequence[Engine], listeners: Listeners, environment: dict[str, str]
) -> None:
    """Stop the engines and run the last hooks; what goes wrong there is told, and costs no result."""
    for engine in engines:
        try:
            await engine.stop()
        except Exception as error:  # noqa: BLE001  the results are there; only the engine's own clean-up failed
            listeners.trouble.append(f"the engine did not stop: {type(error).__name__}: {error}")
    try:
        for remark in await run_hooks(spec.hooks.after_run, spec.folder, environment):
            listeners.on_remark(remark)
    except EngineError as error:
        listeners.trouble.append(str(error))


async def _worker(
    spec: EvalSpec,
    trials: Iterator[Trial],
    setting: RunContext,
    journal_writer: JournalWriter,
    listeners: Listeners,
    controls: Controls,
) -> None:
    """Take the next trial until there is none, or the run is to stop; one result may be on its way meanwhile."""
    kept: asyncio.Future[None] | None = None
    for trial in trials:
        is_allowed = await controls.allow(trial)
        if await listeners.stop.is_wanted():
            controls.release()
            break
        if not is_allowed:
            continue
        listeners.on_start(trial)
        result = await with_hooks(spec, trial, setting, listeners)
        listeners.on_done(result)
        if kept is not None:
            await kept
        kept = journal_writer.keep(result)
    journal_writer.hurry()
    if kept is not None:
        await kept


def paced(setting: RunContext, spec: EvalSpec) -> RunContext:
    """Return the setting at the pace that all agents of its vendor share."""
    return setting._replace(pace=pace_for(setting.engine, setting.engine_name, spec.config.trials_per_minute))


async def with_hooks(spec: EvalSpec, trial: Trial, setting: RunContext, listeners: Listeners) -> Result:
    """Return one trial's result, with the suite's commands before and after it."""
    if not spec.hooks.before_task and not spec.hooks.after_task:
        return await run_trial(trial, spec.graders[trial.task.id], setting)
    environment = {"WAZA_TASK_ID": trial.task.id, "WAZA_TRIAL": str(trial.number)}
    try:
        with setting.pinned.own_changes() if setting.pinned else nullcontext():
            remarks = await run_hooks(spec.hooks.before_task, spec.folder, environment)
        for remark in remarks:
            listeners.on_remark(remark)
        result = await run_trial(trial, spec.graders[trial.task.id], setting)
    except EngineError as error:
        result = failed_trial(trial, setting, str(error))
    try:
        with setting.pinned.own_changes() if setting.pinned else nullcontext():
            remarks = await run_hooks(spec.hooks.after_task, spec.folder, environment)
        for remark in remarks:
            listeners.on_remark(remark)
    except EngineError as error:
        result = changed(result, status="error", reason=str(error))
    return result
