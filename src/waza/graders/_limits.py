"""Upper and lower bounds on what a trace counted, shared by the limit graders."""

from __future__ import annotations

from functools import lru_cache

from waza.model import Check, Trace


def at_most(noun: str, actual: float | None, bound: float, *, least: float | None = None) -> Check:
    """Return whether a count stayed within its bound; undecided when it was not recorded.

    `least` is the part of it that is known; where that alone is too much, the bound is exceeded.
    """
    held = _is_within("most", bound, noun)
    if actual is None and least is not None:
        if least <= bound:
            told = f"cannot tell whether there were {held.claim}: only a part of them was recorded, {least:g}"
            return Check(None, held.claim, told)
        actual = least
    if actual is None:
        return Check(None, held.claim, f"cannot tell whether there were {held.claim}: they were not recorded")
    if actual <= bound:
        return held
    return Check(False, held.claim, f"Too many {noun}: {actual:g} > {bound:g}", bound, actual)


def at_least(noun: str, actual: float | None, bound: float) -> Check:
    """Return whether a count reached its bound; undecided when it was not recorded."""
    held = _is_within("least", bound, noun)
    if actual is None:
        return Check(None, held.claim, f"cannot tell whether there were {held.claim}: they were not recorded")
    if actual >= bound:
        return held
    return Check(False, held.claim, f"Too few {noun}: {actual:g} < {bound:g}", bound, actual)


def steps_of(trace: Trace) -> int | None:
    """Return everything the agent did: the recorded number of steps, else the number of events.

    None where tools were not observed: the events then hold only part of what happened.
    """
    if trace.steps is not None:
        return trace.steps
    return None if trace.events is None or trace.tool_events is None else len(trace.events)


@lru_cache(maxsize=1024)
def _is_within(side: str, bound: float, noun: str) -> Check:
    return Check(True, f"at {side} {bound:g} {noun}")
