"""`waza import`: recordings of any agent, as traces."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import click
from msgspec.structs import replace

from waza.cli._screen import remark
from waza.cli._stdout import output as result_stream
from waza.errors import EXIT_PASSED, EXIT_USAGE, TraceError, UsageError
from waza.model import Trace
from waza.untrusted.text import plural

STANDARD_INPUT = "-"


@click.command(epilog="Example:  waza import run.jsonl -o traces.jsonl  ·  codex exec --json … | waza import -")
@click.argument("files", nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the traces here, not to standard output.")
@click.option("--task", help="The task these traces are of: written into each as `task_id`.")
@click.option("-q", "--quiet", is_flag=True, help="Say only what is wrong.")
def command(files: tuple[str, ...], output: Path | None, task: str | None, quiet: bool) -> int:
    """Turn recordings of agents into traces, one a line, for `waza grade` and the `replay` engine.

    FILES are recordings, folders of them, or `-` for standard input. The format is recognised by content: streams and
    session logs of Claude Code, Codex, Copilot, Gemini, Qwen, OpenCode and pi; messages of agent frameworks;
    OpenTelemetry spans; ATIF; Inspect logs; results.json. What is missing in a recording is reported, and is in the
    trace's `reading_notes`.
    """
    files = tuple(_all(files))
    if output and any(Path(file).resolve() == output.resolve() for file in files if file != STANDARD_INPUT):
        raise UsageError(f"{output}: a file cannot be read and written at once")
    failed = 0
    with _written(output) as target:
        for file in files:
            failed += not _import(file, target, task, quiet)
    return EXIT_USAGE if failed else EXIT_PASSED


def _all(files: tuple[str, ...]) -> list[str]:
    """Return the files, those in folders too."""
    found: list[str] = []
    for file in files:
        if not Path(file).is_dir():
            found.append(file)
            continue
        from waza.runner.regrade import recordings_in  # most calls name files, and need no runner

        inside = recordings_in(Path(file))
        if not inside:
            raise UsageError(f"{file} holds no recordings: no .json, .jsonl, .ndjson or .eval file")
        found += map(str, inside)
    return found


@contextmanager
def _written(output: Path | None) -> Iterator[IO[bytes]]:
    if output is None or output == Path("-"):
        yield result_stream().buffer
        return
    try:
        file = output.open("wb")
    except OSError as error:
        raise UsageError(f"{output}: cannot be written: {error.strerror}") from None
    with file:
        yield file


def _import(file: str, target: IO[bytes], task: str | None, quiet: bool) -> bool:
    """Write the traces of one file and say what they are; return whether all could be read."""
    from waza.traces.reading import read_found  # readers are many; `--help` needs none

    formats: dict[str, int] = {}
    calls = 0
    try:
        for found in read_found(sys.stdin.buffer if file == STANDARD_INPUT else file):
            target.write(_named(found.trace, task).to_json().encode() + b"\n")
            formats[found.format] = formats.get(found.format, 0) + 1
            calls += len(found.trace.tool_events or [])
            for note in found.notes:
                remark(f"{file}: {note}", "yellow")
    except TraceError as error:
        remark(str(error), "bold red")
    else:
        if not quiet:
            kinds = ", ".join(f"{kind} ({plural(count, 'trace')})" for kind, count in formats.items())
            remark(f"{file}: {kinds}, {plural(calls, 'tool call')}")
        return True
    return False


def _named(trace: Trace, task: str | None) -> Trace:
    return trace if task is None else replace(trace, extra=trace.extra | {"task_id": task})
