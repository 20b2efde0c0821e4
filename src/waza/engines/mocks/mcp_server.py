"""A mocked MCP server: the official SDK's, at the other end of a relay that the agent starts as its server."""

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
        """Wait until it is on its way."""
        await self._writer.drain()


async def serve(name: str, ask: Ask, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer an agent until it hangs up; `ask` knows the answers."""

    async def on_list_tools(context: Any, asked: Any) -> types.ListToolsResult:
        told = await ask({"server": name})
        return types.ListToolsResult(tools=[types.Tool.model_validate(tool) for tool in told["tools"]])

    async def on_call_tool(context: Any, asked: types.CallToolRequestParams) -> types.CallToolResult:
        told = await ask({"server": name, "tool": asked.name, "args": asked.arguments or {}})
        said = types.TextContent(type="text", text=told["text"])
        return types.CallToolResult(content=[said], is_error=told["is_error"])

    server = Server(name, version="1", on_list_tools=on_list_tools, on_call_tool=on_call_tool)
    async with stdio_server(cast(Any, reader), cast(Any, _Writer(writer))) as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
