"""What every command shares: the console, problems on the screen, finding what a word means."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache

from rich.console import Console
from rich.text import Text

from waza.errors import Problem
from waza.reports._text import visible

_STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}


@cache
def console(stderr: bool = False) -> Console:
    """Return the console; NO_COLOR and pipes turn colour off, markup is never read."""
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=True)


def say(text: str = "", style: str = "") -> None:
    """Print a line of ours to standard output."""
    console().print(Text(visible(text, lines=True), style=style))


def remark(text: str, style: str = "") -> None:
    """Print a line of ours to standard error, beside the results."""
    console(stderr=True).print(Text(visible(text, lines=True), style=style))


def show_problems(problems: Iterable[Problem], *, to_stderr: bool = True) -> None:
    """Print problems, a line each."""
    target = console(stderr=to_stderr)
    for problem in problems:
        target.print(Text(visible(str(problem), lines=True), style=_STYLES.get(problem.severity, "")))


def is_interactive() -> bool:
    """Say whether a person is looking at standard error."""
    return sys.stderr.isatty()
