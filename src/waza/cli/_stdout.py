"""Standard output kept for results: a document asked for there is never mixed with other text. Needs no console."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import TextIO

import click

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
