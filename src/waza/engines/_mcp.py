"""MCP servers that a suite declares for its agent, in the formats of the agent programs."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import model_validator

from waza.files.paths import SpecFolder
from waza.options import Options

_IN_FOLDER = 'cd "$0" && exec "$@"'
"""Sets the working folder by a shell: not every agent program has a setting for it."""


class McpServer(Options):
    """One MCP server: a program that is started, or an address."""

    type: Literal["stdio", "local", "http", "sse"] | None = None
    """The transport; `stdio` with `command`, `http` with `url` if left out."""
    command: str | None = None
    """The program; one with a slash is looked up next to the eval file, then at the project's root."""
    args: list[str] = []
    """Its arguments; `{eval_dir}` is the eval file's folder."""
    env: dict[str, str] = {}
    """Its variables."""
    cwd: str | None = None
    """The folder it is started in, next to the eval file; the agent's working folder if left out."""
    url: str | None = None
    """The address of a server that runs already."""
    headers: dict[str, str] = {}
    """HTTP headers sent with each request to that address."""
    tools: list[str] = ["*"]
    """Which of its tools the agent may use; only Copilot supports a selection."""

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
        """Return the server with its paths made absolute; raise ValueError when its program is missing."""
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
        """Whether it uses server-sent events, the older transport."""
        return self.type == "sse"

    def program(self) -> dict[str, Any]:
        """Return how to start it, under the keys that most agent programs use."""
        return {"command": self.command, "args": self.args, "env": self.env}


def typed_form(server: McpServer) -> dict[str, Any]:
    """Return a server in the format of Claude Code and Copilot."""
    if server.command is not None:
        return {"type": "stdio"} | server.program()
    return {"type": "sse" if server.is_sse else "http", "url": server.url, "headers": server.headers}


def untyped_form(server: McpServer) -> dict[str, Any]:
    """Return a server in the format of Gemini CLI and Qwen Code: the key of the address gives the type."""
    if server.command is not None:
        return server.program() | {"trust": True}
    return {"url" if server.is_sse else "httpUrl": server.url, "headers": server.headers, "trust": True}


def opencode_form(server: McpServer) -> dict[str, Any]:
    """Return a server in the format of OpenCode."""
    if server.command is not None:
        return {"type": "local", "command": [server.command, *server.args], "environment": server.env, "enabled": True}
    return {"type": "remote", "url": server.url, "headers": server.headers, "enabled": True}


def codex_form(server: McpServer) -> dict[str, Any]:
    """Return a server in the format of Codex."""
    return server.program() if server.command is not None else {"url": server.url, "http_headers": server.headers}
