"""MCP servers that a suite gives to its agent, in the forms that agent programs read."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import model_validator

from waza.files.paths import SpecFolder
from waza.options import Options

_IN_FOLDER = 'cd "$0" && exec "$@"'
"""Not every agent can start a server in a folder of its own."""


class McpServer(Options):
    """One MCP server: a program that is started, or an address."""

    type: Literal["stdio", "local", "http", "sse"] | None = None
    """How it is spoken to; `stdio` with `command`, `http` with `url` if left out."""
    command: str | None = None
    """The program; one with a slash is looked up beside the eval file, then at the project's root."""
    args: list[str] = []
    """Its arguments; `{eval_dir}` is the eval file's folder."""
    env: dict[str, str] = {}
    """Its variables."""
    cwd: str | None = None
    """The folder it is started in, beside the eval file; the agent's working folder if left out."""
    url: str | None = None
    """The address of a server that runs already."""
    headers: dict[str, str] = {}
    """What is sent with each request to that address."""
    tools: list[str] = ["*"]
    """Which of its tools the agent may use; only Copilot can leave some out."""

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("an MCP server has either `command` or `url`")
        if self.cwd is not None and self.command is None:
            raise ValueError("`cwd` goes with `command`")
        if self.type and (self.type in ("stdio", "local")) != (self.command is not None):
            raise ValueError(f"type '{self.type}' does not go with `{'command' if self.command else 'url'}`")
        return self

    def located(self, folder: SpecFolder) -> McpServer:
        """Return the server with its paths made absolute; raise ValueError when its program is not there."""
        if self.command is None:
            return self
        has_path = "/" in self.command and not self.command.startswith("/")
        command = str(folder.find(self.command)) if has_path else self.command
        args = [word.replace("{eval_dir}", str(folder.base)) for word in self.args]
        if self.cwd is not None:
            args = ["-c", _IN_FOLDER, str(folder.find(self.cwd)), command, *args]
            command = "sh"
        return self.model_copy(update={"command": command, "args": args})

    @property
    def is_sse(self) -> bool:
        """Whether it is spoken to by server-sent events, the older way."""
        return self.type == "sse"

    def program(self) -> dict[str, Any]:
        """Return what starts it, by the names that most programs use."""
        return {"command": self.command, "args": self.args, "env": self.env}


def typed_form(server: McpServer) -> dict[str, Any]:
    """Return a server as Claude Code and Copilot write it."""
    if server.command is not None:
        return {"type": "stdio"} | server.program()
    return {"type": "sse" if server.is_sse else "http", "url": server.url, "headers": server.headers}


def untyped_form(server: McpServer) -> dict[str, Any]:
    """Return a server as Gemini CLI and Qwen Code write it: the key of the address tells the type."""
    if server.command is not None:
        return server.program() | {"trust": True}
    return {"url" if server.is_sse else "httpUrl": server.url, "headers": server.headers, "trust": True}


def opencode_form(server: McpServer) -> dict[str, Any]:
    """Return a server as OpenCode writes it."""
    if server.command is not None:
        return {"type": "local", "command": [server.command, *server.args], "environment": server.env, "enabled": True}
    return {"type": "remote", "url": server.url, "headers": server.headers, "enabled": True}


def codex_form(server: McpServer) -> dict[str, Any]:
    """Return a server as Codex writes it."""
    return server.program() if server.command is not None else {"url": server.url, "http_headers": server.headers}
