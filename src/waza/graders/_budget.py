"""Checks on what an agent used, shared by the graders that set limits and name tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from waza.graders._base import undecided
from waza.model import Check

NO_TOOLS = "tool calls were not recorded: this engine cannot observe them"


def within(noun: str, actual: float | None, limit: int, unit: str = "") -> Iterator[Check]:
    """Yield whether a number stayed within its limit (0: no check); undecided when it was not recorded."""
    if not limit:
        return
    claim = f"{noun.lower()} is at most {limit}{unit}"
    if actual is None:
        yield from undecided([claim], "it was not recorded")
    elif actual <= limit:
        yield Check(True, claim)
    else:
        yield Check(False, claim, f"{noun} {actual:g}{unit} exceeds max allowed {limit}{unit}", limit, actual)


def uses(tools: Iterable[str], used: Iterable[str] | None, wording: str) -> Iterator[Check]:
    """Yield one check per tool that must be used; undecided when calls were not recorded."""
    for tool in tools:
        claim = f"{tool} is called"
        if used is None:
            yield from undecided([claim], NO_TOOLS)
        elif tool in used:
            yield Check(True, claim)
        else:
            yield Check(False, claim, wording.format(tool), tool, list(used))


def avoids(tools: Iterable[str], used: Iterable[str] | None, wording: str) -> Iterator[Check]:
    """Yield one check per tool that must not be used; undecided when calls were not recorded."""
    for tool in tools:
        claim = f"{tool} is not called"
        if used is None:
            yield from undecided([claim], NO_TOOLS)
        elif tool not in used:
            yield Check(True, claim)
        else:
            yield Check(False, claim, wording.format(tool), f"no {tool}", list(used))
