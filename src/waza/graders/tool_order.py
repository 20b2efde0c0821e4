"""The `tool_order` grader: tools in a given order (`expected.tool_call_order`)."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, ClassVar

from pydantic import Field

from waza.graders._align import Fits
from waza.graders._base import Grader, tool_events
from waza.graders._fields import ToolName
from waza.graders._names import ToolNames, calls_named, first_call, fits_of_calls, words_of
from waza.model import JSON, Check, Trace


class ToolOrderGrader(Grader):
    """Check that the tools were called in this order; other calls may stand in between.

    ```yaml
    - type: tool_order
      name: authenticates_first
      config:
        expected_order: [authenticate, fetch_data, save_result]
    ```
    """

    all_held: ClassVar[str] = "Tools called in correct order"

    expected_order: Annotated[list[ToolName], Field(min_length=1)]
    """Tool names, exact and case-sensitive, or globs, each for one call; one given twice needs two."""

    tool_names: ToolNames = "known"
    """`known`: a plain name is the agent's tool for it, whatever its program calls it; `exact`: letter for letter."""

    def checks(self, trace: Trace) -> list[Check]:
        """Return the one comparison, naming the first tool that is out of place."""
        events, words = tool_events(trace), words_of(trace, self.tool_names)
        called = calls_named(events, self.expected_order, words)
        held = _is_in_order(tuple(self.expected_order))
        tool = _first_missing(self.expected_order, called, fits_of_calls(self.expected_order, events, words))
        if tool is None:
            return [held]
        failure = f"Tools not called in expected order: {tool} is missing or too early"
        return [Check(False, held.claim, failure, self.expected_order, called)]

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return whether the first call is of the first tool."""
        return first_call(trace, self.expected_order, self.tool_names, is_ordered=True)


def _first_missing(expected: list[str], called: list[str], fits: Fits | None) -> str | None:
    """Return the first tool that no call after those before it fits; `fits` where globs are among the tools."""
    if fits is None:
        rest = iter(called)
        return next((tool for tool in expected if tool not in rest), None)
    after = -1
    for tool, places in zip(expected, fits, strict=True):
        later = next((place for place in places if place > after), None)
        if later is None:
            return tool
        after = later
    return None


@lru_cache(maxsize=1024)
def _is_in_order(tools: tuple[str, ...]) -> Check:
    return Check(True, f"tools are called in the order {' → '.join(tools)}")
