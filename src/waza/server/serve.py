"""The server: one process on the loopback address, until it is stopped."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from waza.errors import UsageError
from waza.files.trust import cache_folder
from waza.server.app import make_app
from waza.server.guard import BrowserSession
from waza.server.index import Index
from waza.server.store import ReviewQueue, RunReader

HOST = "127.0.0.1"
PORT = 8731
_TRIED = 20
"""How many ports from the first one on are tried before any free one is taken."""


REQUEST_S = 20.0
"""So long a browser may take to send a request, from its first byte or from the connection on."""
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class TimedProtocol(H11Protocol):
    """HTTP/1.1 with a limit on the time a request takes to arrive: uvicorn waits forever for one that was begun.

    Otherwise a few hundred connections that send one byte now and then would keep all others out. An answer may take
    any time.
    """

    def __init__(self, *args: Any, request_s: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self._request_s = request_s
        self._limit: asyncio.TimerHandle | None = None
        self._has_begun = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock."""
        super().connection_made(transport)
        self._limit = self.loop.call_later(self._request_s, self._end)

    def data_received(self, data: bytes) -> None:
        """Take received data; the timeout applies until the request is complete."""
        super().data_received(data)
        self._time()

    def on_response_complete(self) -> None:
        """Go on with what arrived meanwhile: the beginning of the next request, perhaps."""
        super().on_response_complete()
        self._time()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._stop()
        super().connection_lost(exc)

    def _time(self) -> None:
        """Let the clock run exactly while a request is incomplete; uvicorn ends connections that are idle."""
        buffered, _ = self.conn.trailing_data
        self._has_begun = self.conn.their_state is h11.SEND_BODY or (
            self.conn.their_state is h11.IDLE and bool(buffered)
        )
        if not self._has_begun:
            self._stop()
        elif self._limit is None:
            self._limit = self.loop.call_later(self._request_s, self._end)

    def _stop(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _end(self) -> None:
        self._limit = None
        if self._has_begun and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_TOO_SLOW)
        self.transport.close()


class Dashboard(NamedTuple):
    """A server that is ready to answer."""

    server: uvicorn.Server
    listener: socket.socket
    port: int
    session: BrowserSession

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
    review_queue: ReviewQueue | None = None,
    request_s: float = REQUEST_S,
) -> Iterator[Dashboard]:
    """Return a dashboard over the run folders below some parents, bound to its port but not answering yet."""
    listener = _bound(port)
    number = listener.getsockname()[1]
    found = Index(parents, index)
    try:
        session = BrowserSession(number)
        hosts = [f"{name}:{number}" for name in (HOST, "localhost")] + (
            ["127.0.0.1", "localhost"] if number == 80 else []
        )
        store = RunReader(found)
        config = uvicorn.Config(
            make_app(store, session, hosts, can_review=can_review),
            log_level="warning",
            access_log=False,  # an address may hold the link's token
            server_header=False,
            date_header=False,
            lifespan="off",
            http=cast(type[asyncio.Protocol], partial(TimedProtocol, request_s=request_s)),
            ws="none",
            proxy_headers=False,
            limit_concurrency=200,
            timeout_graceful_shutdown=1,
        )
        threading.Thread(target=found.refresh, daemon=True, name="waza-index").start()
        server = uvicorn.Server(config)
        store.review_queue = review_queue
        store.is_closing = lambda: server.should_exit
        yield Dashboard(server, listener, number, session)
    finally:
        listener.close()
        found.close()


def index_file(start: Path) -> Path:
    """Return the index file of a folder: among the user's caches, never next to the runs."""
    name = hashlib.sha256(os.fsencode(start.resolve())).hexdigest()[:16]
    return cache_folder() / f"index-{name}.sqlite"


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
            reason = error.strerror or str(error)
    raise UsageError(f"port {port} on {HOST} cannot be used: {reason}; leave --port out and a free one is taken")


def has_terminal() -> bool:
    """Return whether standard input is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def new_links_on_enter(made: Dashboard, say: Callable[[str], None]) -> None:
    """Print another link whenever Enter is pressed in the terminal."""
    if not has_terminal():
        return

    def listen() -> None:
        for _ in sys.stdin:
            say(made.link())

    threading.Thread(target=listen, daemon=True, name="waza-links").start()
