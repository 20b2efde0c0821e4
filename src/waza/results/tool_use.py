"""How one trial used its tools, in numbers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct

from waza.model import JSON, Result
from waza.results.seen import SeenResult


class ToolUse(Struct, frozen=True, kw_only=True, gc=False):
    """How one trial used its tools, in numbers."""

    calls: int
    succeeded: int
    assigned: int
    """Calls assigned to an expectation with arguments."""
    fitting: int
    """Those of them whose arguments all matched."""
    first_fits: bool | None
    """Whether the first call was of an expected tool; None without an expectation that was decided."""


def tool_use(result: Result | SeenResult) -> ToolUse | None:
    """Return how a trial used its tools; None when its calls were not recorded."""
    events = result.trace.tool_events
    if events is None:
        return None
    fits = [grade.details["first_call_fits"] for grade in result.grades if "first_call_fits" in grade.details]
    assigned = list(_assigned(result))
    succeeded = sum(event.success for event in events)
    return _shared(len(events), succeeded, len(assigned), sum(assigned), any(fits) if fits else None)


@lru_cache(maxsize=1024, typed=True)
def _shared(calls: int, succeeded: int, assigned: int, fitting: int, first_fits: bool | None) -> ToolUse:
    """Return the same record for the same numbers: thousands of trials have few that differ."""
    return ToolUse(calls=calls, succeeded=succeeded, assigned=assigned, fitting=fitting, first_fits=first_fits)


def _assigned(result: Result | SeenResult) -> Iterator[bool]:
    """Yield for each call assigned to an expectation with arguments whether they all matched."""
    for grade in result.grades:
        match grade.details.get("alignment"):
            case {"expectations": [*entries]}:
                for entry in entries:
                    yield from _calls_of(entry)


def _calls_of(entry: JSON) -> Iterator[bool]:
    match entry:
        case {"checks_arguments": True, "calls": [*calls]}:
            yield from [True] * len(calls)
            if "nearest" in entry:
                yield False
