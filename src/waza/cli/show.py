"""`waza show`: a stored run, one of its tasks, one trial."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.text import Text

from waza.cli._reporters import reporter_options, wanted_reports, write_reports
from waza.cli._runs import the_run
from waza.cli._screen import console, remark, say
from waza.cli._stdout import emit
from waza.errors import EXIT_PASSED, EXIT_UNDECIDED, UsageError, did_you_mean
from waza.files.snapshot import EMPTY, read_manifest, restore
from waza.model import Result, Run
from waza.reports.interpretation import times_of
from waza.reports.table import TableReport, result_lines
from waza.runs.outcomes import mock_calls, outcome_of, outcomes_of
from waza.runs.store import open_run, open_run_and_warnings
from waza.untrusted.text import clipped, seconds, visible

LONG = 2_000
MOST_FILES = 50


@click.command(
    epilog="Example:  waza show  ·  waza show latest --task refund  ·  waza show latest --task refund --trial 2"
)
@click.argument("run", default="latest")
@click.option("--task", help="One task: its prompt, output, grades and tool calls.")
@click.option("--trial", type=click.IntRange(1), help="One trial of that task, with the whole transcript.")
@click.option(
    "--files", type=click.Path(path_type=Path), help="Copy the files that the trial left into this new folder."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: results.json, or the trial as it is stored.")
@reporter_options
@click.option("-v", "--verbose", is_flag=True, help="Show every check and whole texts.")
def command(
    run: str,
    task: str | None,
    trial: int | None,
    files: Path | None,
    as_json: bool,
    reporters: tuple[str, ...],
    base: str | None,
    verbose: bool,
) -> int:
    """Show a stored run: RUN is its folder, its id or the start of it, or `latest` (default).

    With --reporter its reports are written instead, as at the end of a run.
    """
    reports = wanted_reports(reporters, base)
    folder = the_run(run)
    if reports.wanted:
        if task or as_json or files:
            raise UsageError("--reporter is for a whole run; it cannot be combined with --task, --files or --json")
        written = write_reports(open_run(folder), reports)
        if not reports.take_stdout:
            written.print_paths()
        return EXIT_PASSED if written.is_whole else EXIT_UNDECIDED
    stored, warnings = open_run_and_warnings(folder)
    is_table = task is None and not as_json and files is None
    for warning in warnings:
        if not is_table or warning != stored.integrity:  # the table has it among the suite's warnings
            remark(warning, "yellow")
    if trial and not task:
        raise UsageError("--trial needs --task")
    results = _chosen(stored, task, trial) if task else stored.results
    if files is not None:
        return _copy_files(folder, results, files)
    if as_json:
        _print_json(stored, results if task else None)
    elif task is None:
        TableReport(verbose=verbose).print(stored, console())
        say(f"\nresults: {folder / 'results.json'}", "dim")
    else:
        for result in results:
            _show_trial(stored, result, verbose=verbose, transcript=trial is not None)
    return 0


def _copy_files(folder: Path, results: Sequence[Result], target: Path) -> int:
    """Copy the files of one trial into a new folder."""
    if len(results) != 1:
        raise UsageError("--files needs one trial: add --task and --trial")
    if target.exists():
        raise UsageError(f"{target} already exists; name a new folder")
    restore(folder / "artifacts", results[0].snapshot or EMPTY, target)
    say(f"copied the files of {results[0].task_id}, trial {results[0].trial}, to {target}")
    return 0


def _chosen(run: Run, task: str, trial: int | None) -> list[Result]:
    known: dict[str, None] = {}
    found: list[Result] = []
    for results in (run.results, run.triggers):
        for place, outcome in enumerate(outcomes_of(results)):
            known.setdefault(outcome.task_id)
            if outcome.task_id == task and trial in (None, outcome.trial):
                found.append(results[place])
    if task not in known:
        raise UsageError(f"run {run.id} has no task '{task}'; {did_you_mean(task, list(known))}")
    if not found:
        raise UsageError(f"task '{task}' has no trial {trial}")
    return found


def _print_json(run: Run, results: Sequence[Result] | None) -> None:
    if results is None:
        from waza.runs.results_json import results_json  # only --json needs it

        for piece in results_json(run):
            emit(piece, nl=False)
        emit("")
        return
    from waza.untrusted.json import to_json  # only --json needs it

    for result in results:
        emit(json.dumps(to_json(result), ensure_ascii=False))


def _show_trial(run: Run, result: Result, *, verbose: bool, transcript: bool) -> None:
    """Print one trial: prompts, answers, grades, tool calls."""
    screen = console()
    trace = result.trace
    say(f"{result.task_id} · trial {result.trial} · {result.status} · {times_of(outcome_of(result))}", "bold")
    width = 10**9 if verbose else LONG
    talk = [words for turn in trace.turns or [trace] for words in (("asked", turn.input), ("answered", turn.output))]
    for label, text in (*talk, ("error", trace.error or "")):
        if text:
            say(label, "dim")
            screen.print(Text(visible(clipped(text, width), lines=True)))
    say("grades", "dim")
    for line in result_lines(result, screen, verbose=True):
        screen.print(line)
    if trace.tool_events is None:
        say("tool calls were not recorded", "dim")
    elif trace.tool_events:
        say("tool calls", "dim")
        for number, event in enumerate(trace.tool_events, 1):
            took = f"  {seconds(event.duration_ms)}" if event.duration_ms is not None else ""
            mark = "" if event.success else "  failed"
            args = json.dumps(event.args, ensure_ascii=False, default=str)
            say(f"  {number}. {event.tool_name} {clipped(visible(args), 300)}{took}{mark}")
    if calls := mock_calls(trace):
        say("calls of mocks", "dim")
        for call in calls:
            say("  " + clipped(visible(json.dumps(call, ensure_ascii=False, default=str)), 300))
    if transcript and trace.events:
        say("transcript", "dim")
        for entry in trace.events:
            say("  " + clipped(visible(json.dumps(entry, ensure_ascii=False, default=str)), width))
    if result.snapshot:
        _show_files(Path(run.folder) / "artifacts", result.snapshot)
    say()


def _show_files(artifacts: Path, snapshot: str) -> None:
    """Print the files a trial left, and which could not be read."""
    try:
        manifest = read_manifest(artifacts, snapshot)
    except OSError as error:
        say(f"the files it left cannot be read: {error.strerror or error}", "yellow")
        return
    shown = [(item.path, item.left_out) for item in manifest.items if item.kind != "folder" or item.left_out]
    if shown or manifest.left_out:
        say("files", "dim")
    for path, why in shown[:MOST_FILES]:
        say(f"  {visible(path)}" + (f"  (not readable: {why})" if why else ""))
    if len(shown) > MOST_FILES:
        say(f"  … and {len(shown) - MOST_FILES} more")
    if manifest.left_out:
        say(f"  (not all of it: {manifest.left_out})")
