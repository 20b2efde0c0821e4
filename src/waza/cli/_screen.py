"""What every command shares: the console, problems on the screen, finding what a word means."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from waza.cli._stdout import drop_output, output
from waza.errors import Problem
from waza.reports._text import visible

PIPE_COLUMNS = 120
"""How wide lines are where no terminal says it."""
_COMMAND = re.compile(r"(?m)^[^\S\n]*::|##\[")
"""How a workflow command begins: `::` in front of a line, or the older `##[` anywhere."""
_STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan", "not checked": "yellow"}


class Output:
    """The stream of results, whatever that is when something is written."""

    def __getattr__(self, attribute: str) -> Any:
        return getattr(output(), attribute)


class JobLog:
    """A stream of a GitHub job, in which nothing we print is a workflow command: agents' text may look like one."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._stream(), attribute)

    def write(self, text: str) -> int:
        """Write the text with what a job would obey drawn apart."""
        return self._stream().write(_COMMAND.sub(lambda found: " ".join(found[0]), text))

    def _stream(self) -> TextIO:
        return output() if self._name == "stdout" else sys.stderr


class Screen(Console):
    """A console whose reader may go away: the rest is dropped, and the command keeps its exit code."""

    def on_broken_pipe(self) -> None:
        """Drop what is still to be printed."""
        self.quiet = True
        drop_output()


@cache
def console(stderr: bool = False) -> Console:
    """Return the console; NO_COLOR and pipes turn colour off, markup is never read."""
    log: Any = None if stderr else Output()
    if os.environ.get("GITHUB_ACTIONS") == "true":
        log = JobLog("stderr" if stderr else "stdout")
    screen = Screen(file=log, stderr=stderr, markup=False, highlight=False, emoji=False)
    if not screen.is_terminal and "COLUMNS" not in os.environ:
        screen.width = PIPE_COLUMNS
    return screen


def say(text: str = "", style: str = "") -> None:
    """Print a line of ours to standard output."""
    console().print(Text(visible(text, lines=True), style=style), soft_wrap=True)


def remark(text: str, style: str = "") -> None:
    """Print a line of ours to standard error, beside the results."""
    console(stderr=True).print(Text(visible(text, lines=True), style=style), soft_wrap=True)


def show_problems(problems: Iterable[Problem], *, to_stderr: bool = True) -> None:
    """Print problems, a line each."""
    target = console(stderr=to_stderr)
    for problem in problems:
        target.print(Text(visible(str(problem), lines=True), style=_STYLES.get(problem.severity, "")), soft_wrap=True)
