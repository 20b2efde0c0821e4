"""Upper and lower bounds on what a trace counted, shared by the limit graders."""

from __future__ import annotations

from waza.model import Check, Trace


def at_most(noun: str, actual: float | None, bound: float) -> Check:
    """Return whether a count stayed within its bound; undecided when it was not recorded."""
    claim = f"at most {bound:g} {noun}"
    if actual is None:
        return Check(None, claim, f"cannot tell whether there were {claim}: they were not recorded")
    ok = actual <= bound
    return Check(ok, claim) if ok else Check(False, claim, f"Too many {noun}: {actual:g} > {bound:g}", bound, actual)


def at_least(noun: str, actual: float | None, bound: float) -> Check:
    """Return whether a count reached its bound; undecided when it was not recorded."""
    claim = f"at least {bound:g} {noun}"
    if actual is None:
        return Check(None, claim, f"cannot tell whether there were {claim}: they were not recorded")
    ok = actual >= bound
    return Check(ok, claim) if ok else Check(False, claim, f"Too few {noun}: {actual:g} < {bound:g}", bound, actual)


def steps_of(trace: Trace) -> int | None:
    """Return everything the agent did: the recorded number of steps, else the number of events.

    None where tools were not observed: the events then hold only part of what happened.
    """
    if trace.steps is not None:
        return trace.steps
    return None if trace.events is None or trace.tool_events is None else len(trace.events)
