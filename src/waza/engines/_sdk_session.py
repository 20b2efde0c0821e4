"""A separate program: one turn of an agent's session through its vendor's SDK, its events as JSON lines.

It runs under waza's supervisor, which ends all of the session's processes at the time limit. The request comes as JSON
on standard input; nothing of waza is imported here.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from typing import Any

_ALLOWED = {"edits": ("read", "write", "memory"), "read": ("read",), "judge": ("read", "mcp")}
_FOREVER_S = 1e8


def allows(request: dict[str, Any], permission: Any) -> bool:
    """Return whether the session may do what it asks for; a judge has only the MCP servers it was given."""
    allowed = _ALLOWED.get(request["permission_mode"])
    if allowed is None:
        return True
    is_given = permission.kind != "mcp" or permission.server_name in request["session"].get("mcp_servers", {})
    return permission.kind in allowed and is_given


async def copilot_turn(request: dict[str, Any]) -> None:
    """Send the prompt to a new session, or to the one named, and print its events until it is idle."""
    from copilot import CopilotClient, RuntimeConnection  # type: ignore[import-not-found, unused-ignore]
    from copilot.rpc import PermissionDecisionApproveOnce, PermissionDecisionUserNotAvailable  # type: ignore[import-not-found, unused-ignore]

    def decide(permission: Any, _: Any) -> Any:
        return PermissionDecisionApproveOnce() if allows(request, permission) else PermissionDecisionUserNotAvailable()

    def report(event: Any) -> None:
        print(json.dumps(event.to_dict()), flush=True)  # noqa: T201  standard output is what this program is for

    client = CopilotClient(
        connection=RuntimeConnection.for_stdio(path=request["program"], args=request["arguments"]),
        log_level="error",
    )
    await client.start()
    try:
        settings = {**request["session"], "on_permission_request": decide, "on_event": report}
        opening = (
            client.resume_session(request["resume"], **settings)
            if request["resume"]
            else client.create_session(**settings)
        )
        session = await opening
        await session.send_and_wait(request["prompt"], timeout=_FOREVER_S)
    finally:
        await client.stop()


async def claude_turn(request: dict[str, Any]) -> None:
    """Send the prompt to a new session, or to the one named, and print every message until the result."""
    from claude_agent_sdk import ClaudeAgentOptions, query  # type: ignore[import-not-found, unused-ignore]

    options = ClaudeAgentOptions(**request["options"], stderr=lambda line: print(line, file=sys.stderr))  # noqa: T201
    async for message in query(prompt=request["prompt"], options=options):
        event = {"cls": type(message).__name__, **dataclasses.asdict(message)}
        print(json.dumps(event, default=str), flush=True)  # noqa: T201  standard output is what this program is for


if __name__ == "__main__":
    given = json.loads(sys.stdin.buffer.read())
    sys.path.append(given["library"])
    try:
        asyncio.run(claude_turn(given) if given["sdk"] == "claude" else copilot_turn(given))
    except Exception as error:  # noqa: BLE001  any error of the SDK becomes one line on standard error
        sys.exit(f"{type(error).__name__}: {error}")
