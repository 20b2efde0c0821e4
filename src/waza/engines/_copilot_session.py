"""A program of its own: one turn of a Copilot session through github-copilot-sdk, its events as JSON lines.

It runs under waza's supervisor, so that nothing of the session is left when its time is up. The order comes as JSON on
standard input; nothing of waza is imported here.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

_ALLOWED = {"edits": ("read", "write", "memory"), "read": ("read",), "judge": ("read", "mcp")}
_FOREVER_S = 1e8


def allows(order: dict[str, Any], request: Any) -> bool:
    """Say whether the session may do what it asks for; a judge has no MCP server but those it was given."""
    allowed = _ALLOWED.get(order["permission_mode"])
    if allowed is None:
        return True
    is_given = request.kind != "mcp" or request.server_name in order["session"].get("mcp_servers", {})
    return request.kind in allowed and is_given


async def main(order: dict[str, Any]) -> None:
    """Give the prompt to a new session, or to the one named, and print what happens until it is idle."""
    from copilot import CopilotClient, RuntimeConnection  # type: ignore[import-not-found, unused-ignore]
    from copilot.rpc import PermissionDecisionApproveOnce, PermissionDecisionUserNotAvailable  # type: ignore[import-not-found, unused-ignore]

    def decide(request: Any, _: Any) -> Any:
        return PermissionDecisionApproveOnce() if allows(order, request) else PermissionDecisionUserNotAvailable()

    def tell(event: Any) -> None:
        print(json.dumps(event.to_dict()), flush=True)  # noqa: T201  standard output is what this program is for

    client = CopilotClient(
        connection=RuntimeConnection.for_stdio(path=order["program"], args=order["arguments"]),
        log_level="error",
    )
    await client.start()
    try:
        wanted = {**order["session"], "on_permission_request": decide, "on_event": tell}
        opening = (
            client.resume_session(order["resume"], **wanted) if order["resume"] else client.create_session(**wanted)
        )
        session = await opening
        await session.send_and_wait(order["prompt"], timeout=_FOREVER_S)
    finally:
        await client.stop()


if __name__ == "__main__":
    given = json.loads(sys.stdin.buffer.read())
    sys.path.append(given["library"])
    try:
        asyncio.run(main(given))
    except Exception as error:  # noqa: BLE001  whatever it is, it is said in a sentence
        sys.exit(f"{type(error).__name__}: {error}")
