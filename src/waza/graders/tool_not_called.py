"""The `tool_not_called` grader: tools that must not be used (`expected.tools_not_called`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field

from waza.graders._base import Grader, tool_events
from waza.graders._fields import Needles
from waza.model import Check, Trace


class ToolNotCalledGrader(Grader):
    """Check that no named tool was called; an attempt that failed counts as a call.

    ```yaml
    - type: tool_not_called
      name: stays_in_scope
      config:
        forbidden: [delete_account, drop_database]
    ```
    """

    all_held: ClassVar[str] = "No forbidden tools were called"

    forbidden: Annotated[Needles, Field(min_length=1)]
    """Tool names, exact and case-sensitive."""

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield one check per tool."""
        called = list(dict.fromkeys(event.tool_name for event in tool_events(trace)))
        for tool in self.forbidden:
            claim = f"{tool} is not called"
            if tool in called:
                yield Check(False, claim, f"Forbidden tool was called: {tool}", f"no {tool}", called)
            else:
                yield Check(True, claim)
