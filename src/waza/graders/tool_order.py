"""The `tool_order` grader: tools in a given order (`expected.tool_call_order`)."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, ClassVar

from pydantic import Field

from waza.graders._base import Grader, tool_events
from waza.graders._fields import Needles
from waza.graders._names import ToolNames, calls_named, first_call, words_of
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

    expected_order: Annotated[Needles, Field(min_length=1)]
    """Tool names, exact and case-sensitive; a name given twice needs two calls."""

    tool_names: ToolNames = "known"
    """`known`: a plain name is the agent's tool for it, whatever its program calls it; `exact`: letter for letter."""

    def checks(self, trace: Trace) -> list[Check]:
        """Return the one comparison, naming the first tool that is out of place."""
        called = calls_named(tool_events(trace), self.expected_order, words_of(trace, self.tool_names))
        held = _is_in_order(tuple(self.expected_order))
        rest = iter(called)
        for tool in self.expected_order:
            if tool not in rest:
                failure = f"Tools not called in expected order: {tool} is missing or too early"
                return [Check(False, held.claim, failure, self.expected_order, called)]
        return [held]

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return whether the first call was of an expected tool."""
        return first_call(trace, self.expected_order, self.tool_names)


@lru_cache(maxsize=1024)
def _is_in_order(tools: tuple[str, ...]) -> Check:
    return Check(True, f"tools are called in the order {' → '.join(tools)}")
