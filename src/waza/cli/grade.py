"""`waza grade`: grade stored traces, or a stored run again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from sys import intern
from typing import Any

import click
from msgspec.structs import replace

from waza.cli._progress import Progress, progress_for
from waza.cli._reporters import (
    Listener,
    OutputOptions,
    both,
    checked_store,
    otel_option,
    report,
    reporter_options,
    sent,
    telemetry,
)
from waza.cli._runs import own_run, run_for, the_run
from waza.cli._screen import console, output_options, remark, trust_option
from waza.errors import EXIT_USAGE, UsageError
from waza.model import Run
from waza.runner.regrade import (
    GradedSource,
    Judging,
    Reading,
    ask_missing,
    baselines_from,
    eval_of,
    from_files,
    from_run,
    graded,
    recordings_in,
    source_of,
)
from waza.runner.request import judge_for, runs_folder
from waza.runs.outcomes import outcomes_of
from waza.runs.store import RUN, open_run
from waza.suites.load import load_spec, suite_in
from waza.suites.suite import EvalSpec

MOST_ERRORS = 10
"""Recordings that could not be graded are reported one by one up to this number; the rest is counted."""


@dataclass(frozen=True, kw_only=True)
class GradeOptions(OutputOptions):
    """Whom graders ask, what they compare with, and how the run is shown."""

    judge_model: str | None = None
    no_judge_cache: bool = False
    against: str | None = None
    resume: bool = False
    trust: bool = False


@click.command(epilog="Example:  waza grade latest  ·  waza grade traces.jsonl --graders evals/refunds")
@click.argument("sources", nargs=-1, required=True)
@click.option(
    "--graders",
    "--eval",
    "suite",
    type=click.Path(path_type=Path),
    help="The suite whose graders are used: an eval file, or a folder with eval.yaml.",
)
@click.option("--task", "tasks", multiple=True, help="Only tasks whose id or name matches this glob; may be repeated.")
@click.option("--judge-model", help="The judge's model, where a grader names none.")
@click.option("--no-judge-cache", is_flag=True, help="Do not use cached verdicts of the judge.")
@click.option("--against", metavar="RUN", help="A stored run whose outputs `pairwise` graders compare with.")
@click.option("--resume", is_flag=True, help="Ask only for the verdicts the run lacks, and add them to it.")
@trust_option
@reporter_options
@otel_option
@output_options()
@click.option("--interpret", is_flag=True, help="Add two or three sentences on what the numbers mean.")
def command(sources: tuple[str, ...], suite: Path | None, tasks: tuple[str, ...], **values: Any) -> int:
    """Grade stored traces or a stored run again; the agent is not called and nothing is paid twice.

    SOURCES are a run (its folder, its id or `latest`), or recordings of any agent: files, folders, `-` for standard
    input; `waza import --help` names the formats. The graders are those of --graders, else of the eval file a run was
    made from, else of eval.yaml in this folder. Recordings may be any number: they are graded one at a time.
    """
    options = GradeOptions.from_click(**values)
    if options.resume and options.against:
        raise UsageError("--resume adds verdicts to a run as it is; --against grades it anew")
    if recordings := _recordings(sources):
        if options.resume:
            raise UsageError("--resume goes with a run, not with recordings")
        if suite is None and suite_in(Path()) is None:
            raise UsageError("which graders? name a suite with --graders; `waza init` starts one")
        spec = _selected(load_spec(suite or Path(), trust=options.trust), tasks)
        return _grade_recordings(spec, recordings, options)
    if len(sources) > 1:
        raise UsageError("name one run at a time")
    find = own_run if options.resume else the_run
    return _grade_run(find(sources[0]), suite, tasks, options)


def _recordings(sources: tuple[str, ...]) -> list[Any]:
    """Return the recordings among the sources; none if a run is named."""
    found: list[Any] = []
    for source in sources:
        path = Path(source)
        if source == "-":
            found.append(sys.stdin.buffer)
        elif path.is_dir() and not (path / RUN).is_file():
            inside = recordings_in(path)
            if not inside:
                raise UsageError(f"{path} holds no recordings: no .json, .jsonl, .ndjson or .eval file")
            found += inside
        elif path.is_file() and not (path.parent / RUN).is_file():
            found.append(path)
        elif found:
            raise UsageError(f"'{source}' is no recording; name one run, or recordings, not both")
    return found


def _selected(spec: EvalSpec, tasks: tuple[str, ...]) -> EvalSpec:
    return spec.select(tasks) if tasks else spec


class GradingErrors:
    """Recordings that could not be graded: the first ones, and how many there are."""

    def __init__(self) -> None:
        self.first: list[str] = []
        self.count = 0

    def add(self, text: str) -> None:
        """Add one."""
        self.count += 1
        if len(self.first) < MOST_ERRORS:
            self.first.append(text)

    def print(self) -> None:
        """Print them."""
        for text in self.first:
            remark(text, "bold red")
        if more := self.count - len(self.first):
            remark(f"and {more} more that could not be graded", "bold red")


def _grade_recordings(spec: EvalSpec, recordings: list[Any], options: GradeOptions) -> int:
    """Grade recordings; those that cannot be graded are reported at the end, and the exit code is 2."""
    errors, store = GradingErrors(), checked_store(spec.project.paths.results)
    total = sum(source.stat().st_size for source in recordings if isinstance(source, Path))
    with telemetry(options.otel, suite=spec.name, engine="recorded") as send_spans, _progress(0, options) as progress:

        def on_bytes(count: int) -> None:
            progress.tally.share = min(1.0, count / total) if total else None

        read = from_files(recordings, spec, Reading(progress.on_remark, errors.add, on_bytes))
        run = _graded(spec, read, GradedSource(), _judging(spec, options), progress, send_spans)
    code = sent(run, store, report(run, options), quiet=not options.prints_summary) if run else EXIT_USAGE
    _report_missing_tasks(spec, run)
    errors.print()
    return EXIT_USAGE if errors.count else code


def _report_missing_tasks(spec: EvalSpec, run: Run | None) -> None:
    """Print which tasks have no recording: they count as not run."""
    graded_tasks = {outcome.task_id for outcome in outcomes_of(run.results)} if run else set()
    missing = [task.id for task in spec.tasks if task.id not in graded_tasks] if run else []
    if missing:
        more = f" and {len(missing) - 10} more" if len(missing) > 10 else ""
        remark(f"not run, no recording: {', '.join(missing[:10])}{more} (--task chooses tasks)", "yellow")


def _grade_run(folder: Path, suite: Path | None, tasks: tuple[str, ...], options: GradeOptions) -> int:
    """Grade the trials of a stored run again."""
    stored = open_run(folder)
    spec = load_spec(suite or eval_of(stored, folder), trust=options.trust)
    known = {intern(task.id) for task in spec.tasks}
    if gone := sorted({intern(outcome.task_id) for outcome in outcomes_of(stored.results)} - known):
        remark(f"no longer in the suite, not graded: {', '.join(gone)}", "yellow")
    spec = _selected(spec, tasks)
    judging, store = _judging(spec, options), checked_store(spec.project.paths.results)
    source, total = source_of(stored), len(stored.results)
    # Large: only the results are kept, and only until they are read.
    read = from_run(replace(stored, spec={}), spec)
    del known, stored
    with (
        telemetry(options.otel, suite=spec.name, engine=source.engine, model=source.model) as send_spans,
        _progress(total, options) as progress,
    ):
        if options.resume:
            run: Run | None = _add_missing_verdicts(spec, folder, judging, progress, send_spans)
        else:
            run = _graded(spec, read, source, judging, progress, send_spans)
    if run is None:
        raise UsageError("nothing to grade: no stored trial belongs to a task of this suite")
    return sent(run, store, report(run, options), quiet=not options.prints_summary)


def _judging(spec: EvalSpec, options: GradeOptions) -> Judging:
    """Return the judge that graders ask and the outputs they compare with."""
    judge = judge_for(spec, options.judge_model, cache=not options.no_judge_cache)
    against = options.against
    return Judging(judge, baselines_from(run_for(against, runs_folder(spec))) if against else {})


def _add_missing_verdicts(
    spec: EvalSpec, folder: Path, judging: Judging, progress: Progress, send_spans: Listener
) -> Run:
    """Ask for the verdicts a run lacks and return it with them."""
    on_result = both(progress.on_result, send_spans)
    return ask_missing(spec, folder, judging.judge, on_result=on_result, on_remark=progress.on_remark)


def _progress(total: int, options: GradeOptions) -> Progress:
    return progress_for(total, 0, console(stderr=True), quiet=options.hides_progress)


def _graded(
    spec: EvalSpec,
    recorded: Iterator[Any],
    source: GradedSource,
    judging: Judging,
    progress: Progress,
    send_spans: Listener,
) -> Run | None:
    """Grade traces into a run folder of their own, one at a time; return it, or None where there is no trace."""
    if (first := next(recorded, None)) is None:
        return None
    return graded(
        spec,
        chain([first], recorded),
        source,
        judging=judging,
        on_result=both(progress.on_result, send_spans),
        on_remark=progress.on_remark,
    )
