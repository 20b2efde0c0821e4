"""The `tool_called` grader: tools that must be used (`expected.tools_called`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field

from waza.graders._base import Grader, tool_events
from waza.graders._fields import Needles
from waza.graders._names import ToolNames, calls_named, names_used, really_seen, words_of
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

    tool_names: ToolNames = "known"
    """`known`: a plain name is the agent's tool for it, whatever its program calls it; `exact`: letter for letter."""

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield one check per tool."""
        tool_events(trace)
        called = list(names_used(trace, self.required, self.tool_names) or ())
        for tool in self.required:
            claim = f"{tool} is called"
            if tool in called:
                yield Check(True, claim)
            else:
                yield Check(False, claim, f"Required tool not called: {tool}", tool, called)

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return whether the first call was of an expected tool, for the suite's `selection_accuracy`."""
        first = calls_named(tool_events(trace)[:1], self.required, words_of(trace, self.tool_names))
        fits: dict[str, JSON] = {"first_call_fits": any(name in self.required for name in first)}
        return fits | really_seen(trace, self.required, self.tool_names)
