"""The `tool_order` grader: tools in a given order (`expected.tool_call_order`)."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Annotated, ClassVar

from pydantic import Field

from waza.graders._alignment import Fits
from waza.graders.base import Grader, ToolName, tool_events
from waza.graders.names import Names, ToolNames, calls_named, first_call, fits_of_calls, names_of, words_of
from waza.model import JSON, Check, Trace


class ToolOrderGrader(Grader):
    """Check that the tools were called in this order; other calls may come in between.

    ```yaml
    - type: tool_order
      name: authenticates_first
      config:
        expected_order: [authenticate, fetch_data, save_result]
    ```
    """

    checks_behavior: ClassVar[bool] = True
    all_passed: ClassVar[str] = "Tools called in correct order"

    expected_order: Annotated[list[ToolName], Field(min_length=1)]
    """Tool names, exact and case-sensitive, or globs, each for one call; one given twice needs two."""

    tool_names: ToolNames = "known"
    """`known`: a plain name is the agent's tool for it, whatever its program calls it; `exact`: letter for letter."""

    @cached_property
    def _names(self) -> Names:
        return names_of(self.expected_order)

    def checks(self, trace: Trace) -> list[Check]:
        """Return the one comparison, naming the first tool that is out of place."""
        events, words = tool_events(trace), words_of(trace, self.tool_names)
        called = calls_named(events, self._names, words)
        passed = _is_in_order(tuple(self.expected_order))
        fits = fits_of_calls(self._names, events, words) if self._names.globs else None
        if fits is None:
            rest = iter(called)
            missing = [tool for tool in self.expected_order if tool not in rest]
        else:
            missing = _missing(self.expected_order, fits)
        if not missing:
            return [passed]
        failure = f"Tools not called in expected order: {missing[0]} is missing or too early"
        return [Check(False, passed.claim, failure, self.expected_order, called)]

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return whether the first call is of the first tool."""
        return first_call(trace, self._names, self.tool_names, is_ordered=True)


def _missing(expected: list[str], fits: Fits) -> list[str]:
    """Return the first tool that no call after those before it fits, if there is one."""
    after = -1
    for tool, places in zip(expected, fits, strict=True):
        later = next((place for place in places if place > after), None)
        if later is None:
            return [tool]
        after = later
    return []


@lru_cache(maxsize=1024)
def _is_in_order(tools: tuple[str, ...]) -> Check:
    return Check(True, f"tools are called in the order {' → '.join(tools)}")
