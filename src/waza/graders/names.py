"""Tool and skill names as authors write them, globs included, against what was really called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Literal, NamedTuple

from msgspec.structs import replace

from waza.model import JSON, ToolEvent, Trace
from waza.traces.aliases import ARGUMENTS, Dialect, dialect_of
from waza.untrusted.patterns import fits_name, name_glob

ToolNames = Literal["known", "exact"]
"""`known`: a plain name is the agent's tool for it, whatever its program calls it; `exact`: letter for letter."""


class Names(NamedTuple):
    """Names that a grader declares, split into globs and plain names once, not at each grading."""

    names: list[str]
    globs: list[str]
    plain: list[str]


def names_of(*lists: Iterable[str]) -> Names:
    """Return the names of some lists, split into globs and plain names."""
    names = list(chain(*lists))
    globs = [name for name in names if name_glob(name) is not None]
    return Names(names, globs, [name for name in names if name not in globs] if globs else names)


def words_of(trace: Trace, how: ToolNames) -> Dialect | None:
    """Return how the agent of a trace names its tools; None where names are matched exactly."""
    return None if how == "exact" or trace.engine is None else dialect_of(trace)


def names_used(trace: Trace, declared: Names, how: ToolNames) -> dict[str, None] | None:
    """Return the names that were called, and the declared ones that mean one of them; None when none was recorded."""
    if trace.tool_events is None:
        return None
    words = words_of(trace, how)
    if words is not None:
        return words.used(declared.names, trace.tool_events)
    used = dict.fromkeys([event.tool_name for event in trace.tool_events])
    for glob in declared.globs:
        if any(fits_name(glob, name) for name in used):
            used[glob] = None
    return used


def is_one_of(event: ToolEvent, declared: Names, words: Dialect | None) -> bool:
    """Return whether a call is of one of the declared tools."""
    if event.tool_name in declared.names:
        return True
    if words is None:
        return any(fits_name(glob, event.tool_name) for glob in declared.globs)
    return any(words.same(name, event) for name in declared.names)


def fits_of_calls(declared: Names, events: Sequence[ToolEvent], words: Dialect | None) -> list[list[int]] | None:
    """Return for each declared name the places of the calls that fit it; None where no name is a glob."""
    if not declared.globs:
        return None
    if words is None:
        return fits_of_names(declared, [event.tool_name for event in events])
    return [[place for place, event in enumerate(events) if words.same(name, event)] for name in declared.names]


def fits_of_names(declared: Names, names: Sequence[str]) -> list[list[int]] | None:
    """Return for each declared name the places of the names that fit it; None where none is a glob."""
    if not declared.globs:
        return None
    return [[place for place, name in enumerate(names) if fits_name(wanted, name)] for wanted in declared.names]


def calls_named(events: list[ToolEvent], declared: Names, words: Dialect | None) -> list[str]:
    """Return the name of each call, as declared where a plain name means it."""
    return [event.tool_name for event in events] if words is None else words.as_written(declared.plain, events)


def calls_spelled(events: list[ToolEvent], wanted: Iterable[str], words: Dialect | None) -> list[ToolEvent]:
    """Return the calls with the wanted arguments also under the declared names."""
    if words is None:
        return events
    keys = [key.split(".", 1)[0].split("[", 1)[0] for key in wanted]
    return [_with_args(event, words.args(event, keys)) for event in events]


def _with_args(event: ToolEvent, args: JSON) -> ToolEvent:
    return event if args is event.args else replace(event, args=_spelled(event, args))


class SpelledArgs(dict[str, JSON]):
    """Arguments of a call, some also under the names that authors use."""

    __slots__ = ("sources",)

    def __init__(self, args: dict[str, JSON], sources: dict[str, list[str]]) -> None:
        super().__init__(args)
        self.sources = sources
        """The names that were added, each with the arguments of the call that it is another name for."""


def _spelled(event: ToolEvent, args: JSON) -> JSON:
    if args is event.args or not isinstance(args, dict) or len(args) == len(event.args):
        return args
    groups = [*ARGUMENTS, ("skill", "name"), ("path", "changes")]
    return SpelledArgs(
        args,
        {
            name: [other for group in groups if name in group for other in group if other in event.args]
            for name in args
            if name not in event.args
        },
    )


def first_call(trace: Trace, declared: Names, how: ToolNames, *, is_ordered: bool = False) -> dict[str, JSON]:
    """Return whether the first call is of a declared tool, the first one if they have an order, and `seen_as`."""
    wanted = names_of(declared.names[:1]) if is_ordered else declared
    words = words_of(trace, how)
    fits = any(is_one_of(event, wanted, words) for event in (trace.tool_events or [])[:1])
    return selection(fits, is_ordered=is_ordered) | really_seen(trace, declared, how)


def selection(fits: bool, *, is_ordered: bool = False) -> dict[str, JSON]:
    """Return the facts for the suite's `selection_accuracy`: whether the first call is the expected one."""
    return {"first_call_fits": fits} | ({"first_call_is_ordered": True} if is_ordered else {})


def really_seen(trace: Trace, declared: Names, how: ToolNames) -> dict[str, JSON]:
    """Return `seen_as`: what was really called where that is another name than the declared one; else nothing."""
    words = words_of(trace, how)
    if words is not None:
        names = words.seen_as(declared.names, trace.tool_events or [])
        return {"seen_as": names} if names else {}
    if not declared.globs:
        return {}
    called = dict.fromkeys(event.tool_name for event in trace.tool_events or [])
    covered = {glob: [name for name in called if fits_name(glob, name)] for glob in declared.globs}
    names = {glob: found for glob, found in covered.items() if found}
    return {"seen_as": names} if names else {}
