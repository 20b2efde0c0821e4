"""The command line of `waza run` and `waza trigger`, checked and typed; `--resume` and `--baseline`.

    --needs          improvement shown   no difference shown, too little evidence   regression shown
    no-regression    0                   0                                          1
    improvement      0                   3                                          1
    pass             as without --baseline: whether the tasks passed with the skill

The exit code is 3 if undecided trials could change the answer, trials are missing or the control arm had the skill.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from waza.cli._reporters import OutputOptions, model_suffixes
from waza.cli._runs import own_run
from waza.cli._screen import remark, say
from waza.errors import EXIT_FAILED, EXIT_PASSED, EXIT_UNDECIDED, UsageError
from waza.files.paths import display_path
from waza.model import Run, StoredBaseline
from waza.runner.baseline import control_trials, with_baseline
from waza.runner.request import RunRequest, auto_for, judge_for, request_for, runs_folder, stored_form
from waza.runner.resume import newest, resume
from waza.runs.folder import read_run_json
from waza.runs.impact import stored_impact
from waza.runs.impact_records import CONTROL, Impact
from waza.runs.remote_store import is_url
from waza.runs.store import find_run, open_run
from waza.suites.suite import EvalSpec
from waza.untrusted.text import plural

if TYPE_CHECKING:  # judges take long to load, and most runs ask none
    from waza.judges.base import Judge


@dataclass(frozen=True, kw_only=True)
class RunOptions(OutputOptions):
    """What to run and how; `waza trigger` leaves the options that it lacks at their defaults."""

    engine: str | None = None
    replay: Path | None = None
    tasks: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    trials: int | Literal["auto"] | None = None
    models: tuple[str, ...] = ()
    judge_model: str | None = None
    no_judge_cache: bool = False
    against: str | None = None
    fail_fast: bool = False
    skip_graders: bool = False
    workers: int | None = None
    timeout: float | None = None
    resume: str | None = None
    rerun_changed: bool = False
    rerun_errors: bool = False
    max_cost: float | None = None
    dry_run: bool = False
    keep_workspace: bool = False
    update_snapshots: bool = False
    trust: bool = False
    strict: bool = False
    baseline: bool | None = None
    """None: as the suite says."""
    needs: str | None = None
    these_tasks: bool = False
    catalogue: Path | None = None

    @property
    def engine_name(self) -> str | None:
        """The engine that the command line asks for; None for the suite's."""
        return "replay" if self.replay else self.engine

    @cached_property
    def suffixes(self) -> dict[str, str]:
        """By model: what is added to the names of its files, where there are several."""
        return model_suffixes(self.models)


def with_stored_run(request: RunRequest, model: str | None, options: RunOptions) -> RunRequest:
    """Return the request with the stored run that `--resume` continues, if it is given and there is one.

    Engine, model, trials and the choice of tasks are the stored run's, unless they are given again.
    """
    if not options.resume:
        if options.rerun_changed or options.rerun_errors:
            raise UsageError("--rerun-changed and --rerun-errors need --resume")
        return request
    parent = runs_folder(request.spec)
    if options.resume == "newest":
        file = stored_form(request).suite.file
        folder = newest(parent, file, model, has_tasks=bool(request.spec.tasks))
    else:
        folder = own_run(options.resume) if is_url(options.resume) else find_run(options.resume, [parent])
    if folder is None:
        remark("no run of this suite yet; starting one")
        return request
    request = _with_stored_settings(request, read_run_json(folder))
    resumed = resume(
        folder,
        stored_form(replace(request, spec=request.whole or request.spec)),
        rerun_changed=options.rerun_changed,
        rerun_errors=options.rerun_errors,
        skip_graders=options.skip_graders,
    )
    if resumed.run.integrity:
        remark(f"run {resumed.run.id} is {resumed.run.integrity}", "yellow")
    if resumed.removed:
        remark(f"no longer in the suite, left out of the report: {', '.join(resumed.removed)}", "yellow")
    return replace(request, resume=resumed, rerun_changed=options.rerun_changed, rerun_errors=options.rerun_errors)


def _with_stored_settings(request: RunRequest, run: Run) -> RunRequest:
    """Return the request with what the stored run was started with, where the command line gives nothing else."""
    started_with = run.suite.given
    given = started_with | request.given
    if (given.get("names") or given.get("tags")) and request.whole is request.spec:
        request = replace(request, spec=request.spec.select(given.get("names", ()), given.get("tags", ())))
    return replace(
        request,
        engine=given.get("engine") or request.engine,
        model=given.get("model", request.model),
        trials=given["trials"] if isinstance(given.get("trials"), int) else request.trials,
        auto=auto_for(request.spec, given.get("trials")),
        judge=_stored_judge(request, given),
        given=started_with,
    )


def _stored_judge(request: RunRequest, given: dict[str, Any]) -> Judge | None:
    """Return the judge with the model that the stored run's command line named."""
    if request.judge is None or not given.get("judge_model"):
        return request.judge
    return judge_for(request.spec, given["judge_model"], cache=request.judge.cache is not None)


def resume_command(spec: EvalSpec, options: RunOptions, run: str = "") -> str:
    """Return the command line that continues a run; what the stored run remembers is left out."""
    command = "run" if spec.tasks else "trigger"
    words = ["waza", command, display_path(spec.file), "--resume", *([run] if run else [])]
    for name in ("timeout", "replay", "max_cost", "against", "base", "catalogue", "needs"):
        value = getattr(options, name)
        words += [f"--{name.replace('_', '-')}", str(value)] if value else []
    words += [word for reporter in options.reporters for word in ("--reporter", reporter)]
    for flag in ("skip_graders", "no_judge_cache", "update_snapshots", "trust", "strict"):
        words += [f"--{flag.replace('_', '-')}"] if getattr(options, flag) else []
    return shlex.join(words)


Command = TypeVar("Command", bound=Callable[..., Any])
NEEDS = ("no-regression", "improvement", "pass")


def baseline_options(command: Command) -> Command:
    """Add `--baseline`, `--needs` and `--these-tasks` to a command."""
    these = click.option(
        "--these-tasks", is_flag=True, help="With --baseline: judge these tasks alone, not tasks like them."
    )
    needs = click.option(
        "--needs",
        type=click.Choice(NEEDS),
        help="With --baseline, what exit code 0 needs: no regression shown (default), an improvement shown, or that "
        "the tasks pass with the skill.",
    )
    baseline = click.option(
        "--baseline/--no-baseline",
        default=None,
        help="Also run every task without the skill, alternating trials, and report the skill's effect.",
    )
    return baseline(needs(these(command)))


def with_control_arm(request: RunRequest, options: RunOptions) -> RunRequest:
    """Return the request as an arm of a baseline run if the command line, the suite or the stored run asks for one."""
    called = options.baseline
    stored = request.resume.run.suite.baseline if request.resume else StoredBaseline()
    if request.resume is not None and called is not None and called != bool(stored.arm):
        which = "with" if stored.arm else "without"
        raise UsageError(f"run {request.resume.run.id} was started {which} --baseline; it can only continue like that")
    by_suite = called is None and request.spec.baseline and request.resume is None and bool(request.spec.tasks)
    if not (called or stored.arm or by_suite):
        if given := next((option for option in ("needs", "these_tasks") if getattr(options, option)), None):
            raise UsageError(f"--{given.replace('_', '-')} needs --baseline")
        return request
    try:
        return _with_baseline(request, stored, options)
    except UsageError as refusal:
        if not by_suite:
            raise
        remark(f"no control arm, though the suite says `baseline: true`: {refusal}", "yellow")
        return request


def _with_baseline(request: RunRequest, stored: StoredBaseline, options: RunOptions) -> RunRequest:
    for option in ("against", "skip_graders", "replay"):
        if getattr(options, option):
            raise UsageError(f"--{option.replace('_', '-')} cannot be combined with --baseline")
    return with_baseline(request, these_tasks=bool(options.these_tasks or stored.these_tasks))


def control_counts(request: RunRequest) -> tuple[int, int]:
    """Return how many trials the control arm has, and how many of them are done; none for a plain run."""
    if not request.baseline:
        return 0, 0
    return control_trials(request)


def print_baseline(spec: EvalSpec, engine: str | None, options: RunOptions) -> None:
    """Print what a baseline run would run in addition; raise UsageError if it could not run."""
    if not options.baseline:
        return
    request = with_control_arm(request_for(spec, engine=engine, trials=options.trials), options)
    say(f"\n--baseline: {plural(control_counts(request)[0], 'more trial')} without the skill {spec.skill}, alternating")


def impact_code(run: Run, code: int, needs: str | None) -> int:
    """Return the exit code of a run: for a baseline run, what it says about the skill."""
    if needs == "pass" or run.suite.baseline.arm != "skill":
        return code
    if (impact := stored_impact(run)) is None:
        remark("the arm without the skill cannot be read: nothing is known about the skill", "bold red")
        return EXIT_UNDECIDED
    control = open_run(Path(run.folder) / CONTROL)
    return _code(impact, needs or NEEDS[0], run.complete and control.complete)


def _code(impact: Impact, needs: str, is_complete: bool) -> int:
    if impact.unclean or not impact.holds or impact.lift is None or not is_complete:
        return EXIT_UNDECIDED
    if impact.word == "regression shown":
        return EXIT_FAILED
    return EXIT_PASSED if needs == "no-regression" or impact.word == "improvement shown" else EXIT_UNDECIDED
