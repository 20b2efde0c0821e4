"""The `behavior` grader: how many calls, tokens and milliseconds the agent took, and which tools."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar

from waza.graders._limits import avoids, uses, within
from waza.graders.base import Grader
from waza.graders.fields import Limit, ToolName
from waza.graders.names import Names, ToolNames, first_call, names_of, names_used, really_seen
from waza.model import JSON, Check, Trace, Usage


class BehaviorGrader(Grader):
    """Check the agent's budget (calls, tokens, time) and the tools it must, and must not, use.

    Limits are inclusive. One check a limit and a tool; a limit on what was not recorded is undecided.

    ```yaml
    - type: behavior
      name: efficiency_check
      config:
        max_tool_calls: 15
        max_tokens: 50000
        max_duration_ms: 60000
        required_tools: [bash, edit]
        forbidden_tools: [rm, sudo]
    ```
    """

    checks_behavior: ClassVar[bool] = True
    all_passed: ClassVar[str] = "All behavior checks passed"
    needs_one_of: ClassVar[tuple[str, ...]] = (
        "max_tool_calls",
        "max_tokens",
        "max_duration_ms",
        "required_tools",
        "forbidden_tools",
    )

    max_tool_calls: Limit = 0
    """How many tool calls there may be; `none` allows none, 0 means no limit."""
    max_tokens: Limit = 0
    """How many tokens, input plus output, may be used; `none` allows none, 0 means no limit."""
    max_duration_ms: Limit = 0
    """How many milliseconds the agent may take; `none` allows none, 0 means no limit."""
    required_tools: list[ToolName] = []
    """Tools that must be called, each by exact name or a glob (`mcp__github__*`)."""
    forbidden_tools: list[ToolName] = []
    """Tools that must not be called, by exact name or a glob."""

    tool_names: ToolNames = "known"
    """`known`: a plain name is the agent's tool for it, whatever its program calls it; `exact`: letter for letter."""

    @cached_property
    def _names(self) -> Names:
        return names_of(self.required_tools, self.forbidden_tools)

    @cached_property
    def _required(self) -> Names:
        return names_of(self.required_tools)

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield one check per limit and per tool."""
        events = trace.tool_events
        used = names_used(trace, self._names, self.tool_names)
        yield from within("Tool call count", None if events is None else len(events), self.max_tool_calls)
        usage = trace.usage or Usage()
        yield from within("Token usage", usage.total_tokens, self.max_tokens, least=usage.least_tokens)
        yield from uses(self.required_tools, used, "Required tool not used: {}")
        yield from avoids(self.forbidden_tools, used, "Forbidden tool was used: {}")
        yield from within("Duration", trace.duration_ms, self.max_duration_ms, "ms")

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return what the agent used; what was not recorded is left out."""
        facts: dict[str, JSON] = {}
        if trace.tool_events is not None:
            names = [event.tool_name for event in trace.tool_events]
            facts = {"tool_call_count": len(names), "tools_used": names}
            if self.required_tools:
                facts |= first_call(trace, self._required, self.tool_names)
            facts |= really_seen(trace, self._names, self.tool_names)
        if trace.duration_ms is not None:
            facts["actual_duration"] = trace.duration_ms
        if trace.usage is not None and trace.usage.total_tokens is not None:
            facts["tokens_total"] = trace.usage.total_tokens
        return facts
