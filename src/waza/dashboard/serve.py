"""The server: one process on the loopback address, until somebody stops it."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import uvicorn

from waza.dashboard.app import make_app
from waza.dashboard.desk import Desk
from waza.dashboard.guard import Session
from waza.dashboard.index import Index
from waza.dashboard.store import Store
from waza.errors import UsageError

HOST = "127.0.0.1"
PORT = 8731
_TRIED = 20
"""How many ports from the first one on are tried before any free one is taken."""


class Dashboard(NamedTuple):
    """A server that is ready to answer."""

    server: uvicorn.Server
    listener: socket.socket
    port: int
    session: Session

    def link(self) -> str:
        """Return an address that opens the dashboard in one browser."""
        return f"http://{HOST}:{self.port}/?token={self.session.new_token()}"

    def run(self) -> None:
        """Answer until a signal comes."""
        self.server.run(sockets=[self.listener])


@contextmanager
def dashboard(
    parents: Callable[[], Iterable[Path]],
    *,
    port: int | None = None,
    index: Path | None = None,
    can_review: bool = False,
    desk: Desk | None = None,
) -> Iterator[Dashboard]:
    """Return a dashboard over the run folders below some parents, bound to its port but not answering yet."""
    listener = _bound(port)
    number = listener.getsockname()[1]
    found = Index(parents, index)
    try:
        session = Session(number)
        hosts = [f"{name}:{number}" for name in (HOST, "localhost")] + (
            ["127.0.0.1", "localhost"] if number == 80 else []
        )
        store = Store(found)
        config = uvicorn.Config(
            make_app(store, session, hosts, can_review=can_review),
            log_level="warning",
            access_log=False,  # an address may hold the link's token
            server_header=False,
            date_header=False,
            lifespan="off",
            ws="none",
            proxy_headers=False,
            limit_concurrency=200,
            timeout_graceful_shutdown=1,
        )
        threading.Thread(target=found.look, daemon=True, name="waza-index").start()
        server = uvicorn.Server(config)
        store.desk = desk
        store.is_closing = lambda: server.should_exit
        yield Dashboard(server, listener, number, session)
    finally:
        listener.close()
        found.close()


def index_file(start: Path) -> Path:
    """Return where the index of a folder is kept: among the person's caches, never beside the runs."""
    caches = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or Path.home() / ".cache"
    name = hashlib.sha256(os.fsencode(start.resolve())).hexdigest()[:16]
    return Path(caches) / "waza" / f"index-{name}.sqlite"


def _bound(port: int | None) -> socket.socket:
    """Return a socket on the loopback address: at that port, or at the first free one from ours on."""
    wanted = [port] if port is not None else [*range(PORT, PORT + _TRIED), 0]
    for number in wanted:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, number))
            listener.listen(128)
            return listener
        except OSError as error:
            listener.close()
            told = error.strerror or str(error)
    raise UsageError(f"port {port} on {HOST} cannot be used: {told}; leave --port out and a free one is taken")


def has_terminal() -> bool:
    """Say whether somebody can press a key."""
    return sys.stdin is not None and sys.stdin.isatty()


def new_links_on_enter(made: Dashboard, say: Callable[[str], None]) -> None:
    """Print another link whenever somebody presses Enter in the terminal."""
    if not has_terminal():
        return

    def listen() -> None:
        for _ in sys.stdin:
            say(made.link())

    threading.Thread(target=listen, daemon=True, name="waza-links").start()
