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
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from msgspec.structs import replace as changed

from waza.engines.base import ENGINES, Engine
from waza.errors import UsageError
from waza.files.pinned import PinnedFiles
from waza.files.trial_folder import trial_folders_for
from waza.graders.base import Grader
from waza.model import Result, Run, Trace, Trial
from waza.process.concurrency import wait_for
from waza.runner.controls import Controls
from waza.runner.cost_limit import CostLimit, cost_limit_for
from waza.runner.finish import finish
from waza.runner.hooks import run_hooks
from waza.runner.journal_writer import JournalWriter
from waza.runner.request import RunRequest, concurrency, redactor_for, stored_form
from waza.runner.resume import resume
from waza.runner.reviewing import as_stored
from waza.runner.run import folder_for, journal_reports, leave_trial_folders, store_costs, until_done_or_stopped
from waza.runner.suite import Listeners, end_suite, paced, pin_files, with_hooks
from waza.runner.trial import RunContext
from waza.runs.gc import rare_collections
from waza.runs.impact import is_one_sided, is_skill
from waza.runs.impact_records import CONTROL, UNCLEAN
from waza.runs.outcomes import outcomes_of
from waza.runs.redaction import Redactor
from waza.runs.store import RUN, RunFolder, open_run
from waza.suites.positions import keys_of
from waza.suites.suite import EvalSpec, grader_as_data


@dataclass(frozen=True)
class Arm:
    """One side of a baseline run."""

    order: RunRequest
    folder: RunFolder
    setting: RunContext
    journal_writer: JournalWriter
    shown_as: str = ""
    """What listeners are told behind a task's name."""

    @property
    def done(self) -> frozenset[tuple[str, int]]:
        """Trials that are not run again."""
        return self.order.resume.done if self.order.resume else frozenset()


Pair = list[tuple[Arm, Trial]]


@rare_collections()
def conduct_baseline(
    order: RunRequest, listeners: Listeners, *, rerun_changed: bool = False, rerun_errors: bool = False
) -> Run:
    """Run both arms and return the one with the skill; the other is in its folder (`stored_impact` reads both)."""
    skill, cost_limit = order.spec.skill, cost_limit_for(order)
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
        cut_short: tuple[list[Result], list[Result]] = ([], [])
        settings = (
            _setting(control, other, redactor, heard)._replace(
                vet=partial(why_not_without, skill=skill), pinned=pinned, on_cut_short=cut_short[0].append
            ),
            _setting(order, folder, redactor, heard)._replace(
                vet=partial(why_not_with, skill=skill),
                baselines=outputs,
                pinned=pinned,
                on_cut_short=cut_short[1].append,
            ),
        )
        try:
            working = _both(order, (control, order), (other, folder), settings, outputs, heard, redactor, cost_limit)
            wait_for(until_done_or_stopped(working, heard))
        finally:
            for setting in settings:
                leave_trial_folders(setting, listeners.on_remark)
            for kept, ended in ((other, cut_short[0]), (folder, cut_short[1])):
                store_costs(ended, _storing(kept, redactor, order.spec.graders), listeners)
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
    order: RunRequest,
    orders: tuple[RunRequest, RunRequest],
    folders: tuple[RunFolder, RunFolder],
    settings: tuple[RunContext, RunContext],
    outputs: Outputs,
    listeners: Listeners,
    redactor: Redactor,
    cost_limit: CostLimit | None,
) -> None:
    """Run both arms under one limit of trials at once."""
    spec, width = order.spec, concurrency(order.spec, order.workers)
    told = (f" without {spec.skill}", "")
    arms = [
        Arm(
            one,
            folder,
            paced(setting, one.spec),
            _journal_writer(folder, listeners, redactor, width, shown_as, one.spec.graders),
            shown_as,
        )
        for one, folder, setting, shown_as in zip(orders, folders, settings, told, strict=True)
    ]
    if cost_limit is not None:
        if order.resume is None:
            cost_limit.spend_on_canaries(folders[1].run)
        cost_limit.look(listeners)
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
            watches = [group.create_task(arm.journal_writer.trouble()) for arm in arms]
            work = [_worker(trials, cost_limit, outputs, listeners, controls) for _ in range(width)]
            await asyncio.wait([group.create_task(one) for one in work])
            for watch in watches:
                watch.cancel()
    finally:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(end_suite, spec, [arm.setting.engine for arm in arms], listeners, environment)
            for arm in arms:
                stack.push_async_callback(arm.journal_writer.close)
    if controls.held_back:
        listeners.stop(controls.reason(bool(spec.tasks)))
    if cost_limit is not None:
        cost_limit.close(listeners)


async def _worker(
    trials: Iterator[Pair], cost_limit: CostLimit | None, outputs: Outputs, listeners: Listeners, controls: Controls
) -> None:
    """Take the next pair until there is none, or the run is to stop; a result is safe before the next trial starts."""
    for pair in trials:
        for arm, trial in pair:
            is_allowed = await controls.allow(trial)
            if await listeners.stop.is_wanted():
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
            if cost_limit is not None:
                cost_limit.heard(result, listeners)
            await arm.journal_writer.keep(result)


def _journal_writer(
    folder: RunFolder,
    listeners: Listeners,
    redactor: Redactor,
    width: int,
    shown_as: str,
    graders: Mapping[str, list[Grader]],
) -> JournalWriter:
    def on_result(result: Result) -> None:
        listeners.on_result(changed(result, task_id=result.task_id + shown_as) if shown_as else result)

    return JournalWriter(_storing(folder, redactor, graders), on_result, width)


def _storing(folder: RunFolder, redactor: Redactor, graders: Mapping[str, list[Grader]]) -> Callable[..., list[Result]]:
    """Return what stores results in a folder, and returns them as they are kept."""

    def store(*results: Result) -> list[Result]:
        kept = [as_stored(folder.run, one, redactor, graders.get(one.task_id, [])) for one in results]
        folder.append(*kept)
        return kept

    return store


def _setting(order: RunRequest, folder: RunFolder, redactor: Redactor, listeners: Listeners) -> RunContext:
    name = folder.path.name if folder.path.name != CONTROL else f"{folder.path.parent.name}-{CONTROL}"
    return RunContext(
        engine=order.spec.engine(order.engine or None),
        engine_name=order.engine,
        artifacts=folder.artifacts,
        keep_workspace=order.keep_workspace,
        skip_graders=order.skip_graders,
        max_attempts=order.spec.config.max_attempts,
        on_crash=order.spec.config.on_agent_crash,
        clean=redactor.raw if redactor else None,
        trial_folders=trial_folders_for(name),
        fingerprints=folder.run.spec.get("fingerprints", {}),
        on_remark=listeners.on_remark,
        judge=order.judge,
        stop=listeners.stop,
    )


# The two arms of a baseline run: the order with the skill, the order without it, and what each must not have.

Outputs = dict[tuple[str, int], str]
"""By task and trial: what the control arm said."""


def with_baseline(order: RunRequest, *, these_tasks: bool = False) -> RunRequest:
    """Return the order as the arm with the skill; raise UsageError where there is nothing to compare."""
    spec, engine = order.spec, _engine(order)
    if not spec.skill:
        raise UsageError("--baseline compares with and without a skill, and the suite names none; add `skill: NAME`")
    injected = bool(spec.engine_options.get("inject_skill_body")) and "inject_skill_body" in keys_of(engine)
    if not engine.takes_skill and not injected:
        raise UsageError(f"engine '{order.engine}' gives its agent no skill, so both arms would be the same")
    if spec.skill_folder is None:
        raise UsageError(
            f"skill '{spec.skill}' was not found: both arms would be the same; see config.skill_directories"
        )
    disabled = spec.engine_options.get("disabled_skills") or []
    if "*" in disabled or spec.skill in disabled:
        raise UsageError(f"skill '{spec.skill}' is switched off by disabled_skills: both arms would be the same")
    if order.auto is not None:
        raise UsageError("--baseline needs the same number of trials in both arms; give it with --trials NUMBER")
    if not control_spec(spec, engine).tasks:
        raise UsageError(
            "no task has a grader that both arms could pass, or one of its own that compares them (mode: pairwise): "
            "all look at the use of skills alone"
        )
    about = {"arm": "skill", "skill": spec.skill, "these_tasks": these_tasks, "injected": injected}
    return replace(order, baseline=about)


def control_spec(spec: EvalSpec, engine: type[Engine]) -> EvalSpec:
    """Return the suite without its skill, and without the graders and tasks that only the skill could pass.

    A task that a judge compares keeps its place, though nothing may be left to grade it by: its output is needed.
    """
    facts = spec.grader_facts()
    graders = {
        task.id: [grader for grader in spec.graders[task.id] if not is_one_sided(grader_as_data(grader), facts)]
        for task in spec.tasks
    }
    options = {key: value for key, value in spec.engine_options.items() if key != "inject_skill_body"}
    if "disabled_skills" in keys_of(engine):
        options["disabled_skills"] = [*(options.get("disabled_skills") or []), spec.skill]
    if needed := options.get("required_skills"):
        options["required_skills"] = [name for name in needed if name != spec.skill]
    tasks = [task for task in spec.tasks if graders[task.id] or is_compared(spec, task.id)]
    return replace(spec, skill="", tasks=tasks, graders=graders, engine_options=options, triggers=None)


def is_compared(spec: EvalSpec, task_id: str) -> bool:
    """Say whether a grader of the task compares the outputs of both arms."""
    return any(getattr(grader, "mode", "") == "pairwise" for grader in spec.graders[task_id])


def control_trials(order: RunRequest) -> tuple[int, int]:
    """Return how many trials the control arm has, and how many of them have a result already."""
    spec = control_spec(order.spec, _engine(order))
    planned = {(task.id, number + 1) for task in spec.tasks for number in range(order.trials)}
    stored = order.resume.kept.path / CONTROL if order.resume else None
    if stored is None or not (stored / RUN).is_file():
        return len(planned), 0
    made = {(outcome.task_id, outcome.trial) for outcome in outcomes_of(open_run(stored).results)}
    return len(planned), len(planned & made)


def control_order(order: RunRequest, folder: RunFolder, *, rerun_changed: bool, rerun_errors: bool) -> RunRequest:
    """Return the order of the control arm, going on with what is stored of it."""
    engine = _engine(order)
    whole = control_spec(order.whole or order.spec, engine)
    control = replace(
        order,
        spec=control_spec(order.spec, engine),
        whole=whole,
        runs=folder.path,
        resume=None,
        baselines={},
        baseline=order.baseline | {"arm": "control"},
    )
    stored = folder.path / CONTROL
    if order.resume is None or not (stored / RUN).is_file():
        return control
    found = resume(
        stored,
        stored_form(replace(control, spec=whole)),
        rerun_changed=rerun_changed,
        rerun_errors=rerun_errors,
        skip_graders=order.skip_graders,
    )
    return replace(control, resume=found)


def control_folder(control: RunRequest, redactor: Redactor) -> RunFolder:
    """Return the control arm's folder to write to: a new one in the other arm's, or the stored one."""
    if control.resume is not None or control.runs is None:
        return folder_for(control, redactor)
    return RunFolder.create(control.runs, changed(stored_form(control, redactor), id=CONTROL))


def outputs_of(control: RunRequest) -> Outputs:
    """Return what the control arm said in trials that are done."""
    if control.resume is None:
        return {}
    done = control.resume.done
    return {
        (result.task_id, result.trial): result.trace.output
        for result in control.resume.run.results
        if (result.task_id, result.trial) in done and result.trace.status == "success"
    }


def why_not_without(trace: Trace, skill: str) -> str:
    """Return why a control trial does not count: it had the skill, or nobody can tell."""
    if any(is_skill(name, skill) for name in trace.available_skills or ()):
        return f"{UNCLEAN}: skill '{skill}' is in the session's list of skills"
    if any(is_skill(used.name, skill) for used in trace.skill_invocations or ()):
        return f"{UNCLEAN}: skill '{skill}' was used"
    if trace.available_skills is None and trace.skill_invocations is None:
        return f"{UNCLEAN}, or nobody can tell: the agent says neither which skills it has nor which it used"
    return ""


def why_not_with(trace: Trace, skill: str) -> str:
    """Return why a trial with the skill does not count: the agent says that it did not have it."""
    if trace.available_skills is None or any(is_skill(name, skill) for name in trace.available_skills):
        return ""
    return f"the arm with the skill did not have it: '{skill}' is not in the session's list of skills"


def _engine(order: RunRequest) -> type[Engine]:
    found: type[Engine] = ENGINES.load(order.engine) if order.engine else type(order.spec.engine())
    return found
