"""The `behavior` grader: how many calls, tokens and milliseconds the agent took, and which tools.

The checks of limits and tools are shared by all graders that set limits or name tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from typing import ClassVar, Literal

from waza.graders.base import Grader, Limit, ToolName, bound_of, undecided
from waza.graders.names import Names, ToolNames, first_call, names_of, names_used, really_seen
from waza.model import JSON, Check, Trace, Usage
from waza.untrusted.patterns import fits_name, name_glob


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


NO_TOOLS = "tool calls were not recorded: this engine cannot observe them"


def within(
    noun: str, actual: float | None, limit: int | Literal["none"], unit: str = "", *, least: float | None = None
) -> Iterator[Check]:
    """Yield whether a number stayed within its limit (0: no check); undecided when it was not recorded.

    `least` is the part of it that is known; where that alone is too much, the limit is exceeded.
    """
    bound = bound_of(limit)
    if bound is None:
        return
    claim = f"{noun.lower()} is at most {bound}{unit}"
    if actual is None and least is not None:
        if least <= bound:
            yield from undecided([claim], f"only a part of it was recorded, {least:g}{unit}")
            return
        actual = least
    if actual is None:
        yield from undecided([claim], "it was not recorded")
    elif actual <= bound:
        yield Check(True, claim)
    else:
        yield Check(False, claim, f"{noun} {actual:g}{unit} exceeds max allowed {bound}{unit}", bound, actual)


def uses(tools: Iterable[str], used: Iterable[str] | None, wording: str) -> Iterator[Check]:
    """Yield one check per tool that must be used; undecided when calls were not recorded."""
    for tool in tools:
        claim = f"{tool} is called"
        if used is None:
            yield from undecided([claim], NO_TOOLS)
        elif tool in used:
            yield Check(True, claim)
        else:
            yield Check(False, claim, wording.format(tool), tool, called(used))


def avoids(tools: Iterable[str], used: Iterable[str] | None, wording: str) -> Iterator[Check]:
    """Yield one check per tool that must not be used; undecided when calls were not recorded."""
    for tool in tools:
        claim = f"{tool} is not called"
        if used is None:
            yield from undecided([claim], NO_TOOLS)
        elif tool not in used:
            yield Check(True, claim)
        else:
            yield Check(False, claim, wording.format(tool) + covered(tool, used), f"no {tool}", called(used))


def called(used: Iterable[str]) -> list[str]:
    """Return the names among those in use, without the globs that cover them."""
    return [name for name in used if name_glob(name) is None]


def covered(tool: str, used: Iterable[str]) -> str:
    """Return the names that a glob covers, in brackets; nothing for a plain name."""
    names = [name for name in called(used) if fits_name(tool, name)] if name_glob(tool) else []
    return f" ({', '.join(names[:5])}{', …' if len(names) > 5 else ''})" if names else ""


def at_most(noun: str, actual: float | None, bound: float, *, least: float | None = None) -> Check:
    """Return whether a count stayed within its bound; undecided when it was not recorded.

    `least` is the part of it that is known; where that alone is too much, the bound is exceeded.
    """
    passed = _is_within("most", bound, noun)
    if actual is None and least is not None:
        if least <= bound:
            failure = f"cannot tell whether there were {passed.claim}: only a part of them was recorded, {least:g}"
            return Check(None, passed.claim, failure)
        actual = least
    if actual is None:
        return Check(None, passed.claim, f"cannot tell whether there were {passed.claim}: they were not recorded")
    if actual <= bound:
        return passed
    return Check(False, passed.claim, f"Too many {noun}: {actual:g} > {bound:g}", bound, actual)


def at_least(noun: str, actual: float | None, bound: float) -> Check:
    """Return whether a count reached its bound; undecided when it was not recorded."""
    passed = _is_within("least", bound, noun)
    if actual is None:
        return Check(None, passed.claim, f"cannot tell whether there were {passed.claim}: they were not recorded")
    if actual >= bound:
        return passed
    return Check(False, passed.claim, f"Too few {noun}: {actual:g} < {bound:g}", bound, actual)


def steps_of(trace: Trace) -> int | None:
    """Return the number of steps: the recorded one, else the number of events.

    None where tools were not observed: the events are then only a part of what happened.
    """
    if trace.steps is not None:
        return trace.steps
    return None if trace.events is None or trace.tool_events is None else len(trace.events)


@lru_cache(maxsize=1024)
def _is_within(side: str, bound: float, noun: str) -> Check:
    return Check(True, f"at {side} {bound:g} {noun}")
