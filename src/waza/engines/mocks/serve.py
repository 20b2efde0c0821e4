"""Mocks of tools: MCP servers and programs whose answers a suite declares, served over a Unix socket.

    agent ─ MCP ─ relay.py ────┐ a socket   ┌ mcp_server.py ─┐
    agent ─ PATH ─ program.py ─┴─ serve.py ─┴────────────────┴ MockResponder: which answer fits, the state, every call

The answers never leave waza's own process, so an agent cannot find them in its trial folder. This is not a sandbox: a
program that is called by its full path is the real one.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from waza.engines.mocks import program, relay
from waza.engines.mocks.shapes import MockAnswer, Mocks
from waza.errors import EngineError
from waza.files.trial_folder import MockPrograms, TrialFolder
from waza.graders.text import excerpt
from waza.model import JSON, Task
from waza.untrusted.text import well_formed_data

_LINE_BYTES = 4 << 20
_ADDRESS_BYTES = 100
_PROFILES = (".profile", ".zprofile")
"""What a login shell reads after it has reset PATH."""


@asynccontextmanager
async def serve_mocks(task: Task, trial_folder: TrialFolder) -> AsyncIterator[tuple[TrialFolder, MockResponder]]:
    """Yield the trial folder with the task's mocks in it, and the responder that answers for them.

    Raises EngineError when they cannot be set up.
    """
    mocks = Mocks.model_validate(task.mocks)
    folder, log = trial_folder.home.parent / "mocks", trial_folder.home.parent / "mock-calls"
    address = folder / "waza.sock"
    if len(os.fsencode(address)) > _ADDRESS_BYTES:
        raise EngineError(
            f"mocks need a folder for temporary files with a shorter path than {trial_folder.home.parent}",
            is_started=False,
        )
    # The SDK takes a second to load, longer than agents wait for a server; runs without mocked servers do not need it.
    sdk = await asyncio.to_thread(import_module, "waza.engines.mocks.mcp_server") if mocks.servers else None
    connections = _MockConnections(MockResponder(mocks, trial_folder.workspace, log), sdk.serve if sdk else None)
    try:
        log.mkdir(0o700)
        mock_programs = _write_programs(mocks, folder, address)
        if mocks.commands:
            _extend_login_path(trial_folder.home, folder / "bin")
        server = await asyncio.start_unix_server(connections.accept, address, limit=_LINE_BYTES)
    except OSError as error:
        raise EngineError(f"the mocks cannot be set up: {error.strerror or error}", is_started=False) from None
    try:
        yield trial_folder._replace(mock_programs=mock_programs._replace(ask=connections.ask)), connections.responder
    finally:
        server.close()
        await connections.close()


class _MockConnections:
    """The connections of a trial's mock programs; requests are answered one at a time, as mocks share state."""

    def __init__(self, responder: MockResponder, serve: Any) -> None:
        self.responder = responder
        self._serve = serve
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Start to answer a mock program."""
        task = asyncio.ensure_future(self._answer(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End every connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = json.loads(await reader.readline())
            if "server" in request:
                await self._serve(str(request["server"]), self.ask, reader, writer)
            else:
                writer.write(json.dumps(await self.ask(request)).encode())
                await writer.drain()
        except Exception:  # noqa: BLE001  the agent can write anything to the socket, and must not end the trial by it
            pass
        finally:
            writer.close()

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the responder's reply, after those to earlier requests."""
        async with self._lock:
            return await asyncio.to_thread(self.responder.reply, request)


def _write_programs(mocks: Mocks, folder: Path, address: Path) -> MockPrograms:
    """Write the mock programs that an agent starts, and the MCP configuration that names them."""
    programs = folder / "bin"
    programs.mkdir(0o700, parents=True)
    for command in mocks.commands:
        words = _start_command(program.__file__, folder, address, command.name)
        path = programs / command.name
        path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
        path.chmod(0o700)
    servers = {server.name: _start_command(relay.__file__, folder, address, server.name) for server in mocks.servers}
    declared = {name: {"type": "stdio", "command": words[0], "args": words[1:]} for name, words in servers.items()}
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": declared}), encoding="utf-8")
    return MockPrograms(programs if mocks.commands else None, servers, file if servers else None, (folder,))


def _start_command(source: str, folder: Path, address: Path, name: str) -> list[str]:
    """Return the command that starts a mock program, from a copy: an isolated agent cannot read waza's own folder."""
    copy = folder / Path(source).name
    copy.write_bytes(Path(source).read_bytes())
    return [sys.executable, "-I", "-S", str(copy), str(address), name]


def _extend_login_path(home: Path, programs: Path) -> None:
    """Make login shells of the agent find the mock programs first too."""
    for name in _PROFILES:
        with (home / name).open("a", encoding="utf-8") as profile:
            profile.write(f'PATH={shlex.quote(str(programs))}:"$PATH"\nexport PATH\n')


MAX_LOG_BYTES = 16 << 20
"""The size of all recorded calls of a trial; beyond it mocks do not answer."""
_MAX_REMARKS = 3
NOT_FOUND = 127
"""The exit code of a mocked program without a matching answer, as if it were not installed."""


class MockResponder:
    """Answers requests of one trial's mocks."""

    def __init__(self, mocks: Mocks, workspace: Path, files: Path | None = None) -> None:
        self._servers = {server.name: server for server in mocks.servers}
        self._commands = {command.name: command for command in mocks.commands}
        self._workspace = workspace
        self._files = files
        self.state: dict[str, JSON] = {}
        self.calls: list[dict[str, JSON]] = []
        self._left_bytes = MAX_LOG_BYTES

    def reply(self, request: Mapping[str, Any]) -> dict[str, JSON]:
        """Return the reply to a mock program; raise KeyError, TypeError or ValueError for an invalid request."""
        if "command" in request:
            return self._run(request)
        server = self._servers[request["server"]]
        if "tool" in request:
            return self._call(request)
        return {
            "tools": [
                {"name": name, "description": tool.description, "inputSchema": tool.input_schema}
                for name, tool in server.tools.items()
            ]
        }

    def outcome(self) -> dict[str, JSON]:
        """Return the calls and the state of the mocks, for the trace."""
        return {"calls": list(self.calls), "state": dict(self.state)}

    def remarks(self) -> list[str]:
        """Return a message for each of the first calls without a matching answer, and one for the rest."""
        lines = list(dict.fromkeys(_line(call) for call in self.calls if call["answer"] is None))
        remarks = [f"no answer of a mock fits {excerpt(line)}" for line in lines[:_MAX_REMARKS]]
        more = len(lines) - _MAX_REMARKS
        return remarks + ([f"and {more} more calls that no answer fits"] if more > 0 else [])

    def _call(self, request: Mapping[str, Any]) -> dict[str, JSON]:
        server, name, args = str(request["server"]), str(request["tool"]), dict(request["args"])
        call: dict[str, JSON] = {"server": server, "tool": name, "args": args}
        tool = self._servers[server].tools.get(name)
        if tool is None:
            return self._failed(call, f"the mocked server '{server}' has no tool '{name}'")
        if problems := tool.schema_of_arguments.problems(args):
            return self._failed(call, "the arguments do not fit: " + "; ".join(problems))
        for number, answer in enumerate(tool.responses, 1):
            if answer.fits(args, self.state):
                self._record(call | {"answer": number}, answer)
                text = _text(answer.returns) if answer.error is None else answer.error
                return {"text": text, "is_error": answer.error is not None}
        return self._failed(call, f"the mock of '{name}' has no answer to these arguments")

    def _failed(self, call: dict[str, JSON], why: str) -> dict[str, JSON]:
        self._record(call | {"answer": None, "error": why})
        return {"text": why, "is_error": True}

    def _run(self, request: Mapping[str, Any]) -> dict[str, JSON]:
        name, args = str(request["command"]), [str(word) for word in request["args"]]
        place, variables = self._relative_to_workspace(str(request["cwd"])), dict(request["env"])
        call: dict[str, JSON] = {"command": name, "args": args}
        for number, answer in enumerate(self._commands[name].responses, 1):
            if answer.fits(args, place, variables, self.state):
                self._record(call | {"answer": number, "exit_code": answer.exit_code}, answer)
                return {"stdout": _text(answer.stdout), "stderr": answer.stderr, "exit_code": answer.exit_code}
        why = f"{name}: the mock of this program has no answer to these arguments"
        self._record(call | {"answer": None, "exit_code": NOT_FOUND, "error": why})
        return {"stdout": "", "stderr": f"{why}\n", "exit_code": NOT_FOUND}

    def _relative_to_workspace(self, folder: str) -> Path:
        path = Path(folder).resolve()
        return path.relative_to(self._workspace) if path.is_relative_to(self._workspace) else path

    def _record(self, call: dict[str, JSON], answer: MockAnswer | None = None) -> None:
        """Record a call and change the state as its answer declares."""
        call = well_formed_data(call)
        line = json.dumps(call) + "\n"
        self._left_bytes -= len(line)
        if self._left_bytes < 0:
            raise ValueError(f"the calls of mocks take more than {MAX_LOG_BYTES >> 20} MiB")
        self.calls.append(call)
        if self._files is not None:
            with (self._files / "calls.jsonl").open("a", encoding="utf-8") as log:
                log.write(line)
        if answer is not None and answer.set:
            self.state |= answer.set
            if self._files is not None:
                (self._files / "state.json").write_text(json.dumps(self.state), encoding="utf-8")


def _text(value: JSON) -> str:
    """Return a value as a mock program prints it."""
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _line(call: Mapping[str, JSON]) -> str:
    """Return a call as a person would write it."""
    if "command" in call:
        return json.dumps([call["command"], *call["args"]], ensure_ascii=False)
    return f"{call['server']}.{call['tool']}({json.dumps(call['args'], ensure_ascii=False)})"
