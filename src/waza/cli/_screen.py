"""What commands share: the console, problems on the screen, and common options."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click
from rich.console import Console
from rich.text import Text

from waza.cli._stdout import drop_output, output
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
