"""Checks of limits and tools, shared by the graders that set limits or name tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Literal

from waza.graders.base import undecided
from waza.graders.fields import bound_of
from waza.model import Check, Trace
from waza.untrusted.patterns import fits_name, name_glob

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


def at_most(noun: str, actual: float | None, bound: float, *, least: float | None = None) -> Check:
    """Return whether a count stayed within its bound; undecided when it was not recorded.

    `least` is the part of it that is known; where that alone is too much, the bound is exceeded.
    """
    passed = _is_within("most", bound, noun)
    if actual is None and least is not None:
        if least <= bound:
            failure = f"cannot tell whether there were {passed.claim}: only a part of them was recorded, {least:g}"
            return Check(None, passed.claim, failure)
        actual = least
    if actual is None:
        return Check(None, passed.claim, f"cannot tell whether there were {passed.claim}: they were not recorded")
    if actual <= bound:
        return passed
    return Check(False, passed.claim, f"Too many {noun}: {actual:g} > {bound:g}", bound, actual)


def at_least(noun: str, actual: float | None, bound: float) -> Check:
    """Return whether a count reached its bound; undecided when it was not recorded."""
    passed = _is_within("least", bound, noun)
    if actual is None:
        return Check(None, passed.claim, f"cannot tell whether there were {passed.claim}: they were not recorded")
    if actual >= bound:
        return passed
    return Check(False, passed.claim, f"Too few {noun}: {actual:g} < {bound:g}", bound, actual)


def steps_of(trace: Trace) -> int | None:
    """Return the number of steps: the recorded one, else the number of events.

    None where tools were not observed: the events are then only a part of what happened.
    """
    if trace.steps is not None:
        return trace.steps
    return None if trace.events is None or trace.tool_events is None else len(trace.events)


@lru_cache(maxsize=1024)
def _is_within(side: str, bound: float, noun: str) -> Check:
    return Check(True, f"at {side} {bound:g} {noun}")
