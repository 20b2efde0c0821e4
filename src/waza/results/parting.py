"""Where two trajectories part: the first tool call in which two trials of one task differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal

from msgspec import Struct, field

from waza.model import JSON, ToolEvent

MOST_CALLS = 1_000
"""Calls that are aligned after the first difference; what lies behind changes nothing about it."""
MOST_DIFFERENCES = 10


Kind = Literal["same", "arguments", "other call", "left out", "added"]
_KINDS: dict[str, Kind] = {"delete": "left out", "insert": "added"}


class Argument(Struct, frozen=True, kw_only=True):
    """One argument that differs; None where it was not given."""

    path: str
    before: JSON = None
    after: JSON = None


class Parting(Struct, frozen=True, kw_only=True):
    """The first point where two trials did not do the same."""

    kind: Kind
    call: int
    """The number of the call, from 1: how many were the same, plus one."""
    before: str = ""
    """The tool called there before; empty where the trial had ended, or goes on later."""
    after: str = ""
    arguments: list[Argument] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Tools of the calls that were left out or added there, until both go on alike."""


def parting(before: Sequence[ToolEvent] | None, after: Sequence[ToolEvent] | None) -> Parting | None:
    """Return where two trials part; None where the calls of one were not recorded."""
    if before is None or after is None:
        return None
    pairs = enumerate(zip(before, after, strict=False))
    place = next((i for i, (one, other) in pairs if not _same(one, other)), min(len(before), len(after)))
    left, right = before[place : place + MOST_CALLS], after[place : place + MOST_CALLS]
    if not left and not right:
        return Parting(kind="same", call=place)
    if left and right and left[0].tool_name == right[0].tool_name:
        differing = list(_differing(left[0].args, right[0].args))[:MOST_DIFFERENCES]
        name = left[0].tool_name
        return Parting(kind="arguments", call=place + 1, before=name, after=name, arguments=differing)
    return _other(place + 1, [event.tool_name for event in left], [event.tool_name for event in right])


def _other(call: int, before: list[str], after: list[str]) -> Parting:
    """Return what happened where the tools differ: calls left out, calls added, or other ones."""
    one, other = before[0] if before else "", after[0] if after else ""
    tag, i, j, k, m = SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes()[0]
    kind = _KINDS.get(tag, "other call")
    skipped = {"left out": before[i:j], "added": after[k:m]}.get(kind, [])
    return Parting(kind=kind, call=call, before=one, after=other, skipped=skipped)


def _same(one: ToolEvent, other: ToolEvent) -> bool:
    return one.tool_name == other.tool_name and one.args == other.args


def _differing(before: JSON, after: JSON, path: str = "") -> Iterator[Argument]:
    """Yield the arguments in which two calls differ, by their paths."""
    if isinstance(before, dict) and isinstance(after, dict) and (before or after):
        for key in [*before, *(key for key in after if key not in before)]:
            yield from _differing(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _differing(one, other, f"{path}[{place}]")
    elif before != after:
        yield Argument(path=path, before=before, after=after)
