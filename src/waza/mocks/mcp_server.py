"""A stand-in for an MCP server, on standard input and output: asks waza what to say.

An agent starts it as `python -P -m waza.mocks.mcp_server SOCKET NAME`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

_NEEDED = 2
_LINE_BYTES = 16 << 20


def missing() -> str:
    """Return what must be installed before a server can be mocked; empty if it is there."""
    try:
        found = version("mcp")
    except PackageNotFoundError:
        return "mcp_mocks need the package mcp; `pip install 'waza[mcp]'`"
    if int(found.partition(".")[0]) < _NEEDED:
        return f"mcp_mocks need the package mcp from version {_NEEDED} on, found {found}; `pip install 'waza[mcp]'`"
    return ""


async def serve(address: str, name: str) -> None:
    """Answer one agent until it hangs up."""
    from mcp import types  # a second: only the process of a mocked server pays for it
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server

    async def on_list_tools(context: Any, asked: Any) -> types.ListToolsResult:
        told = await ask(address, {"server": name})
        return types.ListToolsResult(tools=[types.Tool.model_validate(tool) for tool in told["tools"]])

    async def on_call_tool(context: Any, asked: types.CallToolRequestParams) -> types.CallToolResult:
        told = await ask(address, {"server": name, "tool": asked.name, "args": asked.arguments or {}})
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=told["text"])], is_error=told["is_error"]
        )

    server = Server(name, version="1", on_list_tools=on_list_tools, on_call_tool=on_call_tool)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


async def ask(address: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return waza's answer to one question; raise OSError or ValueError when there is none."""
    reader, writer = await asyncio.open_unix_connection(address, limit=_LINE_BYTES)
    try:
        writer.write(json.dumps(request).encode() + b"\n")
        await writer.drain()
        told: dict[str, Any] = json.loads(await reader.read())
        return told
    finally:
        writer.close()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
