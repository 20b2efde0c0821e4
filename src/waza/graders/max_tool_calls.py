"""The `max_tool_calls` grader: that the agent made no more than a number of tool calls (`expected.max_tool_calls`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from waza.graders.base import Bound, Grader
from waza.graders.behavior import at_most
from waza.model import Check, Trace


class MaxToolCallsGrader(Grader):
    """Check that the agent made no more than a number of tool calls.

    ```yaml
    - type: max_tool_calls
      name: max_tool_calls
      config:
        max_tool_calls: 5
    ```
    """

    checks_behavior: ClassVar[bool] = True

    max_tool_calls: Bound
    """Most tool calls allowed. 0 is a real bound."""

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield the one bound."""
        actual = None if trace.tool_events is None else len(trace.tool_events)
        yield at_most("tool calls", actual, self.max_tool_calls)
