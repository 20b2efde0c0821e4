"""A trigger test ends where the skill is used: the agent is stopped there, and what it did so far is its trace."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from waza.model import Trace
from waza.traces._live import Live
from waza.traces._skills import invocations


class SkillSeen(Exception):
    """The agent used the skill that was waited for."""


def until_skill(live: Live, skill: str) -> Callable[[bytes], None]:
    """Return what takes an agent's output: it raises SkillSeen once `skill` (`*`: any) was used; empty: never."""
    if not skill:
        return live.take

    def take(chunk: bytes) -> None:
        live.take(chunk)
        draft = live.reader.draft
        used = invocations(draft.engine, draft.calls) if draft.skills is None else draft.skills
        if any(skill in ("*", invocation.name) for invocation in used or ()):
            raise SkillSeen

    return take


def stopped(trace: Trace) -> Trace:
    """Return the trace of an agent that was stopped there: that it came to no end is no fault of its own."""
    return replace(trace, status="success", error=None, crash=None, extra=trace.extra | {"stopped_at_skill": True})
