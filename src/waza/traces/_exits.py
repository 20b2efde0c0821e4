"""The exit code of a shell command where a program tells it only in the text of the result."""

from __future__ import annotations

import re

from waza.model import JSON
from waza.traces._aliases import means_shell

_HEAD_CHARS = 4_000
_TAIL_CHARS = 200
_HEAD = re.compile(
    r"\A(?:Exit code:? (-?\d{1,9})\b"
    r"|<returncode>(-?\d{1,9})</returncode>"
    r"|Command: [\s\S]*?\nExit Code: (-?\d{1,9})\n"
    r"|[\s\S]{0,300}?\bProcess exited with code (-?\d{1,9})\b)"
)
_TAIL = re.compile(
    r"(?:\[exit(?: code)?:? (-?\d{1,9})\]|Command exited with code (-?\d{1,9})|exit code (-?\d{1,9})[>.]\]?)\s*\Z"
)


def exit_code_in(result: JSON, tool: str) -> int | None:
    """Return the exit code that the result of a shell tool tells in its text, or None."""
    if not isinstance(result, str) or not means_shell(tool):
        return None
    match = _TAIL.search(result[-_TAIL_CHARS:]) or _HEAD.match(result[:_HEAD_CHARS])
    return next((int(group) for group in match.groups() if group is not None), None) if match else None
