"""Tool names as authors write them, against what the agent's program calls the same tools."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec.structs import replace

from waza.model import JSON, ToolEvent, Trace
from waza.traces._aliases import Dialect, dialect_of

ToolNames = Literal["known", "exact"]
"""`known`: a plain name is the agent's tool for it, whatever its program calls it; `exact`: letter for letter."""


def words_of(trace: Trace, how: ToolNames) -> Dialect | None:
    """Return how the agent of a trace names its tools; None where names are matched exactly."""
    return None if how == "exact" else dialect_of(trace)


def names_used(trace: Trace, declared: Iterable[str], how: ToolNames) -> dict[str, None] | None:
    """Return the names that were called, and the declared ones that mean one of them; None when none was recorded."""
    if trace.tool_events is None:
        return None
    words = words_of(trace, how)
    if words is None:
        return dict.fromkeys([event.tool_name for event in trace.tool_events])
    return words.used(declared, trace.tool_events)


def calls_named(events: list[ToolEvent], declared: Iterable[str], words: Dialect | None) -> list[str]:
    """Return the name of each call, as declared where that means it."""
    return [event.tool_name for event in events] if words is None else words.as_written(declared, events)


def calls_spelled(events: list[ToolEvent], wanted: Iterable[str], words: Dialect | None) -> list[ToolEvent]:
    """Return the calls with the wanted arguments also under the names that were asked for."""
    if words is None:
        return events
    keys = [key.split(".", 1)[0].split("[", 1)[0] for key in wanted]
    return [replace(event, args=words.args(event, keys)) for event in events]


def first_call(trace: Trace, declared: list[str], how: ToolNames) -> dict[str, JSON]:
    """Return whether the first call was of a declared tool, for the suite's `selection_accuracy`, and `seen_as`."""
    events = trace.tool_events or []
    words = words_of(trace, how)
    if words is None:
        return {"first_call_fits": bool(events) and events[0].tool_name in declared}
    fits = any(name in declared for name in words.as_written(declared, events[:1]))
    return {"first_call_fits": fits, **really_seen(trace, declared, how)}


def really_seen(trace: Trace, declared: Iterable[str], how: ToolNames) -> dict[str, JSON]:
    """Return `seen_as`: what was really called where that is another name than the declared one; else nothing."""
    words = words_of(trace, how)
    seen = words.seen_as(declared, trace.tool_events or []) if words else {}
    return {"seen_as": seen} if seen else {}
