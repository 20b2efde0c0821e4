"""Serve the mocks of a trial: write the mock programs next to its workspace and answer them over a Unix socket."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from waza.engines.mocks import program, relay
from waza.engines.mocks.responder import MockResponder
from waza.engines.mocks.shapes import Mocks
from waza.errors import EngineError
from waza.files.trial_folder import MockPrograms, TrialFolder
from waza.model import Task

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
