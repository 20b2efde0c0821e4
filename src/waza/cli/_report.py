"""A finished run on the screen and in the files the caller asked for."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from waza.cli._reporters import Reports, on_one_line, with_suffix, write_reports
from waza.cli._screen import console, say
from waza.cli._stdout import emit
from waza.errors import EXIT_PASSED, EXIT_UNDECIDED, StoreError, UsageError
from waza.model import Run
from waza.results.disk import write_atomically
from waza.results.results_json import results_json
from waza.results.summary import summarize
from waza.spec.project import shown


def report(run: Run, options: dict[str, Any], *, suffix: str = "") -> int:
    """Show a run as `--json`, `-v`, `-q` and `--interpret` say, write its reports and `-o`, and return its exit code.

    A report that cannot be written is told; a run that passed then ends as one that is not all right.
    """
    reports: Reports = options["reports"]
    code = summarize(run).exit_code
    written = write_reports(run, reports, suffix=suffix)
    if not written.is_whole and code == EXIT_PASSED:
        code = EXIT_UNDECIDED
    if options["output"]:
        _write(run, with_suffix(options["output"], suffix))
    if options["as_json"]:
        pieces = results_json(run)
        for piece in on_one_line(pieces) if suffix else pieces:
            emit(piece, nl=False)
    elif not reports.take_stdout:
        _show(run, options)
        if not options["quiet"]:
            written.tell()
    return code


def _show(run: Run, options: dict[str, Any]) -> None:
    """Print the run for a person."""
    from waza.reports.table import TableReport  # rich's tables are not needed for --json

    TableReport(verbose=options["verbose"], quiet=options["quiet"]).print(run, console())
    if options["interpret"]:
        from waza.reports._interpret import interpret

        say("\n" + interpret(run))
    if not options["quiet"]:
        folder = Path(run.folder).resolve()
        name = run.id if folder.is_relative_to(Path.cwd()) else shown(folder)
        say(f"\nresults: {shown(folder / 'results.json')}   ({shlex.join(['waza', 'show', name])})", "dim")


def _write(run: Run, path: Path) -> None:
    """Write results.json where the caller asked for it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, results_json(run), mode=0o644)
    except (OSError, StoreError) as error:
        raise UsageError(f"{path} cannot be written ({error}); the results are safe in {run.folder}") from None
