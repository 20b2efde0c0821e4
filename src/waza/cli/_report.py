"""A finished run on the screen and in the file the caller asked for."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from waza.cli._screen import console, say
from waza.errors import StoreError, UsageError
from waza.model import Run
from waza.reports.json import JsonReport
from waza.results.disk import write_atomically
from waza.results.summary import summarize
from waza.spec.project import shown


def report(run: Run, options: dict[str, Any], *, suffix: str = "") -> int:
    """Show a run as `--json`, `-v`, `-q` and `--interpret` say, write `-o`, and return its exit code."""
    if options["output"]:
        _write(run, options["output"], suffix)
    if options["as_json"]:
        click.echo(JsonReport().text(run))
        return summarize(run).exit_code
    from waza.reports.table import TableReport

    TableReport(verbose=options["verbose"], quiet=options["quiet"]).print(run, console())
    if options["interpret"]:
        from waza.reports.interpret import interpret

        say("\n" + interpret(run))
    if not options["quiet"]:
        folder = Path(run.folder).resolve()
        name = run.id if folder.is_relative_to(Path.cwd()) else shown(folder)
        say(f"\nresults: {shown(folder / 'results.json')}   ({shlex.join(['waza', 'show', name])})", "dim")
    return summarize(run).exit_code


def _write(run: Run, path: Path, suffix: str) -> None:
    """Write results.json where the caller asked for it; `suffix` keeps the files of several models apart."""
    safe = "".join(letter if letter.isalnum() or letter in "-._" else "-" for letter in suffix)
    path = path.with_name(f"{path.stem}_{safe}{path.suffix}") if safe else path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, JsonReport().text(run), mode=0o644)
    except (OSError, StoreError) as error:
        raise UsageError(f"{path} cannot be written ({error}); the results are safe in {run.folder}") from None
