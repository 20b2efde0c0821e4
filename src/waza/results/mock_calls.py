"""Calls of mocks, as a trace holds them: under `outcome.mocks.calls`."""

from __future__ import annotations

from waza.model import JSON, Trace


def mock_calls(trace: Trace) -> list[dict[str, JSON]] | None:
    """Return every call of a mocked program or tool, in order; None where none were in use."""
    mocks = trace.outcome.get("mocks")
    calls = mocks.get("calls") if isinstance(mocks, dict) else None
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else None


def command_invocations(trace: Trace) -> list[dict[str, JSON]] | None:
    """Return the calls of mocked programs, as results.json tells them; None where no mocks were in use."""
    calls = mock_calls(trace)
    if calls is None:
        return None
    return [
        {
            "command": call["command"],
            "args": call.get("args") or [],
            "exit_code": call.get("exit_code"),
            "matched": call.get("answer") is not None,
            **({"error": call["error"]} if call.get("error") else {}),
        }
        for call in calls
        if "command" in call
    ]
