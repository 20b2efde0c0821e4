"""`waza grade`: verdicts on what is already there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from waza.cli._progress import progress_for
from waza.cli._report import report
from waza.cli._runs import the_run
from waza.cli._screen import console, remark
from waza.errors import UsageError
from waza.spec.load import load_spec
from waza.spec.suite import EvalSpec


@click.command(epilog="Example:  waza grade latest  ·  waza grade traces.jsonl --eval evals/refunds")
@click.argument("sources", nargs=-1, required=True)
@click.option("--eval", "suite", type=click.Path(path_type=Path), help="The suite whose graders are used.")
@click.option("--task", "tasks", multiple=True, help="Only tasks whose id or name fits this glob; may be repeated.")
@click.option("--allow-local-code", is_flag=True, help="Let graders be Python files of this project; they run here.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write results.json here too.")
@click.option("--json", "as_json", is_flag=True, help="Print results.json on standard output.")
@click.option("--interpret", is_flag=True, help="Add two or three sentences on what the numbers mean.")
@click.option("-v", "--verbose", is_flag=True, help="Show every check, not only those that did not hold.")
@click.option("-q", "--quiet", is_flag=True, help="Show the summary only.")
def command(sources: tuple[str, ...], suite: Path | None, tasks: tuple[str, ...], **options: Any) -> int:
    """Grade stored traces or a stored run again; the agent is not called and nothing is paid twice.

    SOURCES are a run (its folder, its id or `latest`), or trace files: a Trace as .json, or one a line as .jsonl.
    The graders are those of --eval, else of the eval file a run was made from, else of eval.yaml in this folder.
    """
    from waza.runner.regrade import from_files, from_run

    files = [Path(source) for source in sources if Path(source).is_file() and Path(source).name != "results.json"]
    if files and len(files) != len(sources):
        raise UsageError("name one run, or trace files; not both")
    if files:
        spec = _selected(load_spec(suite or Path(), allow_local_code=options["allow_local_code"]), tasks)
        return _grade(spec, list(from_files(files, spec)), None, "recorded", "", options)
    if len(sources) > 1:
        raise UsageError("name one run at a time")
    folder = the_run(sources[0])
    stored, spec = _suite_of(folder, suite, options["allow_local_code"])
    known = {task.id for task in spec.tasks}
    if gone := sorted({result.task_id for result in stored.results} - known):
        remark(f"no longer in the suite, not graded: {', '.join(gone)}", "yellow")
    spec = _selected(spec, tasks)
    return _grade(spec, list(from_run(folder, spec)), folder, stored.engine, stored.model, options)


def _selected(spec: EvalSpec, tasks: tuple[str, ...]) -> EvalSpec:
    return spec.select(tasks) if tasks else spec


def _suite_of(folder: Path, suite: Path | None, allow_local_code: bool) -> tuple[Any, EvalSpec]:
    from waza.results.store import read_run
    from waza.runner.regrade import eval_of

    stored = read_run(folder)
    return stored, load_spec(suite or eval_of(stored, folder), allow_local_code=allow_local_code)


def _grade(
    spec: EvalSpec, recorded: list[Any], source: Path | None, engine: str, model: str, options: dict[str, Any]
) -> int:
    """Grade the traces into a run folder of their own and show it; return the exit code."""
    from waza.runner.regrade import graded

    if not recorded:
        raise UsageError("nothing to grade: no stored trial belongs to a task of this suite")
    quiet = options["quiet"] or options["as_json"] or len(recorded) < 50
    with progress_for(len(recorded), 0, console(stderr=True), quiet=quiet) as progress:
        run = graded(
            spec,
            recorded,
            source=source,
            engine=engine,
            model=model,
            on_result=progress.on_result,
            on_remark=progress.on_remark,
        )
    return report(run, options)
