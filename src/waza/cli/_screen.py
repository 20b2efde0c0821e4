"""What commands share: the console, problems on the screen, standard output kept for results, and common options."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click
from rich.console import Console
from rich.text import Text

from waza.errors import Problem
from waza.untrusted.text import visible

PIPE_COLUMNS = 120
"""Line width where there is no terminal."""
_COMMAND = re.compile(r"(?m)^[^\S\n]*::|##\[")
"""How a workflow command begins: `::` in front of a line, or the older `##[` anywhere."""
_STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan", "not checked": "yellow"}


class OutputStream:
    """The stream of results, looked up at each write."""

    def __getattr__(self, attribute: str) -> Any:
        return getattr(output(), attribute)


class JobLog:
    """A stream of a GitHub job that escapes workflow commands: agents' text may look like one."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._stream(), attribute)

    def write(self, text: str) -> int:
        """Write the text with the start of workflow commands spaced out, so that the job does not run them."""
        return self._stream().write(_COMMAND.sub(lambda found: " ".join(found[0]), text))

    def _stream(self) -> TextIO:
        return output() if self._name == "stdout" else sys.stderr


class Screen(Console):
    """A console that survives a closed pipe: the rest is discarded, and the command keeps its exit code."""

    def on_broken_pipe(self) -> None:
        """Discard all further output."""
        self.quiet = True
        drop_output()


@cache
def console(stderr: bool = False) -> Console:
    """Return the console; NO_COLOR and pipes turn colour off, markup is never read."""
    log: Any = None if stderr else OutputStream()
    if os.environ.get("GITHUB_ACTIONS") == "true":
        log = JobLog("stderr" if stderr else "stdout")
    screen = Screen(file=log, stderr=stderr, markup=False, highlight=False, emoji=False)
    if not screen.is_terminal and "COLUMNS" not in os.environ:
        screen.width = PIPE_COLUMNS
    return screen


def say(text: str = "", style: str = "") -> None:
    """Print a line to standard output."""
    console().print(Text(visible(text, lines=True), style=style), soft_wrap=True)


def remark(text: str, style: str = "") -> None:
    """Print a line to standard error, apart from the results."""
    console(stderr=True).print(Text(visible(text, lines=True), style=style), soft_wrap=True)


def show_problems(problems: Iterable[Problem], *, to_stderr: bool = True) -> None:
    """Print problems, a line each."""
    target = console(stderr=to_stderr)
    for problem in problems:
        target.print(Text(visible(str(problem), lines=True), style=_STYLES.get(problem.severity, "")), soft_wrap=True)


_OUTPUT = re.compile(r"-[a-zA-Z]*o|--output")
_GLUED = re.compile(r"-[a-zA-Z]*o-")
"""`-o -` in one word, alone or after other flags."""
_SAVED: list[TextIO] = []
"""The original standard output, if it is kept for the result alone."""


def save_stdout(arguments: Sequence[str]) -> None:
    """Keep standard output for the result if the command line asks for one there: all else goes to standard error.

    File descriptor 1 itself is redirected: neither `print` of an agent or a plug-in nor a program or C library they
    use can reach the result. Children do not inherit the saved descriptor.
    """
    if _SAVED or sys.stdout is None or not _wants_result(arguments):
        return
    try:
        sys.stdout.flush()
        saved = os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding, errors="backslashreplace")
    except OSError:
        return  # it is closed: nothing can reach it
    try:
        os.dup2(2, 1)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    _SAVED.append(saved)


def _wants_result(arguments: Sequence[str]) -> bool:
    """Return whether a command line asks for a document on standard output."""
    if not {"-h", "--help"}.isdisjoint(arguments):
        return False
    if "--json" in arguments or arguments[:1] == ["import"]:
        return True
    words = [*arguments, ""]
    pairs = [(word, words[place + 1]) for place, word in enumerate(arguments)]
    named = [word.partition("=")[::2] if "=" in word else (word, after) for word, after in pairs]
    return any(
        _GLUED.fullmatch(name)
        or (value == "-" and _OUTPUT.fullmatch(name))
        or (name == "--reporter" and value.endswith(":-"))
        for name, value in named
    )


def output() -> TextIO:
    """Return where results are written."""
    return _SAVED[0] if _SAVED else sys.stdout


def emit(piece: str | bytes, *, nl: bool = True) -> None:
    """Write a piece of the result; where its reader went away the rest is dropped, and the command keeps its code."""
    try:
        click.echo(piece, nl=nl, file=output())
    except BrokenPipeError:
        drop_output()


def drop_output() -> None:
    """Discard all further output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), output().fileno())


Command = TypeVar("Command", bound=Callable[..., Any])


trust_option = click.option(
    "--trust",
    "--allow-local-code",
    "trust",
    is_flag=True,
    help="Trust this project for this call: its Python is imported; `waza trust` remembers it.",
)
"""Trust that ends with the call; `--allow-local-code` is its earlier name."""


def execution_options(unit: str, of: str) -> Callable[[Command], Command]:
    """Add the options of a command that runs agents: `unit` is what it runs, `of` what a stored run belongs to."""
    return _all(
        click.option("--workers", type=click.IntRange(1), help="How many trials run at once."),
        click.option(
            "--timeout",
            type=click.FloatRange(0, min_open=True),
            help=f"Seconds per {unit}, instead of the suite's.",
        ),
        click.option(
            "--resume",
            is_flag=False,
            flag_value="newest",
            metavar="[RUN]",
            help=f"Continue a stored run: the newest of {of}, or RUN.",
        ),
        click.option("--rerun-changed", is_flag=True, help=f"With --resume: rerun {unit}s that changed."),
        click.option("--rerun-errors", is_flag=True, help="With --resume: rerun trials whose agent could not run."),
        click.option(
            "--max-cost",
            type=click.FloatRange(0, min_open=True),
            help="Start no more trials once this many dollars are spent; refused if the agent never reports its cost.",
        ),
        click.option("--dry-run", is_flag=True, help="Check everything and print what would run."),
        click.option("--keep-workspace", is_flag=True, help="Keep the agents' workspaces and print where they are."),
    )


def output_options(detail: str = "check, not only failed ones", *, several: str = "") -> Callable[[Command], Command]:
    """Add the options of a command that shows a run; `detail` is what `--verbose` adds, `several` a note on --json."""
    return _all(
        click.option(
            "-o",
            "--output",
            type=click.Path(path_type=Path),
            help="Write results.json here too; `-` is the same as --json.",
        ),
        click.option("--json", "as_json", is_flag=True, help=f"Print results.json on standard output{several}."),
        click.option("-v", "--verbose", is_flag=True, help=f"Show every {detail}."),
        click.option("-q", "--quiet", is_flag=True, help="Show the summary only."),
    )


def _all(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add
