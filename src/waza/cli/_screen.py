"""What every command shares: the console, problems on the screen, and keeping standard output for results."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, TextIO

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
