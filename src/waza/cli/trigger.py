"""`waza trigger`: the prompts of trigger_tests.yaml by themselves, or those of a whole catalogue of skills."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from waza.cli._otel import otel_option, traces_url
from waza.cli._reporters import model_suffixes, reporter_options, wanted_reports
from waza.cli._screen import show_problems
from waza.cli._working import telling_options, trust_option, with_stdout, working_options
from waza.cli.run import command as run
from waza.cli.run import dry_run, one_model, warnings_of
from waza.errors import UsageError
from waza.suites.load import load_spec
from waza.suites.suite import EvalSpec
from waza.suites.trigger_suite import catalogued, suite_without_tasks
from waza.suites.triggers import FILE, with_time


@click.command(
    epilog="Example:  waza trigger examples/catalogue --catalogue examples/catalogue/skills  ·  waza trigger --trials 5"
)
@click.argument("path", type=click.Path(path_type=Path), default=Path())
@click.option(
    "--catalogue",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Give the agent every skill in DIR, run the trigger tests of all, and show which are taken for which.",
)
@click.option("--engine", help="The engine, instead of the suite's; `waza list engines` names them.")
@click.option("--model", help="The agent's model.")
@click.option("--trials", type=click.IntRange(1), help="How often each prompt is tried.")
@working_options("prompt", "these trigger tests")
@trust_option
@reporter_options
@otel_option
@telling_options("prompt, not only those answered wrongly")
def command(path: Path, **options: Any) -> int:
    """See for which prompts the agent uses a skill: PATH is a folder with trigger_tests.yaml, or an eval file there.

    Every run has controls: a prompt that names the skill outright, and one that has nothing to do with it. Exit code
    0: the gate `metrics: trigger_accuracy` is met, or without one every answer was right; 1: it is not; 2: a file or
    the call is wrong; 3: the run is INVALID, because the control that names the skill did not register, or answers
    are missing that could decide it.
    """
    options = with_stdout(options)
    if options["output"] and options["output"].is_dir():
        raise UsageError(f"{options['output']} is a folder; -o names a file")
    options = _options_of_run() | options | {"models": [options["model"]] if options["model"] else []}
    options["reports"] = wanted_reports(options["reporters"], options["base"], as_json=options["as_json"])
    options["suffixes"] = model_suffixes(options["models"])
    if options["otel"] is not None:
        traces_url(options["otel"])
    spec = _prepared(path, options)
    if not options["quiet"] and not options["as_json"]:
        show_problems(warnings_of(spec, options["engine"], options))
    if options["dry_run"]:
        return dry_run(spec, options["engine"], options)
    return one_model(spec, spec, options["engine"], options["model"], options)[0]


def _options_of_run() -> dict[str, Any]:
    """Return what `waza run` takes when nothing is said; its options mean nothing here, but its machinery is ours."""
    return dict(run.make_context("run", [], resilient_parsing=True).params)


def _prepared(path: Path, options: dict[str, Any]) -> EvalSpec:
    """Return the suite with its trigger tests alone."""
    folder = path.parent if path.name == FILE else path
    how = {"trust": options["trust"], "only_look": options["dry_run"]}
    spec = suite_without_tasks(path, trust=options["trust"]) or load_spec(folder, needs_tasks=False, **how)
    if options["catalogue"]:
        spec = catalogued(spec, options["catalogue"].resolve())
    if spec.triggers is None:
        raise UsageError(f"no {FILE} stands beside {spec.file.name}; --catalogue DIR runs those of many skills")
    if options["timeout"]:
        spec = replace(spec, triggers=with_time(spec.triggers, options["timeout"]))
    spec = spec.with_config(trials_per_task=1) if spec.config.trials_per_task == "auto" else spec
    return replace(spec, tasks=[])
