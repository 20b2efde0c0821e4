"""Where the mocks of a trial stand: beside its workspace, with a socket behind which waza answers."""

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
"""What a login shell reads after it has set PATH anew."""


@asynccontextmanager
async def mocked(task: Task, trial_folder: TrialFolder) -> AsyncIterator[tuple[TrialFolder, MockResponder]]:
    """Yield the room with the task's mocks in it, and who answers for them.

    Raises EngineError when they cannot be laid out.
    """
    mocks = Mocks.model_validate(task.mocks)
    folder, log = trial_folder.home.parent / "mocks", trial_folder.home.parent / "mock-calls"
    address = folder / "waza.sock"
    if len(os.fsencode(address)) > _ADDRESS_BYTES:
        raise EngineError(
            f"mocks need a folder for temporary files with a shorter name than {trial_folder.home.parent}",
            is_started=False,
        )
    # The SDK takes a second to load, agents do not wait so long for a server, and runs without servers need none.
    sdk = await asyncio.to_thread(import_module, "waza.engines.mocks.mcp_server") if mocks.servers else None
    line = _MockConnection(MockResponder(mocks, trial_folder.workspace, log), sdk.serve if sdk else None)
    try:
        log.mkdir(0o700)
        mock_programs = _lay_out(mocks, folder, address)
        if mocks.commands:
            _prepare(trial_folder.home, folder / "bin")
        server = await asyncio.start_unix_server(line.talk, address, limit=_LINE_BYTES)
    except OSError as error:
        raise EngineError(f"the mocks cannot be laid out: {error.strerror or error}", is_started=False) from None
    try:
        yield trial_folder._replace(mock_programs=mock_programs._replace(ask=line.ask)), line.responder
    finally:
        server.close()
        await line.hang_up()


class _MockConnection:
    """The socket's side of a trial's mocks: one question at a time, whoever asks."""

    def __init__(self, responder: MockResponder, serve: Any) -> None:
        self.responder = responder
        self._serve = serve
        self._one = asyncio.Lock()
        self._talks: set[asyncio.Task[None]] = set()

    def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Begin to answer a stand-in."""
        talk = asyncio.ensure_future(self._talk(reader, writer))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)

    async def hang_up(self) -> None:
        """End every talk."""
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = json.loads(await reader.readline())
            if "server" in asked:
                await self._serve(str(asked["server"]), self.ask, reader, writer)
            else:
                writer.write(json.dumps(await self.ask(asked)).encode())
                await writer.drain()
        except Exception:  # noqa: BLE001  whatever a stranger says at the socket, the trial goes on
            pass
        finally:
            writer.close()

    async def ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return what the desk answers, when it is this one's turn."""
        async with self._one:
            return await asyncio.to_thread(self.responder.reply, asked)


def _lay_out(mocks: Mocks, folder: Path, address: Path) -> MockPrograms:
    """Write the stand-ins that an agent starts."""
    programs = folder / "bin"
    programs.mkdir(0o700, parents=True)
    for command in mocks.commands:
        words = _words(program.__file__, folder, address, command.name)
        path = programs / command.name
        path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
        path.chmod(0o700)
    servers = {server.name: _words(relay.__file__, folder, address, server.name) for server in mocks.servers}
    declared = {name: {"type": "stdio", "command": words[0], "args": words[1:]} for name, words in servers.items()}
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": declared}), encoding="utf-8")
    return MockPrograms(programs if mocks.commands else None, servers, file if servers else None, (folder,))


def _words(source: str, folder: Path, address: Path, name: str) -> list[str]:
    """Return what starts a stand-in, from a copy: an isolated agent does not see where waza stands."""
    copy = folder / Path(source).name
    copy.write_bytes(Path(source).read_bytes())
    return [sys.executable, "-I", "-S", str(copy), str(address), name]


def _prepare(home: Path, programs: Path) -> None:
    """Let login shells of the agent, too, find the stand-ins first."""
    for name in _PROFILES:
        with (home / name).open("a", encoding="utf-8") as profile:
            profile.write(f'PATH={shlex.quote(str(programs))}:"$PATH"\nexport PATH\n')
