"""The request for a run: suite, engine, trials and limits; and the form in which it is stored."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import to_builtins
from msgspec.structs import replace as changed

from waza import __version__
from waza.compact import CompactList
from waza.errors import SpecError, StoreError, UsageError
from waza.files.trust import cache_folder
from waza.model import JSON, Run, Task, Trial
from waza.runner.auto import Auto, share_of
from waza.runner.resume import Controls, Resumed, fingerprints
from waza.runs.canaries import KEY, PROBES
from waza.runs.folder import MAX_TRIALS
from waza.runs.grader_facts import GRADER_FACTS
from waza.runs.judge_card import CARDS
from waza.runs.partial import NOT_SELECTED
from waza.runs.redaction import Redactor, secrets_in
from waza.runs.remote_store import is_url
from waza.runs.store import RunFolder
from waza.suites.judges import judge_as_data, judge_settings, jurors_of
from waza.suites.suite import EvalSpec, fingerprint_of_spec

if TYPE_CHECKING:  # judges take long to load, and most runs ask none
    from waza.judges.base import Judge


@dataclass(frozen=True)
class RunRequest:
    """What to run and how; made by `request_for` from a suite and what the caller gives."""

    spec: EvalSpec
    """The suite with the tasks to be run."""
    engine: str
    """The engine's name; empty where neither the caller nor the suite names one."""
    model: str = ""
    """The agent's model; empty for the engine's own."""
    trials: int = 1
    """Trials of each task; with `auto` the least."""
    auto: Auto | None = None
    """The limits of `trials_per_task: auto`; None where the number of trials is fixed."""
    workers: int | None = None
    """Trials at the same time; the suite's own number if None."""
    runs: Path | None = None
    """The folder in which the run folder is made; the suite's own if None."""
    keep_workspace: bool = False
    """Whether the trial folders stay after the run."""
    skip_graders: bool = False
    """Whether agents are run without being graded."""
    max_cost_usd: float | None = None
    """Start no further trial once this much is spent."""
    whole: EvalSpec | None = None
    """The suite before tasks were selected, where some were."""
    given: dict[str, JSON] = field(default_factory=dict)
    """What the caller gave in addition to the suite: `names` and `tags` of tasks, `engine`, `model`, `trials`."""
    resume: Resumed | None = None
    """A stored run to continue."""
    judge: Judge | None = None
    """The judge of graders that need one."""
    baseline: dict[str, JSON] = field(default_factory=dict)
    """Which arm of a baseline run this is, and of which skill (`runs/impact_records.py`); empty for a plain run."""
    baselines: Mapping[tuple[str, int], str] = field(default_factory=dict)
    """By task id and trial: the output of another run, to compare with."""
    rerun_changed: bool = False
    """With `resume`: whether tasks that changed since are run again."""
    rerun_errors: bool = False
    """With `resume`: whether undecided trials are run again."""

    def planned(self) -> Iterator[Trial]:
        """Yield every trial of the request: its tasks', then its trigger tests'."""
        return chain(plan(self.spec, trials=self.trials, model=self.model), self.trigger_trials())

    def trigger_trials(self) -> Iterator[Trial]:
        """Yield every trial of the trigger tests, those of the controls first."""
        for task in self.spec.triggers.tasks if self.spec.triggers else ():
            yield from (Trial(task=task, number=number + 1, model=self.model) for number in range(self.trials))

    def controls(self) -> Controls:
        """Return the controls of the trigger tests, with their results in the run it resumes."""
        if self.spec.triggers is None:
            return Controls()
        stored = self.resume.run.triggers if self.resume else []
        done = self.resume.done if self.resume else frozenset()
        earlier = [result for result in stored if (result.task_id, result.trial) in done]
        return Controls(self.spec.triggers.prompts, self.trials, earlier)

    @property
    def stored(self) -> EvalSpec:
        """The suite as it is stored: what is run now, and what the resumed run has of it already."""
        if self.resume is None:
            return self.spec
        whole = self.whole or self.spec
        ids = {*self.resume.run.suite.task_ids} | {task.id for task in self.spec.tasks}
        asks = self.spec.triggers or self.resume.run.suite.triggers
        tasks = CompactList((task for task in whole.tasks if task.id in ids), Task)
        return replace(whole, tasks=tasks, triggers=whole.triggers if asks else None)


def request_for(
    spec: EvalSpec,
    *,
    engine: str | None = None,
    model: str | None = None,
    trials: int | Literal["auto"] | None = None,
    workers: int | None = None,
    judge_model: str | None = None,
    judge_cache: bool = True,
    **how: Any,
) -> RunRequest:
    """Return the request for a suite; arguments win over the suite's settings, those over the project's.

    Raises SpecError when a judge is needed and there is none, or none that is usable; UsageError for a number of
    trials that no stored run may have.
    """
    judge = None if how.get("skip_graders") else judge_for(spec, judge_model, cache=judge_cache)
    chosen = engine or spec.config.executor or spec.project.defaults.engine or ""
    number = trials if isinstance(trials, int) else 1 if trials else fewest_trials(spec)
    if number > MAX_TRIALS:
        raise UsageError(f"{number} trials a task are more than {MAX_TRIALS}; choose fewer")
    return RunRequest(
        spec=spec,
        engine=chosen,
        model=spec.config.model if model is None else model,
        trials=number,
        auto=auto_for(spec, trials),
        workers=workers,
        judge=judge,
        **how,
    )


def auto_for(spec: EvalSpec, trials: int | Literal["auto"] | None = None) -> Auto | None:
    """Return the limits of `auto` where a suite, or the caller, leaves the number of trials to it; else None.

    Raises SpecError when the budget is not even one trial a task.
    """
    config = spec.config
    if (trials or config.trials_per_task) != "auto":
        return None
    if config.trials_budget is not None and config.trials_budget < len(spec.tasks):
        few = f"{config.trials_budget} trials are not one for each of {len(spec.tasks)} tasks; choose tasks with --task"
        raise SpecError(spec.place.at("config", "trials_budget").problem(few))
    return Auto(most=config.max_trials, budget=config.trials_budget, share=share_of(config.pass_rule))


def judge_for(spec: EvalSpec, model: str | None = None, *, cache: bool = True) -> Judge | None:
    """Return the judge of a suite, its verdicts cached in the user's cache folder; None where no grader needs one."""
    return spec.judge(model=model or "", cache=_verdicts_of(spec) if cache else None)


def _verdicts_of(spec: EvalSpec) -> Path | None:
    """Return the cache folder of a suite's verdicts: outside the repository, which is not trusted."""
    try:
        return cache_folder() / "verdicts" / sha256(os.fsencode(runs_folder(spec).resolve())).hexdigest()[:16]
    except StoreError:
        return None


def runs_folder(spec: EvalSpec) -> Path:
    """Return the folder of a suite's runs: the project's `paths.results`, else `runs` next to the eval file.

    An object store gets them afterwards.
    """
    if spec.project.paths.results and not is_url(spec.project.paths.results):
        return spec.folder.root / spec.project.paths.results
    return spec.folder.base / "runs"


def redactor_for(spec: EvalSpec) -> tuple[Redactor, list[str]]:
    """Return what removes secrets (in waza's own variables, the suite's, the tasks') from results, and warnings."""
    named = spec.engine_options.get("api_key_env")
    declared = [*(spec.engine_options.get("pass_environment") or []), *_judge_keys(spec)]
    declared += [named] if isinstance(named, str) and named in os.environ else []
    environment = dict(os.environ) | (spec.engine_options.get("environment") or {})
    for task in spec.tasks:
        environment |= task.environment
    secrets, warnings = secrets_in(environment, declared)
    return Redactor(secrets), warnings


def _judge_keys(spec: EvalSpec) -> list[str]:
    """Return the names of variables that hold a judge's key."""
    names = [judge_settings(spec.project, spec.config).get("api_key_env")]
    names += [juror.judge.api_key_env for juror in jurors_of(spec.asking) if juror.judge is not None]
    return list(dict.fromkeys(name for name in names if isinstance(name, str) and name in os.environ))


def stored_form(request: RunRequest, redactor: Redactor | None = None) -> Run:
    """Return the run as it is stored before the first trial: without secrets, with its fingerprints."""
    run = (redactor or redactor_for(request.spec)[0]).tree(_blank(request))
    run.spec["fingerprints"] = fingerprints(run.spec)
    return run


def _not_selected(spec: EvalSpec, whole: EvalSpec) -> dict[str, JSON]:
    """Return the tasks and trigger tests of the suite that are not run (`runs/partial.py`)."""
    chosen = {task.id for task in spec.tasks} if spec.tasks is not whole.tasks else None
    others = [task for task in whole.tasks if task.id not in chosen] if chosen is not None else []
    tasks = [{"id": task.id, "name": task.name, "tags": task.tags, "golden": task.golden} for task in others]
    return {"tasks": tasks, "trigger_tests": whole.triggers is not None and spec.triggers is None}


def _blank(request: RunRequest) -> Run:
    spec = request.stored
    parent = request.runs or runs_folder(spec)
    data = spec.as_data() | {"file": Path(os.path.relpath(spec.file, parent.resolve())).as_posix()}
    data["config"] |= {"trials_per_task": request.trials, "executor": request.engine, "model": request.model}
    data[GRADER_FACTS] = spec.grader_facts()
    data[NOT_SELECTED] = _not_selected(spec, request.whole or spec)
    if request.auto is not None:
        data["auto_trials"] = to_builtins(request.auto)
    if request.baseline:
        data["baseline"] = request.baseline
    if request.given:
        data["given"] = request.given
    if request.judge is not None:
        data["judge"] = judge_as_data(request.judge)
        data["judged"] = spec.judged
    return Run(
        id="",
        name=spec.name,
        started_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        engine=request.engine,
        model=request.model,
        skill=spec.skill,
        spec=data,
        fingerprint=fingerprint_of_spec({key: data[key] for key in data.keys() - {"places", GRADER_FACTS}}),
        versions={"waza": __version__, "python": sys.version.partition(" ")[0]},
    )


def folder_for(request: RunRequest, redactor: Redactor) -> RunFolder:
    """Return the run folder to write to: a new one, or the stored one with the suite as it is now."""
    new = stored_form(request, redactor)
    if request.resume is None:
        if request.judge is not None:
            from waza.runner.judge_checks import about_judges  # judges take long to load, and most runs ask none

            about = about_judges(request.spec, request.judge, probes=_runs_agents(request))
            new.spec.update(redactor.tree(about))
        return RunFolder.create(request.runs or runs_folder(request.spec), new)
    new.spec.update({key: value for key, value in request.resume.run.spec.items() if key in (KEY, PROBES, CARDS)})
    if request.judge is not None and _runs_agents(request):
        from waza.runner.judge_checks import probe_judges  # as above

        new.spec[PROBES] = [*new.spec.get(PROBES, ()), *to_builtins(probe_judges(request.spec, request.judge))]
    folder = request.resume.kept
    if request.resume.run.spec != new.spec:
        folder.respec(changed(request.resume.run, spec=new.spec, fingerprint=new.fingerprint))
    return folder


def _runs_agents(request: RunRequest) -> bool:
    """Return whether trials are left that may cost money; without them the first verdict shows a wrong key as well."""
    if request.spec.engine(request.engine or None).mocks is None:
        return False
    done = request.resume.done if request.resume else frozenset()
    return any((trial.task.id, trial.number) not in done for trial in request.planned())


def plan(spec: EvalSpec, *, trials: int | None = None, model: str | None = None) -> Iterator[Trial]:
    """Yield every trial of every task, tasks in the order of the suite."""
    for task in spec.tasks:
        for number in range(1, (trials or fewest_trials(spec)) + 1):
            yield Trial(task=task, number=number, model=model if model is not None else spec.config.model)


def fewest_trials(spec: EvalSpec) -> int:
    """Return the least number of trials of a task."""
    return 1 if spec.config.trials_per_task == "auto" else spec.config.trials_per_task


def concurrency(spec: EvalSpec, workers: int | None = None) -> int:
    """Return how many trials run at once: `workers`, else the suite's, else 4 if it is parallel, else 1."""
    return workers or spec.config.workers or (4 if spec.config.parallel else 1)
