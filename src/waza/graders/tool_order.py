"""The `tool_order` grader: tools in a given order (`expected.tool_call_order`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field

from waza.graders._base import Grader, tool_events
from waza.graders._fields import Needles
from waza.graders._names import ToolNames, calls_named, really_seen, words_of
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

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield the one comparison, naming the first tool that is out of place."""
        called = calls_named(tool_events(trace), self.expected_order, words_of(trace, self.tool_names))
        claim = f"tools are called in the order {' → '.join(self.expected_order)}"
        rest = iter(called)
        missing = next((tool for tool in self.expected_order if tool not in rest), None)
        if missing is None:
            yield Check(True, claim)
        else:
            failure = f"Tools not called in expected order: {missing} is missing or too early"
            yield Check(False, claim, failure, self.expected_order, called)

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return whether the first call was of an expected tool, for the suite's `selection_accuracy`."""
        first = calls_named(tool_events(trace)[:1], self.expected_order, words_of(trace, self.tool_names))
        fits: dict[str, JSON] = {"first_call_fits": any(name in self.expected_order for name in first)}
        return fits | really_seen(trace, self.expected_order, self.tool_names)
