"""A grader that counts the calls of a mock; made by specs from `expect_calls`, not named in YAML."""

from __future__ import annotations

from collections.abc import Iterator

from waza.errors import Undecidable
from waza.graders._base import Grader
from waza.graders._fields import Bound, Text
from waza.model import JSON, Check, Trace


class MockCallsGrader(Grader):
    """Check how often a mocked program, or a tool of a mocked MCP server, was called."""

    command: Text | None = None
    """The program."""
    server: Text | None = None
    """The server."""
    tool: Text | None = None
    """Its tool."""
    expect_calls: Bound
    """How often it must be called, exactly."""

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield the one claim."""
        wanted = {"command": self.command} if self.command else {"server": self.server, "tool": self.tool}
        calls = _calls(trace)
        count = sum(all(call.get(key) == value for key, value in wanted.items()) for call in calls)
        calls_of = f"calls of the mock of {self.command or f'{self.server}.{self.tool}'}"
        claim = f"{calls_of}: {self.expect_calls}"
        yield Check(count == self.expect_calls, claim, f"{calls_of}: {count}, expected {self.expect_calls}")


def _calls(trace: Trace) -> list[dict[str, JSON]]:
    mocks = trace.outcome.get("mocks")
    calls = mocks.get("calls") if isinstance(mocks, dict) else None
    if not isinstance(calls, list):
        raise Undecidable("calls of mocks were not recorded: this engine does not use them")
    return [call for call in calls if isinstance(call, dict)]
