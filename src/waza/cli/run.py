"""`waza run`: run the agent, grade its work, report which checks passed."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import click

from waza.cli._progress import progress_for
from waza.cli._reporters import both, checked_store, otel_option, report, reporter_options, sent, telemetry
from waza.cli._run_options import (
    RunOptions,
    baseline_options,
    control_counts,
    impact_code,
    print_baseline,
    resume_command,
    with_control_arm,
    with_stored_run,
)
from waza.cli._runs import run_for
from waza.cli._screen import console, execution_options, output_options, remark, say, show_problems, trust_option
from waza.compact import CompactList
from waza.engines.base import ENGINES, NO_CREDENTIAL, Engine
from waza.errors import EXIT_BUG, EXIT_PASSED, EXIT_UNDECIDED, Problem, SpecError, StoreError, UsageError
from waza.model import Run, Task
from waza.reports.document import print_document
from waza.reports.table import models_document
from waza.runner.auto import most_trials
from waza.runner.preflight import refusals, refuse, without_refused
from waza.runner.request import RunRequest, auto_for, fewest_trials, request_for, runs_folder
from waza.runner.run import execute
from waza.runner.schedule import refuse_unreported_costs
from waza.runner.suite import Listeners, Stop
from waza.suites.load import NOT_READ, is_suite, load_spec
from waza.suites.local_code import NOT_CHECKED, changes_told
from waza.suites.suite import EvalSpec
from waza.suites.triggers import with_time
from waza.untrusted.text import plural


def _number_or_auto(text: str) -> int | Literal["auto"]:
    """Return the value of `--trials`."""
    if text == "auto":
        return "auto"
    if not text.isdecimal() or int(text) < 1:
        raise click.BadParameter(f"{text!r} is neither a positive number nor 'auto'")
    return int(text)


@click.command(epilog="Example:  waza run examples/quickstart  ·  waza run eval.yaml --task 'greet*' --trials 3 -v")
@click.argument("path", type=click.Path(path_type=Path), default=Path())
@click.option("--engine", help="The engine, instead of the suite's; `waza list engines` names them.")
@click.option("--replay", type=click.Path(path_type=Path), help="Grade stored traces instead of running an agent.")
@click.option("--task", "tasks", multiple=True, help="Only tasks whose id or name matches this glob; may be repeated.")
@click.option("--tags", multiple=True, help="Only tasks with a tag that matches this glob; may be repeated.")
@click.option(
    "--trials",
    type=_number_or_auto,
    metavar="NUMBER|auto",
    help="Trials per task; `auto`: until its pass rate is settled.",
)
@click.option("--model", "models", multiple=True, help="The agent's model; repeat it for one run per model.")
@click.option("--judge-model", help="The judge's model, where a grader names none.")
@click.option("--no-judge-cache", is_flag=True, help="Do not use cached verdicts of the judge.")
@click.option("--against", metavar="RUN", help="A stored run whose outputs `pairwise` graders compare with.")
@click.option("--fail-fast", is_flag=True, help="Stop once a task can no longer pass.")
@click.option("--skip-graders", is_flag=True, help="Only run the agent; `waza grade` grades later.")
@execution_options("task", "this suite")
@click.option("--update-snapshots", is_flag=True, help="Let `diff` graders write their snapshots.")
@trust_option
@click.option("--strict", is_flag=True, help="Refuse a suite with warnings, like `waza check --strict`.")
@baseline_options
@reporter_options
@otel_option
@output_options(several="; with several --model, one line per run")
@click.option("--interpret", is_flag=True, help="Add two or three sentences on what the numbers mean.")
def command(path: Path, **values: Any) -> int:
    """Run a suite: PATH is an eval file or a folder with eval.yaml (default: the current folder).

    A trigger_tests.yaml next to it is run too, unless --task, --tags or --replay is given.

    Exit code 0: all passed; 1: something failed or a gate was missed; 2: the spec or the command line is wrong;
    3: nothing failed, but something is undecided; 130/143: interrupted, results so far are stored. With
    --baseline it is about the skill: 0 or 1 as --needs asks, 3 if that is not shown or undecided.
    """
    options = RunOptions.from_click(**values)
    if options.resume and path == Path() and is_suite(Path(options.resume)):
        path, options = Path(options.resume), replace(options, resume="newest")  # `--resume PATH`: PATH is the suite
    whole = _load(path, options)
    options = replace(options, verbose=options.verbose or (whole.project.defaults.verbose and not options.quiet))
    spec = whole.select(options.tasks, options.tags) if options.tasks or options.tags else whole
    engine = options.engine_name
    if not options.quiet:
        show_problems(warnings_of(spec, engine, options))
    _print_imported(spec)
    if options.dry_run:
        print_baseline(spec, engine, options)
        return dry_run(spec, engine, options)
    _refuse_untrusted(spec, engine)
    if len(set(options.models)) != len(options.models):
        raise UsageError("each --model may be given once")
    codes, runs = [], []
    for model in options.models or (None,):
        code, run = run_model(spec, whole, engine, model, options)
        codes.append(code)
        runs.append(run)
        if code > EXIT_BUG:
            break
    if len(runs) > 1 and not options.as_json and not options.reports.take_stdout:
        print_document(models_document(runs), console())
    return max(codes, key=_severity)


def _load(path: Path, options: RunOptions) -> EvalSpec:
    """Return the suite with what the command line changes in it."""
    spec = load_spec(path, update_snapshots=options.update_snapshots, trust=options.trust, only_look=True)
    if options.strict and (warnings := [problem for problem in spec.notes if problem.severity == "warning"]):
        raise SpecError(warnings)
    if options.fail_fast:
        spec = spec.with_config(fail_fast=True)
    if options.timeout:
        from msgspec.structs import replace as changed

        triggers = with_time(spec.triggers, options.timeout) if spec.triggers else None
        tasks = CompactList((changed(task, timeout_s=options.timeout) for task in spec.tasks), Task)
        spec = replace(spec, tasks=tasks, triggers=triggers)
    if options.replay:
        traces = options.replay.resolve()
        engine_options = spec.engine_options | {"replay": str(traces)}
        spec = replace(spec, engine_options=engine_options, folder=spec.folder.naming(traces), triggers=None)
    return spec


def warnings_of(spec: EvalSpec, engine: str | None, options: RunOptions) -> list[Problem]:
    """Return the suite's warnings and keys that are not read, without those that the refusal of this run repeats."""
    warnings = [problem for problem in spec.notes if problem.severity == "warning" or problem.path in NOT_READ]
    name = engine or spec.config.executor or spec.project.defaults.engine or ""
    if not warnings or options.resume or not ENGINES.knows(name):
        return warnings
    judge_model, skips = options.judge_model or "", options.skip_graders
    refused = refusals(spec, engine=engine, judge_model=judge_model, skips_graders=skips, imports=False)
    return without_refused(warnings, refused)


def _print_imported(spec: EvalSpec) -> None:
    """Print which Python of the project is imported, and what changed in it since the user trusted it."""
    for file in spec.local_code:
        remark(f"runs code of this project: {file}")
    if spec.imported and spec.folder.may_import and (fact := changes_told(spec.folder)):
        remark(fact, "yellow")


def _refuse_untrusted(spec: EvalSpec, engine: str | None) -> None:
    """Raise SpecError with all Python that a run would import from a folder that is not trusted."""
    if not spec.folder.may_import and (problems := _not_checked(spec, spec.engine(engine, only_look=True))):
        raise SpecError([problem._replace(severity="error") for problem in problems])


def _not_checked(spec: EvalSpec, engine: Engine) -> list[Problem]:
    """Return what was not checked because it is Python of a folder that is not trusted."""
    return [*(note for note in spec.notes if note.severity == NOT_CHECKED), *spec.not_checked(engine)]


def dry_run(spec: EvalSpec, engine: str | None, options: RunOptions) -> int:
    """Print what would run; nothing is started, and no Python of an untrusted folder is imported."""
    trials = options.trials
    built = spec.engine(engine, only_look=True)
    show_problems(_not_checked(spec, built))
    if options.max_cost:
        refuse_unreported_costs(built)
    judge = spec.judge(model=options.judge_model or "")
    name = engine or spec.config.executor or spec.project.defaults.engine
    if auto := auto_for(spec, trials):
        most = most_trials(len(spec.tasks), auto)
        say(f"trials are chosen by auto: 1 to {auto.most} of each task, at most {most} in all\n")
    count = trials if isinstance(trials, int) else 1 if auto else fewest_trials(spec)
    for task in spec.tasks:
        graders = ", ".join(grader.name for grader in spec.graders[task.id])
        say(f"{task.id}  ({plural(count, 'trial')}; graders: {graders})")
    prompts = len(spec.triggers.tasks) if spec.triggers else 0
    if prompts:
        say(f"{plural(prompts, 'prompt')} of trigger tests, including controls  ({plural(count, 'trial')} each)")
    if judge is not None:
        from waza.runner.judge_checks import planned_canaries  # judges take long to load, and most runs ask none

        if canaries := planned_canaries(spec, judge):
            say(f"{plural(len(canaries), 'golden')} put to the judge before the first trial (canaries)")
        if judge.is_cacheable and built.mocks is not None:
            say("one small request to each judge before the first trial, unless it answered before with the same key")
    say(f"\n{plural((len(spec.tasks) + prompts) * count, 'trial')} with engine {name}; nothing was run")
    return EXIT_PASSED


def run_model(
    spec: EvalSpec, whole: EvalSpec, engine: str | None, model: str | None, options: RunOptions
) -> tuple[int, Run]:
    """Run the suite with one model and show the result; return the exit code and the run."""
    store = checked_store(spec.project.paths.results)
    _preflight(spec, engine, options)
    given = {
        "names": list(options.tasks),
        "tags": list(options.tags),
        "engine": engine,
        "model": model,
        "trials": options.trials,
        "judge_model": options.judge_model,
    }
    request = request_for(
        spec,
        engine=engine,
        model=model,
        trials=options.trials,
        workers=options.workers,
        keep_workspace=options.keep_workspace,
        skip_graders=options.skip_graders,
        max_cost_usd=options.max_cost,
        judge_model=options.judge_model,
        judge_cache=not options.no_judge_cache,
        baselines=_baselines(spec, options.against),
        whole=whole,
        given={key: value for key, value in given.items() if value},
    )
    request = with_stored_run(request, model, options)
    try:
        return _run_and_report(request, model, store, options)
    finally:
        if request.resume:
            request.resume.kept.close()


def _preflight(spec: EvalSpec, engine: str | None, options: RunOptions) -> None:
    """Refuse a run that cannot start, with every reason at once; warn about missing credentials."""
    if options.resume:
        return  # the stored run may have another engine and judge
    problems = refuse(
        spec,
        engine=engine,
        judge_model=options.judge_model or "",
        has_max_cost=options.max_cost is not None,
        skips_graders=options.skip_graders,
    )
    for problem in problems:
        if problem.message.startswith(NO_CREDENTIAL):
            remark(problem.message, "yellow")


def _run_and_report(request: RunRequest, model: str | None, store: str | None, options: RunOptions) -> tuple[int, Run]:
    request, spec = with_control_arm(request, options), request.spec
    stop, trouble = Stop(), list[str]()
    run = _run_with_progress(request, options, stop, trouble)
    code = impact_code(run, report(run, options, suffix=options.suffixes.get(model or "", "")), options.needs)
    code = sent(run, store, code, quiet=not options.prints_summary)
    for sentence in trouble:
        remark(sentence, "yellow")
    if stop.reason:
        remark(f"stopped: {stop.reason}; {plural(len(run.results) + len(run.triggers), 'result')} kept", "yellow")
    if not run.complete:
        # The same cost limit would stop the resumed run at once.
        again = replace(options, max_cost=None) if stop.reason.startswith("$") else options
        remark(f"continue with:  {resume_command(spec, again, run.id)}", "yellow")
    if stop.signal:
        return 128 + stop.signal, run
    return (EXIT_UNDECIDED if trouble and code == EXIT_PASSED else code), run


def _run_with_progress(request: RunRequest, options: RunOptions, stop: Stop, trouble: list[str]) -> Run:
    spec = request.spec
    total, done = _trial_counts(request)
    if request.resume and done == total and not request.auto:
        remark(f"run {request.resume.run.id} is complete; nothing was run")
    with (
        telemetry(options.otel, suite=spec.name, engine=request.engine, model=request.model) as send_spans,
        progress_for(total, done, console(stderr=True), quiet=options.hides_progress) as progress,
    ):
        listeners = Listeners(
            on_start=progress.on_start,
            on_done=progress.on_done,
            on_result=both(progress.on_result, send_spans),
            on_remark=progress.on_remark,
            stop=stop,
            trouble=trouble,
        )
        try:
            with redirect_stdout(sys.stderr):  # what a Python agent prints must not mix with results
                return execute(request, listeners)
        except StoreError as error:
            if "safe" in str(error):  # the disk failed during the run, not before it
                progress.on_remark(f"continue with:  {resume_command(spec, options)}")
            raise


def _trial_counts(request: RunRequest) -> tuple[int, int]:
    """Return how many trials a run has at most, both arms together, and how many of them are already stored."""
    tasks, prompts = len(request.spec.tasks), sum(1 for _ in request.trigger_trials())
    total = (most_trials(tasks, request.auto) if request.auto else tasks * request.trials) + prompts
    done = 0
    if request.resume:
        done = sum((trial.task.id, trial.number) in request.resume.done for trial in request.planned())
    control, control_done = control_counts(request)
    return total + control, done + control_done


def _baselines(spec: EvalSpec, run: str | None) -> dict[tuple[str, int], str]:
    """Return the outputs of the run that `--against` names, by task and trial."""
    if run is None:
        return {}
    from waza.runner.regrade import baselines_from  # only --against needs it

    return baselines_from(run_for(run, runs_folder(spec)))


def _severity(code: int) -> int:
    """Return a sort key of exit codes: an interruption is worst, then a wrong spec, failed, undecided, passed."""
    return {0: 0, 3: 1, 1: 2}.get(code, 3 + code)
