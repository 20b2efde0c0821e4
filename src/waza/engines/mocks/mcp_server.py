"""A mocked MCP server, on the official SDK; `relay.py`, which the agent starts as its server, connects to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

Ask = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class _Writer:
    """The relay's standard output, as the SDK writes to it."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def write(self, text: str) -> None:
        """Send a message."""
        self._writer.write(text.encode())

    async def flush(self) -> None:
        """Wait until it is sent."""
        await self._writer.drain()


async def serve(name: str, ask: Ask, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve an agent until it disconnects; `ask` returns the answers."""

    async def on_list_tools(context: Any, request: Any) -> types.ListToolsResult:
        reply = await ask({"server": name})
        return types.ListToolsResult(tools=[types.Tool.model_validate(tool) for tool in reply["tools"]])

    async def on_call_tool(context: Any, request: types.CallToolRequestParams) -> types.CallToolResult:
        reply = await ask({"server": name, "tool": request.name, "args": request.arguments or {}})
        content = types.TextContent(type="text", text=reply["text"])
        return types.CallToolResult(content=[content], is_error=reply["is_error"])

    server = Server(name, version="1", on_list_tools=on_list_tools, on_call_tool=on_call_tool)
    async with stdio_server(cast(Any, reader), cast(Any, _Writer(writer))) as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
