"""How one trial used its tools, in numbers, from what its grades report about tool calls.

A grader that expects tools reports in its details: `first_call_fits`, whether the first call is the expected one, with
`first_call_is_ordered` where its expectation has an order; and `argument_calls`, the places of the `calls` to tools
whose arguments it states, and of the `right` ones among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct

from waza.model import JSON, Result, Trace
from waza.runs.result_view import ResultView


class ToolUse(Struct, frozen=True, kw_only=True, gc=False):
    """How one trial used its tools, in numbers."""

    calls: int
    succeeded: int
    compared: int
    """Calls to tools for which some expectation states arguments."""
    fitting: int
    """Those of them whose arguments all match one of these expectations."""
    first_fits: bool | None
    """Whether the first call is the expected one; None without an expectation that names tools."""


def tool_use(result: Result | ResultView) -> ToolUse | None:
    """Return how a trial used its tools; None when its calls were not recorded."""
    events = result.trace.tool_events
    if events is None:
        return None
    facts = merged_tool_facts(grade.details for grade in result.grades)
    calls, right = _argument_calls(facts)
    succeeded = sum(event.success for event in events)
    return _shared(len(events), succeeded, len(calls), len(right), facts.get("first_call_fits"))


@lru_cache(maxsize=1024, typed=True)
def _shared(calls: int, succeeded: int, compared: int, fitting: int, first_fits: bool | None) -> ToolUse:
    """Return the same record for the same numbers: thousands of trials have few that differ."""
    return ToolUse(calls=calls, succeeded=succeeded, compared=compared, fitting=fitting, first_fits=first_fits)


def merged_tool_facts(details: Iterable[Mapping[str, Any]], *, is_choice: bool = False) -> dict[str, JSON]:
    """Return the facts of several graders about tool calls merged into one; empty where none has any.

    Where one of them expects an order, its first tool is the expected one; otherwise any expected tool is. Of a
    conversation's turns the first one with an expectation counts. `is_choice`: one of the graders is enough.
    """
    first: list[tuple[int, bool, bool]] = []
    calls: set[int] = set()
    right: set[int] = set()
    for facts in details:
        fits, turn = facts.get("first_call_fits"), facts.get("turn")
        if isinstance(fits, bool):
            is_ordered = facts.get("first_call_is_ordered") is True and not is_choice
            first.append((turn if isinstance(turn, int) else 0, is_ordered, fits))
        ours = _argument_calls(facts)
        calls |= ours[0]
        right |= ours[1]
    merged: dict[str, JSON] = {}
    if first:
        earliest = min(turn for turn, _, _ in first)
        has_order = any(is_ordered for turn, is_ordered, _ in first if turn == earliest)
        merged["first_call_fits"] = any(fits for turn, order, fits in first if (turn, order) == (earliest, has_order))
        merged |= {"first_call_is_ordered": True} if has_order else {}
    if calls:
        merged["argument_calls"] = {"calls": sorted(calls), "right": sorted(right)}
    return merged


def _argument_calls(facts: Mapping[str, Any]) -> tuple[set[int], set[int]]:
    """Return the places of the calls whose arguments are stated, and of those that are right."""
    match facts.get("argument_calls"):
        case {"calls": [*calls], "right": [*right]}:
            named = {call for call in calls if isinstance(call, int)}
            return named, {call for call in right if isinstance(call, int) and call in named}
    return set(), set()


def mock_calls(trace: Trace) -> list[dict[str, JSON]] | None:
    """Return every call of a mocked program or tool in `outcome.mocks.calls`, in order; None without mocks."""
    mocks = trace.outcome.get("mocks")
    calls = mocks.get("calls") if isinstance(mocks, dict) else None
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else None


def command_invocations(trace: Trace) -> list[dict[str, JSON]] | None:
    """Return the calls of mocked programs, as in results.json; None where no mocks were in use."""
    calls = mock_calls(trace)
    if calls is None:
        return None
    return [
        {
            "command": call["command"],
            "args": call.get("args") or [],
            "exit_code": call.get("exit_code"),
            "matched": call.get("answer") is not None,
            **({"error": call["error"]} if call.get("error") else {}),
        }
        for call in calls
        if "command" in call
    ]
