"""`waza run`: let the agent work, grade it, say which claims held."""

from __future__ import annotations

import shlex
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import click

from waza.cli._baseline import baseline_of, baseline_options, control_counts, impact_code, say_baseline
from waza.cli._otel import both, otel_option, telemetry, traces_url
from waza.cli._progress import progress_for
from waza.cli._reporters import checked_store, model_suffixes, report, reporter_options, sent, wanted_reports
from waza.cli._runs import own_run, run_for
from waza.cli._screen import console, remark, say, show_problems
from waza.cli._working import telling_options, trust_option, with_stdout, working_options
from waza.compact import CompactList
from waza.engines.base import ENGINES, NO_CREDENTIAL, Engine
from waza.errors import EXIT_BUG, EXIT_PASSED, EXIT_UNDECIDED, Problem, SpecError, StoreError, UsageError
from waza.files.paths import display_path
from waza.judges.base import Judge
from waza.model import Run, Task
from waza.reports.table import models_table
from waza.runner.auto import most_trials
from waza.runner.cost_limit import refuse_unreported_costs
from waza.runner.judge_checks import planned_canaries
from waza.runner.preflight import refusals, refuse, without_refused
from waza.runner.request import RunRequest, auto_for, fewest_trials, judge_for, request_for, runs_folder, stored_form
from waza.runner.resume import newest, resume
from waza.runner.run import execute
from waza.runner.suite import Listeners, Stop
from waza.runs.folder import read_run_json
from waza.runs.remote_store import is_url
from waza.runs.store import find_run
from waza.suites.load import is_suite, load_spec
from waza.suites.local_code import NOT_CHECKED, changes_told
from waza.suites.suite import EvalSpec
from waza.suites.triggers import with_time
from waza.untrusted.text import plural


def _number_or_auto(text: str) -> int | Literal["auto"]:
    """Return how many trials are meant."""
    if text == "auto":
        return "auto"
    if not text.isdecimal() or int(text) < 1:
        raise click.BadParameter(f"{text!r} is neither a number from 1 on nor 'auto'")
    return int(text)


@click.command(epilog="Example:  waza run examples/quickstart  ·  waza run eval.yaml --task 'greet*' --trials 3 -v")
@click.argument("path", type=click.Path(path_type=Path), default=Path())
@click.option("--engine", help="The engine, instead of the suite's; `waza list engines` names them.")
@click.option("--replay", type=click.Path(path_type=Path), help="Take stored traces instead of running an agent.")
@click.option("--task", "tasks", multiple=True, help="Only tasks whose id or name fits this glob; may be repeated.")
@click.option("--tags", multiple=True, help="Only tasks with a tag that fits this glob; may be repeated.")
@click.option(
    "--trials",
    type=_number_or_auto,
    metavar="NUMBER|auto",
    help="How often each task is tried; `auto`: until its pass rate is settled.",
)
@click.option("--model", "models", multiple=True, help="The agent's model; repeat it for one run per model.")
@click.option("--judge-model", help="The judge's model, where a grader names none.")
@click.option("--no-judge-cache", is_flag=True, help="Ask the judge again, even what it was asked before.")
@click.option("--against", metavar="RUN", help="A stored run whose outputs `pairwise` graders compare with.")
@click.option("--fail-fast", is_flag=True, help="Stop once a task can no longer pass.")
@click.option("--skip-graders", is_flag=True, help="Only run the agent; `waza grade` grades later.")
@working_options("task", "this suite")
@click.option("--update-snapshots", is_flag=True, help="Let `diff` graders write their snapshots.")
@trust_option
@click.option("--strict", is_flag=True, help="Refuse a suite with warnings, as `waza check --strict` does.")
@baseline_options
@reporter_options
@otel_option
@telling_options(several="; with several --model, each on a line of its own")
@click.option("--interpret", is_flag=True, help="Add two or three sentences on what the numbers mean.")
def command(path: Path, **options: Any) -> int:
    """Run a suite: PATH is an eval file or a folder that holds eval.yaml (default: the current folder).

    A trigger_tests.yaml beside it is run too, unless --task, --tags or --replay is given.

    Exit code 0: all passed; 1: something failed or a gate was missed; 2: the spec or the call is wrong;
    3: nothing failed, but something could not be decided; 130/143: interrupted, results so far are kept. With
    --baseline it says what the skill does: 0 or 1 as --needs asks, 3 where that is not shown or not decided.
    """
    options = with_stdout(options)
    if options["output"] and options["output"].is_dir():
        raise UsageError(f"{options['output']} is a folder; -o names a file")
    options["reports"] = wanted_reports(options["reporters"], options["base"], as_json=options["as_json"])
    options["suffixes"] = model_suffixes(options["models"])
    if options["otel"] is not None:
        traces_url(options["otel"])
    if options["resume"] and path == Path() and is_suite(Path(options["resume"])):
        path, options["resume"] = Path(options["resume"]), "newest"  # `--resume PATH`: the path was meant for us
    whole = prepared(path, options)
    options["verbose"] = options["verbose"] or (whole.project.defaults.verbose and not options["quiet"])
    spec = whole.select(options["tasks"], options["tags"]) if options["tasks"] or options["tags"] else whole
    engine = "replay" if options["replay"] else options["engine"]
    if not options["quiet"]:
        show_problems(warnings_of(spec, engine, options))
    tell_imported(spec)
    if options["dry_run"]:
        say_baseline(spec, engine, options)
        return dry_run(spec, engine, options)
    refuse_not_trusted(spec, engine)
    if len(set(options["models"])) != len(options["models"]):
        raise UsageError("each --model may be given once")
    codes, runs = [], []
    for model in options["models"] or (None,):
        code, run = one_model(spec, whole, engine, model, options)
        codes.append(code)
        runs.append(run)
        if code > EXIT_BUG:
            break
    if len(runs) > 1 and not options["as_json"] and not options["reports"].take_stdout:
        console().print(models_table(runs))
    return max(codes, key=_severity)


def warnings_of(spec: EvalSpec, engine: str | None, options: dict[str, Any]) -> list[Problem]:
    """Return the suite's warnings, without those that the refusal of this run repeats."""
    found = [problem for problem in spec.notes if problem.severity == "warning"]
    if (
        not found
        or options["resume"]
        or not ENGINES.knows(engine or spec.config.executor or spec.project.defaults.engine or "")
    ):
        return found
    skips = options["skip_graders"]
    refused = refusals(
        spec, engine=engine, judge_model=options["judge_model"] or "", skips_graders=skips, imports=False
    )
    return without_refused(found, refused)


def refuse_not_trusted(spec: EvalSpec, engine: str | None) -> None:
    """Raise SpecError with all Python of the project that a run would import from a folder that is not trusted."""
    if not spec.folder.may_import and (left_out := not_checked(spec, spec.engine(engine, only_look=True))):
        raise SpecError([problem._replace(severity="error") for problem in left_out])


def not_checked(spec: EvalSpec, engine: Engine) -> list[Problem]:
    """Return what of a suite and its agent was not checked, because it is Python of a folder that is not trusted."""
    return [*(note for note in spec.notes if note.severity == NOT_CHECKED), *spec.not_checked(engine)]


def tell_imported(spec: EvalSpec) -> None:
    """Say which Python of the project is imported, and what changed in it since the user trusted it."""
    for file in spec.local_code:
        remark(f"runs code of this project: {file}")
    if spec.imported and spec.folder.may_import and (fact := changes_told(spec.folder)):
        remark(fact, "yellow")


def prepared(path: Path, options: dict[str, Any]) -> EvalSpec:
    """Return the suite with what the command line changes in it."""
    spec = load_spec(
        path,
        update_snapshots=options["update_snapshots"],
        trust=options["trust"],
        only_look=True,
    )
    if options["strict"] and (warned := [problem for problem in spec.notes if problem.severity == "warning"]):
        raise SpecError(warned)
    if options["fail_fast"]:
        spec = spec.with_config(fail_fast=True)
    if options["timeout"]:
        from msgspec.structs import replace as changed

        triggers = with_time(spec.triggers, options["timeout"]) if spec.triggers else None
        tasks = CompactList((changed(task, timeout_s=options["timeout"]) for task in spec.tasks), Task)
        spec = replace(spec, tasks=tasks, triggers=triggers)
    if options["replay"]:
        named = options["replay"].resolve()
        options_now = spec.engine_options | {"replay": str(named)}
        spec = replace(spec, engine_options=options_now, folder=spec.folder.naming(named), triggers=None)
    return spec


def dry_run(spec: EvalSpec, engine: str | None, options: dict[str, Any]) -> int:
    """Say what would run; nothing is started, and nothing of a folder that is not trusted is imported."""
    trials: int | Literal["auto"] | None = options["trials"]
    chosen = spec.engine(engine, only_look=True)
    show_problems(not_checked(spec, chosen))
    if options["max_cost"]:
        refuse_unreported_costs(chosen)
    judge = spec.judge(model=options["judge_model"] or "")
    name = engine or spec.config.executor or spec.project.defaults.engine
    if auto := auto_for(spec, trials):
        most = most_trials(len(spec.tasks), auto)
        say(f"trials are left to auto: 1 to {auto.most} of each task, at most {most} in all\n")
    count = trials if isinstance(trials, int) else 1 if auto else fewest_trials(spec)
    for task in spec.tasks:
        graders = ", ".join(grader.name for grader in spec.graders[task.id])
        say(f"{task.id}  ({plural(count, 'trial')}; graders: {graders})")
    asked = len(spec.triggers.tasks) if spec.triggers else 0
    if asked:
        say(f"{plural(asked, 'prompt')} of trigger tests, controls among them  ({plural(count, 'trial')} each)")
    if canaries := planned_canaries(spec, judge):
        say(f"{plural(len(canaries), 'golden')} put to the judge before the first trial (canaries)")
    say(f"\n{plural((len(spec.tasks) + asked) * count, 'trial')} with engine {name}; nothing was run")
    return EXIT_PASSED


def one_model(
    spec: EvalSpec, whole: EvalSpec, engine: str | None, model: str | None, options: dict[str, Any]
) -> tuple[int, Run]:
    """Run the suite with one model and show the result; return its exit code and the run."""
    store = checked_store(spec.project.paths.results)
    _preflight(spec, engine, options)
    order = request_for(
        spec,
        engine=engine,
        model=model,
        trials=options["trials"],
        workers=options["workers"],
        keep_workspace=options["keep_workspace"],
        skip_graders=options["skip_graders"],
        max_cost_usd=options["max_cost"],
        judge_model=options["judge_model"],
        judge_cache=not options["no_judge_cache"],
        baselines=_baselines(spec, options["against"]),
        whole=whole,
        given={key: value for key, value in _given(engine, model, options).items() if value},
    )
    order = _resumed(order, model, options)
    try:
        return _conducted(order, model, store, options)
    finally:
        if order.resume:
            order.resume.kept.close()


def _conducted(order: RunRequest, model: str | None, store: str | None, options: dict[str, Any]) -> tuple[int, Run]:
    order, spec = baseline_of(order, options), order.spec
    asked = sum(1 for _ in order.trigger_trials())
    planned = len(order.spec.tasks) * order.trials + asked
    total = most_trials(len(order.spec.tasks), order.auto) + asked if order.auto else planned
    done = 0
    if order.resume:
        done = sum((trial.task.id, trial.number) in order.resume.done for trial in order.planned())
    more, more_done = control_counts(order)
    if order.resume and done == planned and more == more_done and not order.auto:
        remark(f"run {order.resume.run.id} is complete; nothing was run")
    stop, trouble = Stop(), list[str]()
    quiet = options["quiet"] or options["as_json"]
    about = {"suite": spec.name, "engine": order.engine, "model": order.model}
    with (
        telemetry(options["otel"], **about) as heard,
        progress_for(total + more, done + more_done, console(stderr=True), quiet=quiet) as progress,
    ):
        listeners = Listeners(
            on_start=progress.on_start,
            on_done=progress.on_done,
            on_result=both(progress.on_result, heard),
            on_remark=progress.on_remark,
            stop=stop,
            trouble=trouble,
        )
        try:
            with redirect_stdout(sys.stderr):  # what a Python agent prints is not ours to mix into results
                run = execute(order, listeners)
        except StoreError as error:
            if "safe" in str(error):  # a disk that gave up in the middle, not a run that never began
                progress.on_remark(f"go on with:  {_again(spec, options)}")
            raise
    code = impact_code(run, report(run, options, suffix=options["suffixes"].get(model, "")), options)
    code = sent(run, store, code, quiet=quiet or options["reports"].take_stdout)
    for sentence in trouble:
        remark(sentence, "yellow")
    if stop.reason:
        remark(f"stopped: {stop.reason}; {plural(len(run.results) + len(run.triggers), 'result')} kept", "yellow")
    if not run.complete:
        spent = {"max_cost": None} if stop.reason.startswith("$") else {}  # it would end at once
        remark(f"go on with:  {_again(spec, options | spent, run.id)}", "yellow")
    if stop.signal:
        return 128 + stop.signal, run
    return (EXIT_UNDECIDED if trouble and code == EXIT_PASSED else code), run


def _preflight(spec: EvalSpec, engine: str | None, options: dict[str, Any]) -> None:
    """Refuse a run that cannot start, with every reason at once; say what may keep its agents from working."""
    if options["resume"]:
        return  # its engine and its judge may be the stored run's
    how = {"has_max_cost": options["max_cost"] is not None, "skips_graders": options["skip_graders"]}
    for problem in refuse(spec, engine=engine, judge_model=options["judge_model"] or "", **how):
        if problem.message.startswith(NO_CREDENTIAL):
            remark(problem.message, "yellow")


def _given(engine: str | None, model: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """Return what the command line says beside the suite; a resumed run goes on with the same."""
    names, tags = list(options["tasks"]), list(options["tags"])
    given = {"names": names, "tags": tags, "engine": engine, "model": model, "trials": options["trials"]}
    return given | {"judge_model": options["judge_model"]}


def _again(spec: EvalSpec, options: dict[str, Any], run: str = "") -> str:
    """Return the command that goes on with a run; what the run itself remembers is left out."""
    command = "run" if spec.tasks else "trigger"
    words = ["waza", command, display_path(spec.file), "--resume", *([run] if run else [])]
    for option in ("timeout", "replay", "max_cost", "against", "base", "catalogue", "needs"):
        words += [f"--{option.replace('_', '-')}", str(options[option])] if options.get(option) else []
    words += [word for reporter in options["reporters"] for word in ("--reporter", reporter)]
    for flag in ("skip_graders", "no_judge_cache", "update_snapshots", "trust", "strict"):
        words += [f"--{flag.replace('_', '-')}"] if options.get(flag) else []
    return shlex.join(words)


def _resumed(order: RunRequest, model: str | None, options: dict[str, Any]) -> RunRequest:
    """Return the order with the stored run it is to go on with, if `--resume` asks for one and there is one.

    Engine, model, trials and the choice of tasks are the stored run's, unless they are given again.
    """
    if not options["resume"]:
        if options["rerun_changed"] or options["rerun_errors"]:
            raise UsageError("--rerun-changed and --rerun-errors go with --resume")
        return order
    parent = runs_folder(order.spec)
    if options["resume"] == "newest":
        file = str(stored_form(order).spec["file"])
        folder = newest(parent, file, model, has_tasks=bool(order.spec.tasks))
    else:
        folder = own_run(options["resume"]) if is_url(options["resume"]) else find_run(options["resume"], [parent])
    if folder is None:
        remark("no run of this suite yet; starting one")
        return order
    order = _as_stored(order, read_run_json(folder))
    found = resume(
        folder,
        stored_form(replace(order, spec=order.whole or order.spec)),
        rerun_changed=options["rerun_changed"],
        rerun_errors=options["rerun_errors"],
        skip_graders=options["skip_graders"],
    )
    if found.run.integrity:
        remark(f"run {found.run.id} is {found.run.integrity}", "yellow")
    if found.removed:
        remark(f"no longer in the suite, left out of the report: {', '.join(found.removed)}", "yellow")
    reruns = {key: options[key] for key in ("rerun_changed", "rerun_errors")}
    return replace(order, resume=found, **reruns)


def _as_stored(order: RunRequest, run: Run) -> RunRequest:
    """Return the order with what the stored run was started with, where nothing else is asked for."""
    started_with = run.spec.get("given") or {}
    given = started_with | order.given
    if (given.get("names") or given.get("tags")) and order.whole is order.spec:
        order = replace(order, spec=order.spec.select(given.get("names", ()), given.get("tags", ())))
    return replace(
        order,
        engine=given.get("engine") or order.engine,
        model=given.get("model", order.model),
        trials=given["trials"] if isinstance(given.get("trials"), int) else order.trials,
        auto=auto_for(order.spec, given.get("trials")),
        judge=_judge_as_stored(order, given),
        given=started_with,
    )


def _judge_as_stored(order: RunRequest, given: dict[str, Any]) -> Judge | None:
    """Return the judge with the model the stored run was started with, where it was named on the command line."""
    if order.judge is None or not given.get("judge_model"):
        return order.judge
    return judge_for(order.spec, given["judge_model"], cache=order.judge.cache is not None)


def _baselines(spec: EvalSpec, run: str | None) -> dict[tuple[str, int], str]:
    """Return the outputs of the run that `--against` names."""
    if run is None:
        return {}
    from waza.runner.regrade import baselines_from

    return baselines_from(run_for(run, runs_folder(spec)))


def _severity(code: int) -> int:
    """Order exit codes: an interruption first, then wrong, failed, undecided, passed."""
    return {0: 0, 3: 1, 1: 2}.get(code, 3 + code)
