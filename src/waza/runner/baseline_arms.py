"""The two arms of a baseline run: the order with the skill, the order without it, and what each must not have."""

from __future__ import annotations

from dataclasses import replace

from msgspec.structs import replace as changed

from waza.engines._base import ENGINES, Engine
from waza.errors import UsageError
from waza.model import Trace
from waza.results.outcomes import outcomes_of
from waza.results.redact import Redactor
from waza.results.stats.impact import is_one_sided, is_skill
from waza.results.stats.impact_records import CONTROL, UNCLEAN
from waza.results.store import RUN, RunFolder, open_run
from waza.runner.order import Order, stored_form
from waza.runner.resume import resume
from waza.runner.run import folder_for
from waza.spec.places import keys_of
from waza.spec.suite import EvalSpec, grader_as_data

Outputs = dict[tuple[str, int], str]
"""By task and trial: what the control arm said."""


def with_baseline(order: Order, *, these_tasks: bool = False) -> Order:
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
    graders = {
        task.id: [grader for grader in spec.graders[task.id] if not is_one_sided(grader_as_data(grader))]
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


def control_trials(order: Order) -> tuple[int, int]:
    """Return how many trials the control arm has, and how many of them have a result already."""
    spec = control_spec(order.spec, _engine(order))
    planned = {(task.id, number + 1) for task in spec.tasks for number in range(order.trials)}
    stored = order.resume.kept.path / CONTROL if order.resume else None
    if stored is None or not (stored / RUN).is_file():
        return len(planned), 0
    made = {(outcome.task_id, outcome.trial) for outcome in outcomes_of(open_run(stored).results)}
    return len(planned), len(planned & made)


def control_order(order: Order, folder: RunFolder, *, rerun_changed: bool, rerun_errors: bool) -> Order:
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


def control_folder(control: Order, redactor: Redactor) -> RunFolder:
    """Return the control arm's folder to write to: a new one in the other arm's, or the stored one."""
    if control.resume is not None or control.runs is None:
        return folder_for(control, redactor)
    return RunFolder.create(control.runs, changed(stored_form(control, redactor), id=CONTROL))


def outputs_of(control: Order) -> Outputs:
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


def _engine(order: Order) -> type[Engine]:
    found: type[Engine] = ENGINES.load(order.engine) if order.engine else type(order.spec.engine())
    return found
