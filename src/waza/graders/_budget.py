"""Checks on what an agent used, shared by the graders that set limits and name tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from waza.graders._base import undecided
from waza.graders._fields import bound_of
from waza.model import Check
from waza.sandbox.patterns import fits_name, name_glob

NO_TOOLS = "tool calls were not recorded: this engine cannot observe them"


def within(
    noun: str, actual: float | None, limit: int | Literal["none"], unit: str = "", *, least: float | None = None
) -> Iterator[Check]:
    """Yield whether a number stayed within its limit (0: no check); undecided when it was not recorded.

    `least` is the part of it that is known; where that alone is too much, the limit is exceeded.
    """
    bound = bound_of(limit)
    if bound is None:
        return
    claim = f"{noun.lower()} is at most {bound}{unit}"
    if actual is None and least is not None:
        if least <= bound:
            yield from undecided([claim], f"only a part of it was recorded, {least:g}{unit}")
            return
        actual = least
    if actual is None:
        yield from undecided([claim], "it was not recorded")
    elif actual <= bound:
        yield Check(True, claim)
    else:
        yield Check(False, claim, f"{noun} {actual:g}{unit} exceeds max allowed {bound}{unit}", bound, actual)


def uses(tools: Iterable[str], used: Iterable[str] | None, wording: str) -> Iterator[Check]:
    """Yield one check per tool that must be used; undecided when calls were not recorded."""
    for tool in tools:
        claim = f"{tool} is called"
        if used is None:
            yield from undecided([claim], NO_TOOLS)
        elif tool in used:
            yield Check(True, claim)
        else:
            yield Check(False, claim, wording.format(tool), tool, called(used))


def avoids(tools: Iterable[str], used: Iterable[str] | None, wording: str) -> Iterator[Check]:
    """Yield one check per tool that must not be used; undecided when calls were not recorded."""
    for tool in tools:
        claim = f"{tool} is not called"
        if used is None:
            yield from undecided([claim], NO_TOOLS)
        elif tool not in used:
            yield Check(True, claim)
        else:
            yield Check(False, claim, wording.format(tool) + covered(tool, used), f"no {tool}", called(used))


def called(used: Iterable[str]) -> list[str]:
    """Return the names among those in use, without the globs that cover them."""
    return [name for name in used if name_glob(name) is None]


def covered(tool: str, used: Iterable[str]) -> str:
    """Return the names that a glob covers, in brackets; nothing for a plain name."""
    names = [name for name in called(used) if fits_name(tool, name)] if name_glob(tool) else []
    return f" ({', '.join(names[:5])}{', …' if len(names) > 5 else ''})" if names else ""
