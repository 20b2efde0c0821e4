"""The `tool_called` grader: tools that must be used (`expected.tools_called`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field

from waza.graders._base import Grader, tool_events
from waza.graders._fields import Needles
from waza.model import JSON, Check, Trace


class ToolCalledGrader(Grader):
    """Check that each named tool was called at least once, in any order.

    ```yaml
    - type: tool_called
      name: books
      config:
        required: [search_flights, book_flight]
    ```
    """

    all_held: ClassVar[str] = "All required tools were called"

    required: Annotated[Needles, Field(min_length=1)]
    """Tool names, exact and case-sensitive."""

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield one check per tool."""
        called = list(dict.fromkeys(event.tool_name for event in tool_events(trace)))
        for tool in self.required:
            claim = f"{tool} is called"
            if tool in called:
                yield Check(True, claim)
            else:
                yield Check(False, claim, f"Required tool not called: {tool}", tool, called)

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return whether the first call was of an expected tool, for the suite's `selection_accuracy`."""
        called = tool_events(trace)
        return {"first_call_fits": bool(called) and called[0].tool_name in self.required}
