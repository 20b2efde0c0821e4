"""`waza grade`: verdicts on what is already there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import click

from waza.cli._progress import progress_for
from waza.cli._report import report
from waza.cli._runs import the_run
from waza.cli._screen import console, remark
from waza.errors import UsageError
from waza.results.store import RUN
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

    SOURCES are a run (its folder, its id or `latest`), or recordings of any agent: files, folders, `-` for standard
    input; `waza import --help` names the formats. The graders are those of --eval, else of the eval file a run was
    made from, else of eval.yaml in this folder.
    """
    from waza.runner.regrade import from_files, from_run

    recordings = _recordings(sources)
    if recordings:
        spec = _selected(load_spec(suite or Path(), allow_local_code=options["allow_local_code"]), tasks)
        read = from_files(recordings, spec, lambda text: remark(text, "yellow"))
        return _grade(spec, read, None, "recorded", "", options)
    if len(sources) > 1:
        raise UsageError("name one run at a time")
    folder = the_run(sources[0])
    stored, spec = _suite_of(folder, suite, options["allow_local_code"])
    known = {task.id for task in spec.tasks}
    if gone := sorted({result.task_id for result in stored.results} - known):
        remark(f"no longer in the suite, not graded: {', '.join(gone)}", "yellow")
    spec = _selected(spec, tasks)
    return _grade(spec, from_run(folder, spec), folder, stored.engine, stored.model, options, len(stored.results))


def _recordings(sources: tuple[str, ...]) -> list[Any]:
    """Return the recordings that are meant; none when a run is."""
    from waza.runner.regrade import recordings_in

    found: list[Any] = []
    for source in sources:
        path = Path(source)
        if source == "-":
            found.append(sys.stdin.buffer)
        elif path.is_dir() and not (path / RUN).is_file():
            found += recordings_in(path)
        elif path.is_file() and not (path.parent / RUN).is_file():
            found.append(path)
        elif found:
            raise UsageError(f"'{source}' is no recording; name one run, or recordings, not both")
    return found


def _selected(spec: EvalSpec, tasks: tuple[str, ...]) -> EvalSpec:
    return spec.select(tasks) if tasks else spec


def _suite_of(folder: Path, suite: Path | None, allow_local_code: bool) -> tuple[Any, EvalSpec]:
    from waza.results.store import read_run
    from waza.runner.regrade import eval_of

    stored = read_run(folder)
    return stored, load_spec(suite or eval_of(stored, folder), allow_local_code=allow_local_code)


def _grade(
    spec: EvalSpec,
    recorded: Iterator[Any],
    source: Path | None,
    engine: str,
    model: str,
    options: dict[str, Any],
    total: int = 0,
) -> int:
    """Grade the traces into a run folder of their own, one at a time, and show it; return the exit code."""
    from waza.runner.regrade import graded

    if (first := next(recorded, None)) is None:
        raise UsageError("nothing to grade: no stored trial belongs to a task of this suite")
    with progress_for(total, 0, console(stderr=True), quiet=options["quiet"] or options["as_json"]) as progress:
        run = graded(
            spec,
            chain([first], recorded),
            source=source,
            engine=engine,
            model=model,
            on_result=progress.on_result,
            on_remark=progress.on_remark,
        )
    return report(run, options)
