"""The `tool_called` grader: tools that must be used (`expected.tools_called`)."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Annotated, ClassVar

from pydantic import Field

from waza.graders.base import Grader, ToolName, tool_events
from waza.graders.behavior import called as called_names
from waza.graders.names import Names, ToolNames, first_call, names_of, names_used, words_of
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

    checks_behavior: ClassVar[bool] = True
    all_passed: ClassVar[str] = "All required tools were called"

    required: Annotated[list[ToolName], Field(min_length=1)]
    """Tool names, exact and case-sensitive, or globs (`search_*`)."""

    tool_names: ToolNames = "known"
    """`known`: a plain name is the agent's tool for it, whatever its program calls it; `exact`: letter for letter."""

    @cached_property
    def _names(self) -> Names:
        return names_of(self.required)

    def checks(self, trace: Trace) -> list[Check]:
        """Return one check per tool."""
        events = tool_events(trace)
        words = words_of(trace, self.tool_names)
        if words is None and not self._names.globs:
            called = [event.tool_name for event in events]
        else:
            called = list(names_used(trace, self._names, self.tool_names) or ())
        return [_is_called(tool) if tool in called else _is_not_called(tool, called) for tool in self.required]

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return whether the first call was of an expected tool."""
        return first_call(trace, self._names, self.tool_names)


@lru_cache(maxsize=1024)
def _is_called(tool: str) -> Check:
    return Check(True, f"{tool} is called")


def _is_not_called(tool: str, called: list[str]) -> Check:
    failure = f"Required tool not called: {tool}"
    return Check(False, _is_called(tool).claim, failure, tool, called_names(dict.fromkeys(called)))
