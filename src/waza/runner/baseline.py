"""The two arms of a baseline run: the request with the skill, the request without it, and what each must not have.

Each arm is a run of its own, with its own journal, fingerprints and results: everything that reads runs can read both,
and `--resume` continues both. The control arm's folder is inside the other's (`control/`): listing, comparing, moving
or removing runs sees one run, and the arm without the skill is never mistaken for a run of the suite. A field `arm` on
every trial would make each reader of a journal responsible for not mixing them.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec.structs import replace as changed

from waza.engines.base import ENGINES, Engine
from waza.errors import UsageError
from waza.model import Trace
from waza.runner.auto import most_trials
from waza.runner.request import RunRequest, folder_for, stored_form
from waza.runner.resume import resume
from waza.runs.impact import is_one_sided, is_skill
from waza.runs.impact_records import CONTROL, UNCLEAN
from waza.runs.outcomes import outcomes_of
from waza.runs.redaction import Redactor
from waza.runs.store import RUN, RunFolder, open_run
from waza.suites.positions import keys_of
from waza.suites.suite import EvalSpec, grader_as_data


def with_baseline(request: RunRequest, *, these_tasks: bool = False) -> RunRequest:
    """Return the request as the arm with the skill; raise UsageError where there is nothing to compare."""
    spec, engine = request.spec, _engine(request)
    if not spec.skill:
        raise UsageError("--baseline compares with and without a skill, and the suite names none; add `skill: NAME`")
    injected = bool(spec.engine_options.get("inject_skill_body")) and "inject_skill_body" in keys_of(engine)
    if not engine.takes_skill and not injected:
        raise UsageError(f"engine '{request.engine}' gives its agent no skill, so both arms would be the same")
    if spec.skill_folder is None:
        raise UsageError(
            f"skill '{spec.skill}' was not found: both arms would be the same; see config.skill_directories"
        )
    disabled = spec.engine_options.get("disabled_skills") or []
    if "*" in disabled or spec.skill in disabled:
        raise UsageError(f"skill '{spec.skill}' is switched off by disabled_skills: both arms would be the same")
    if not control_spec(spec, engine).tasks:
        raise UsageError(
            "no task has a grader that both arms could pass, or one of its own that compares them (mode: pairwise): "
            "all look at the use of skills alone"
        )
    about = {"arm": "skill", "skill": spec.skill, "these_tasks": these_tasks, "injected": injected}
    return replace(request, baseline=about)


def control_spec(spec: EvalSpec, engine: type[Engine]) -> EvalSpec:
    """Return the suite without its skill, and without the graders and tasks that only the skill could pass.

    A task that a judge compares keeps its place, even if no grader is left: its output is needed.
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
    """Return whether a grader of the task compares the outputs of both arms."""
    return any(getattr(grader, "mode", "") == "pairwise" for grader in spec.graders[task_id])


def control_trials(request: RunRequest) -> tuple[int, int]:
    """Return the number of trials of the control arm, with `auto` the largest, and how many have a result already."""
    tasks = control_spec(request.spec, _engine(request)).tasks
    total = most_trials(len(tasks), request.auto) if request.auto else len(tasks) * request.trials
    stored = request.resume.kept.path / CONTROL if request.resume else None
    if stored is None or not (stored / RUN).is_file():
        return total, 0
    planned = {(task.id, number + 1) for task in tasks for number in range(request.trials)}
    made = {(outcome.task_id, outcome.trial) for outcome in outcomes_of(open_run(stored).results)}
    return total, len(planned & made)


def control_request(request: RunRequest, folder: RunFolder) -> RunRequest:
    """Return the request for the control arm, resumed where a part of it is stored."""
    engine = _engine(request)
    whole = control_spec(request.whole or request.spec, engine)
    control = replace(
        request,
        spec=control_spec(request.spec, engine),
        whole=whole,
        runs=folder.path,
        resume=None,
        baselines={},
        baseline=request.baseline | {"arm": "control"},
    )
    stored = folder.path / CONTROL
    if request.resume is None or not (stored / RUN).is_file():
        return control
    found = resume(
        stored,
        stored_form(replace(control, spec=whole)),
        rerun_changed=request.rerun_changed,
        rerun_errors=request.rerun_errors,
        skip_graders=request.skip_graders,
    )
    return replace(control, resume=found)


def control_folder(control: RunRequest, redactor: Redactor) -> RunFolder:
    """Return the control arm's folder to write to: a new one in the other arm's, or the stored one."""
    if control.resume is not None or control.runs is None:
        return folder_for(control, redactor)
    return RunFolder.create(control.runs, changed(stored_form(control, redactor), id=CONTROL))


def why_not_without(trace: Trace, skill: str) -> str:
    """Return why a control trial does not count: it had the skill, or that cannot be determined."""
    if any(is_skill(name, skill) for name in trace.available_skills or ()):
        return f"{UNCLEAN}: skill '{skill}' is in the session's list of skills"
    if any(is_skill(used.name, skill) for used in trace.skill_invocations or ()):
        return f"{UNCLEAN}: skill '{skill}' was used"
    if trace.available_skills is None and trace.skill_invocations is None:
        return f"{UNCLEAN}, or cannot be verified: the agent reports neither which skills it has nor which it used"
    return ""


def why_not_with(trace: Trace, skill: str) -> str:
    """Return why a trial with the skill does not count: the agent reports that it did not have it."""
    if trace.available_skills is None or any(is_skill(name, skill) for name in trace.available_skills):
        return ""
    return f"the arm with the skill did not have it: '{skill}' is not in the session's list of skills"


def _engine(request: RunRequest) -> type[Engine]:
    found: type[Engine] = ENGINES.load(request.engine) if request.engine else type(request.spec.engine())
    return found
