"""Where the mocks of a trial stand: beside its workspace, with a socket behind which waza answers."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from waza.errors import EngineError
from waza.mocks import program
from waza.mocks.desk import Desk
from waza.mocks.shapes import Mocks
from waza.model import Task
from waza.sandbox.room import Room, StandIns

_ASKED_BYTES = 4 << 20
_SOCKET_PATH_BYTES = 100
_SERVER = "waza.mocks.mcp_server"
_PROFILES = (".profile", ".zprofile")
"""What a login shell reads after it has set PATH anew."""


@asynccontextmanager
async def mocked(task: Task, room: Room) -> AsyncIterator[tuple[Room, Desk | None]]:
    """Yield the room with the task's mocks in it, and who answers for them; None where the task has none.

    Raises EngineError when they cannot be laid out.
    """
    if task.mocks is None:
        yield room, None
        return
    mocks = Mocks.model_validate(task.mocks)
    folder, private = room.home.parent / "mocks", room.home.parent / "mock-calls"
    address = folder / "waza.sock"
    if len(os.fsencode(address)) > _SOCKET_PATH_BYTES:
        raise EngineError(f"mocks need a folder for temporary files with a shorter name than {room.home.parent}")
    desk = Desk(mocks, room.workspace, private)
    talks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own = asyncio.current_task()
        if own is not None:
            talks.add(own)
            own.add_done_callback(talks.discard)
        await _answer(desk, lock, reader, writer)

    lock = asyncio.Lock()
    try:
        private.mkdir(0o700)
        stand_ins = _lay_out(mocks, folder, address)
        if mocks.commands:
            _furnish(room.home, folder)
        server = await asyncio.start_unix_server(talk, address, limit=_ASKED_BYTES)
    except OSError as error:
        raise EngineError(f"the mocks cannot be laid out: {error.strerror or error}") from None
    try:
        yield room._replace(stand_ins=stand_ins), desk
    finally:
        server.close()
        for unfinished in list(talks):
            unfinished.cancel()


async def _answer(desk: Desk, lock: asyncio.Lock, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one question; a stranger's gets no answer."""
    try:
        asked: dict[str, Any] = json.loads(await reader.readline())
        async with lock:
            told = await asyncio.to_thread(desk.reply, asked)
        writer.write(json.dumps(told).encode())
        await writer.drain()
    except (OSError, LookupError, TypeError, ValueError, RecursionError):
        pass
    finally:
        writer.close()


def _lay_out(mocks: Mocks, folder: Path, address: Path) -> StandIns:
    """Write the stand-ins that an agent starts."""
    programs = folder / "bin"
    programs.mkdir(0o700, parents=True)
    source = folder / "program.py"
    source.write_bytes(Path(program.__file__).read_bytes())
    for command in mocks.commands:
        words = [sys.executable, "-I", "-S", str(source), str(address), command.name]
        path = programs / command.name
        path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
        path.chmod(0o700)
    servers = {
        server.name: [sys.executable, "-P", "-m", _SERVER, str(address), server.name] for server in mocks.servers
    }
    declared = {name: {"type": "stdio", "command": words[0], "args": words[1:]} for name, words in servers.items()}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": declared}), encoding="utf-8")
    readable = (folder, Path(program.__file__).parent.parent) if servers else (folder,)
    return StandIns(programs if mocks.commands else None, servers, folder / "mcp.json" if servers else None, readable)


def _furnish(home: Path, folder: Path) -> None:
    """Let login shells of the agent, too, find the stand-ins first."""
    for name in _PROFILES:
        with (home / name).open("a", encoding="utf-8") as profile:
            profile.write(f'PATH={shlex.quote(str(folder / "bin"))}:"$PATH"\nexport PATH\n')
