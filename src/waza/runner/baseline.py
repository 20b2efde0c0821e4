"""A baseline run: every task with and without the skill, trial by trial in turn, so that drift hits both arms.

Each arm is a run of its own, with its own journal, fingerprints and results: everything that reads runs reads both,
and `--resume` goes on with both. The control arm's folder stands inside the other's (`control/`): whoever lists,
compares, moves or removes runs meets one, and never takes the arm without the skill for a run of the suite. A field
`arm` on every trial would have made each reader of a journal responsible for not mixing them.

A worker takes a pair of trials, one of each arm. Which comes first alternates from pair to pair, so that a steady drift
cancels out; where a judge compares the outputs the control arm is first, because its output is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from msgspec.structs import replace as changed

from waza.graders._base import Grader
from waza.model import Result, Run, Trial
from waza.results.memory import rare_collections
from waza.results.redact import Redactor
from waza.results.stats.impact_records import CONTROL
from waza.results.store import RunFolder
from waza.runner.baseline_arms import (
    Outputs,
    control_folder,
    control_order,
    is_compared,
    outputs_of,
    why_not_with,
    why_not_without,
)
from waza.runner.controls import Controls
from waza.runner.finish import finish
from waza.runner.hooks import run_hooks
from waza.runner.keeper import Keeper
from waza.runner.order import Order, redactor_for
from waza.runner.plan import concurrency
from waza.runner.purse import Purse, purse_for
from waza.runner.reviewing import as_stored
from waza.runner.run import folder_for, journal_reports, leave_rooms, until_done_or_stopped
from waza.runner.suite import Listeners, end_suite, paced, pin_files, with_hooks
from waza.runner.trial import Setting
from waza.runner.waiting import wait_for
from waza.sandbox.pinned import PinnedFiles
from waza.sandbox.room import rooms_for


@dataclass(frozen=True)
class Arm:
    """One side of a baseline run."""

    order: Order
    folder: RunFolder
    setting: Setting
    keeper: Keeper
    shown_as: str = ""
    """What listeners are told behind a task's name."""

    @property
    def done(self) -> frozenset[tuple[str, int]]:
        """Trials that are not run again."""
        return self.order.resume.done if self.order.resume else frozenset()


Pair = list[tuple[Arm, Trial]]


@rare_collections()
def conduct_baseline(
    order: Order, listeners: Listeners, *, rerun_changed: bool = False, rerun_errors: bool = False
) -> Run:
    """Run both arms and return the one with the skill; the other is in its folder (`stored_impact` reads both)."""
    skill, purse = order.spec.skill, purse_for(order)
    redactor, warnings = redactor_for(order.spec)
    for warning in warnings:
        listeners.on_remark(warning)
    outputs: Outputs = {}
    heard = replace(listeners, on_remark=lambda text: listeners.on_remark(redactor.text(text)))
    with ExitStack() as stack:
        folder = stack.enter_context(folder_for(order, redactor))
        control = control_order(order, folder, rerun_changed=rerun_changed, rerun_errors=rerun_errors)
        outputs |= outputs_of(control)
        other = stack.enter_context(control_folder(control, redactor))
        for kept in (folder, other):
            stack.enter_context(journal_reports(kept, listeners.on_remark))
        pinned = PinnedFiles([folder.path.parent, folder.path])
        settings = (
            _setting(control, other, redactor, heard)._replace(
                vet=partial(why_not_without, skill=skill), pinned=pinned
            ),
            _setting(order, folder, redactor, heard)._replace(
                vet=partial(why_not_with, skill=skill), baselines=outputs, pinned=pinned
            ),
        )
        try:
            working = _both(order, (control, order), (other, folder), settings, outputs, heard, redactor, purse)
            wait_for(until_done_or_stopped(working, heard))
        finally:
            for setting in settings:
                leave_rooms(setting, listeners.on_remark)
        finish(other, listeners.stop.reason, listeners.on_remark)
        return finish(folder, listeners.stop.reason, listeners.on_remark)


def pairs(control: Arm, skill: Arm, *, control_first: bool) -> Iterator[Pair]:
    """Yield the trials of both arms, pair by pair, those that are done left out."""
    known = {task.id for task in control.order.spec.tasks}
    for place, trial in enumerate(skill.order.planned()):
        pair: Pair = [(control, trial), (skill, trial)] if trial.task.id in known else [(skill, trial)]
        if place % 2 and not control_first:
            pair.reverse()
        if left := [(arm, trial) for arm, _ in pair if (trial.task.id, trial.number) not in arm.done]:
            yield left


async def _both(
    order: Order,
    orders: tuple[Order, Order],
    folders: tuple[RunFolder, RunFolder],
    settings: tuple[Setting, Setting],
    outputs: Outputs,
    listeners: Listeners,
    redactor: Redactor,
    purse: Purse | None,
) -> None:
    """Run both arms under one limit of trials at once."""
    spec, width = order.spec, concurrency(order.spec, order.workers)
    told = (f" without {spec.skill}", "")
    arms = [
        Arm(
            one,
            folder,
            paced(setting, one.spec),
            _keeper(folder, listeners, redactor, width, shown_as, one.spec.graders),
            shown_as,
        )
        for one, folder, setting, shown_as in zip(orders, folders, settings, told, strict=True)
    ]
    if purse is not None:
        if order.resume is None:
            purse.spend_on_canaries(folders[1].run)
        purse.look(listeners)
    trials = pairs(*arms, control_first=any(is_compared(spec, task.id) for task in spec.tasks))
    controls = order.controls()
    if (first := next(trials, None)) is None:
        return
    trials = chain([first], trials)
    environment = {"WAZA_EVAL_DIR": str(spec.folder.base)}
    try:
        for remark in await run_hooks(spec.hooks.before_run, spec.folder, environment):
            listeners.on_remark(remark)
        for arm in arms:
            pin_files(spec, arm.setting.pinned)
        for arm in arms:
            await arm.setting.engine.start(width)
        async with asyncio.TaskGroup() as group:
            watches = [group.create_task(arm.keeper.trouble()) for arm in arms]
            work = [_worker(trials, purse, outputs, listeners, controls) for _ in range(width)]
            await asyncio.wait([group.create_task(one) for one in work])
            for watch in watches:
                watch.cancel()
    finally:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(end_suite, spec, [arm.setting.engine for arm in arms], listeners, environment)
            for arm in arms:
                stack.push_async_callback(arm.keeper.close)
    if controls.held_back:
        listeners.stop(controls.reason(bool(spec.tasks)))
    if purse is not None:
        purse.close(listeners)


async def _worker(
    trials: Iterator[Pair], purse: Purse | None, outputs: Outputs, listeners: Listeners, controls: Controls
) -> None:
    """Take the next pair until there is none, or the run is to stop; a result is safe before the next trial starts."""
    for pair in trials:
        for arm, trial in pair:
            is_allowed = await controls.allow(trial)
            if listeners.stop.reason:
                controls.release()
                return
            if not is_allowed:
                continue
            named = changed(trial, task=changed(trial.task, id=trial.task.id + arm.shown_as))
            listeners.on_start(named if arm.shown_as else trial)
            result = await with_hooks(arm.order.spec, trial, arm.setting, listeners)
            if arm.shown_as and result.trace.status == "success":
                outputs[result.task_id, result.trial] = result.trace.output
            listeners.on_done(result)
            controls.heard(result)
            if purse is not None:
                purse.heard(result, listeners)
            await arm.keeper.keep(result)


def _keeper(
    folder: RunFolder,
    listeners: Listeners,
    redactor: Redactor,
    width: int,
    shown_as: str,
    graders: Mapping[str, list[Grader]],
) -> Keeper:
    def store(*results: Result) -> list[Result]:
        kept = [as_stored(folder.run, one, redactor, graders.get(one.task_id, [])) for one in results]
        folder.append(*kept)
        return kept

    def on_result(result: Result) -> None:
        listeners.on_result(changed(result, task_id=result.task_id + shown_as) if shown_as else result)

    return Keeper(store, on_result, width)


def _setting(order: Order, folder: RunFolder, redactor: Redactor, listeners: Listeners) -> Setting:
    name = folder.path.name if folder.path.name != CONTROL else f"{folder.path.parent.name}-{CONTROL}"
    return Setting(
        engine=order.spec.engine(order.engine or None),
        engine_name=order.engine,
        artifacts=folder.artifacts,
        keep_workspace=order.keep_workspace,
        skip_graders=order.skip_graders,
        max_attempts=order.spec.config.max_attempts,
        on_crash=order.spec.config.on_agent_crash,
        clean=redactor.raw if redactor else None,
        rooms=rooms_for(name),
        fingerprints=folder.run.spec.get("fingerprints", {}),
        on_remark=listeners.on_remark,
        judge=order.judge,
    )
