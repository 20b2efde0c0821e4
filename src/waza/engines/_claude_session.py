"""A separate program: one turn of a Claude Code session through claude-agent-sdk, its messages as JSON lines.

It runs under waza's supervisor, which ends all of the session's processes at the time limit. The request comes as JSON
on standard input; nothing of waza is imported here.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from typing import Any


async def main(request: dict[str, Any]) -> None:
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
        asyncio.run(main(given))
    except Exception as error:  # noqa: BLE001  any error of the SDK becomes one line on standard error
        sys.exit(f"{type(error).__name__}: {error}")
