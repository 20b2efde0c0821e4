"""`waza trigger`: run the prompts of trigger_tests.yaml alone, or those of a whole catalogue of skills."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from waza.cli._reporters import otel_option, reporter_options
from waza.cli._run_options import RunOptions
from waza.cli._screen import execution_options, output_options, show_problems, trust_option
from waza.cli.run import dry_run, run_model, warnings_of
from waza.errors import UsageError
from waza.suites.load import catalogued, load_spec, suite_without_tasks
from waza.suites.suite import EvalSpec
from waza.suites.triggers import FILE, with_time


@click.command(
    epilog="Example:  waza trigger examples/catalogue --catalogue examples/catalogue/skills  ·  waza trigger --trials 5"
)
@click.argument("path", type=click.Path(path_type=Path), default=Path())
@click.option(
    "--catalogue",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Give the agent every skill in DIR, run the trigger tests of all, and show which are confused with which.",
)
@click.option("--engine", help="The engine, instead of the suite's; `waza list engines` names them.")
@click.option("--model", help="The agent's model.")
@click.option("--trials", type=click.IntRange(1), help="Trials per prompt.")
@execution_options("prompt", "these trigger tests")
@trust_option
@reporter_options
@otel_option
@output_options("prompt, not only those answered wrongly")
def command(path: Path, **values: Any) -> int:
    """See for which prompts the agent uses a skill: PATH is a folder with trigger_tests.yaml, or an eval file there.

    Every run has controls: a prompt that names the skill outright, and one that has nothing to do with it. Exit code
    0: the gate `metrics: trigger_accuracy` is met, or without one every answer was right; 1: it is not; 2: a file or
    the call is wrong; 3: the run is INVALID, because the control that names the skill did not register, or answers
    are missing that could decide it.
    """
    model = values.pop("model")
    models = (model,) if model else ()
    options = RunOptions.from_click(models=models, **values)
    spec = _load(path, options)
    if not options.hides_progress:
        show_problems(warnings_of(spec, options.engine, options))
    if options.dry_run:
        return dry_run(spec, options.engine, options)
    return run_model(spec, spec, options.engine, model, options)[0]


def _load(path: Path, options: RunOptions) -> EvalSpec:
    """Return the suite with its trigger tests alone."""
    folder = path.parent if path.name == FILE else path
    spec = suite_without_tasks(path, trust=options.trust) or load_spec(
        folder, needs_tasks=False, trust=options.trust, only_look=options.dry_run
    )
    if options.catalogue:
        spec = catalogued(spec, options.catalogue.resolve())
    if spec.triggers is None:
        raise UsageError(f"no {FILE} next to {spec.file.name}; --catalogue DIR runs those of many skills")
    if options.timeout:
        spec = replace(spec, triggers=with_time(spec.triggers, options.timeout))
    spec = spec.with_config(trials_per_task=1) if spec.config.trials_per_task == "auto" else spec
    return replace(spec, tasks=[])
