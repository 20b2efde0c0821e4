"""Tool and skill names as authors write them, globs included, against what was really called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec.structs import replace

from waza.model import JSON, ToolEvent, Trace
from waza.sandbox.patterns import fits_name, name_glob
from waza.traces._aliases import Dialect, dialect_of

ToolNames = Literal["known", "exact"]
"""`known`: a plain name is the agent's tool for it, whatever its program calls it; `exact`: letter for letter."""


def words_of(trace: Trace, how: ToolNames) -> Dialect | None:
    """Return how the agent of a trace names its tools; None where names are matched exactly."""
    return None if how == "exact" else dialect_of(trace)


def globs_in(declared: Iterable[str]) -> list[str]:
    """Return the names that are globs."""
    return [name for name in declared if "*" in name or "?" in name]


def names_used(trace: Trace, declared: Iterable[str], how: ToolNames) -> dict[str, None] | None:
    """Return the names that were called, and the declared ones that mean one of them; None when none was recorded."""
    if trace.tool_events is None:
        return None
    words = words_of(trace, how)
    if words is None:
        return with_globs(dict.fromkeys([event.tool_name for event in trace.tool_events]), declared)
    return words.used(declared, trace.tool_events)


def with_globs(used: dict[str, None], declared: Iterable[str]) -> dict[str, None]:
    """Return the names in use, and after them the declared globs that cover one of them."""
    globs = globs_in(declared)
    if not globs:
        return used
    return used | {glob: None for glob in globs if any(fits_name(glob, name) for name in used)}


def is_one_of(event: ToolEvent, declared: Iterable[str], words: Dialect | None) -> bool:
    """Say whether a call is of one of the declared tools."""
    if words is None:
        return any(fits_name(name, event.tool_name) for name in declared)
    return any(words.same(name, event) for name in declared)


def fits_of_calls(
    declared: Sequence[str], events: Sequence[ToolEvent], words: Dialect | None
) -> list[list[int]] | None:
    """Return for each declared name the places of the calls that fit it; None where no name is a glob."""
    if words is None:
        return fits_of_names(declared, [event.tool_name for event in events])
    if not globs_in(declared):
        return None
    return [[place for place, event in enumerate(events) if words.same(name, event)] for name in declared]


def fits_of_names(declared: Sequence[str], names: Sequence[str]) -> list[list[int]] | None:
    """Return for each declared name the places of the names that fit it; None where none is a glob."""
    if not globs_in(declared):
        return None
    return [[place for place, name in enumerate(names) if fits_name(wanted, name)] for wanted in declared]


def calls_named(events: list[ToolEvent], declared: Iterable[str], words: Dialect | None) -> list[str]:
    """Return the name of each call, as declared where a plain name means it."""
    if words is None:
        return [event.tool_name for event in events]
    return words.as_written([name for name in declared if name_glob(name) is None], events)


def calls_spelled(events: list[ToolEvent], wanted: Iterable[str], words: Dialect | None) -> list[ToolEvent]:
    """Return the calls with the wanted arguments also under the names that were asked for."""
    if words is None:
        return events
    keys = [key.split(".", 1)[0].split("[", 1)[0] for key in wanted]
    return [replace(event, args=words.args(event, keys)) for event in events]


def first_call(trace: Trace, declared: list[str], how: ToolNames, *, is_ordered: bool = False) -> dict[str, JSON]:
    """Return whether the first call is of a declared tool, the first one if they have an order, and `seen_as`."""
    wanted = declared[:1] if is_ordered else declared
    words = words_of(trace, how)
    fits = any(is_one_of(event, wanted, words) for event in (trace.tool_events or [])[:1])
    return selection(fits, is_ordered=is_ordered) | really_seen(trace, declared, how)


def selection(fits: bool, *, is_ordered: bool = False) -> dict[str, JSON]:
    """Return the facts for the suite's `selection_accuracy`: whether the first call is the expected one."""
    return {"first_call_fits": fits} | ({"first_call_is_ordered": True} if is_ordered else {})


def really_seen(trace: Trace, declared: Iterable[str], how: ToolNames) -> dict[str, JSON]:
    """Return `seen_as`: what was really called where that is another name than the declared one; else nothing."""
    words = words_of(trace, how)
    if words is not None:
        seen = words.seen_as(declared, trace.tool_events or [])
    elif globs := globs_in(declared):
        names = dict.fromkeys(event.tool_name for event in trace.tool_events or [])
        covered = {glob: [name for name in names if fits_name(glob, name)] for glob in globs}
        seen = {glob: found for glob, found in covered.items() if found}
    else:
        return {}
    return {"seen_as": seen} if seen else {}
