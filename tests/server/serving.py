"""A dashboard that answers on the loopback address, for tests to ask."""

import http.client
import re
import socket
import threading
import time
from contextlib import contextmanager
from pathlib import Path

from waza.cli._runs import runs_parents
from waza.server.serve import dashboard


class Served:
    """A dashboard that answers, and a session on it."""

    def __init__(self, made):
        self.made = made
        self.port = made.port
        self.host = f"127.0.0.1:{made.port}"
        self.cookie = made.session.cookie().split(";")[0]

    def get(self, path, method="GET", headers=None, body=None):
        """The answer to a request of the session's own browser: status, headers, text."""
        connection = http.client.HTTPConnection(self.host, timeout=30)
        connection.request(method, path, body=body, headers={"Cookie": self.cookie} | (headers or {}))
        answer = connection.getresponse()
        text = answer.read().decode("utf-8")
        connection.close()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, text

    def raw(self, request):
        """The answer to exactly these bytes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as wire:
            wire.sendall(request)
            answer = b""
            while piece := _received(wire):
                answer += piece
                head, found, rest = answer.partition(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
                if found and length and len(rest) >= int(length[1]):
                    break
        return answer

    def url(self, path):
        return f"http://{self.host}{path}"


def _received(wire):
    """The next bytes; none where the other side hung up on us."""
    try:
        return wire.recv(1 << 16)
    except ConnectionResetError:
        return b""


@contextmanager
def served(folder, **more):
    """Serve the runs below a folder until the block ends."""
    with dashboard(lambda: runs_parents(Path(folder)), port=0, **more) as made:
        thread = threading.Thread(target=made.run, daemon=True)
        thread.start()
        while not made.server.started:
            assert thread.is_alive(), "the server does not start"
            time.sleep(0.01)
        yield Served(made)
        made.server.should_exit = True
        thread.join(timeout=20)
        assert not thread.is_alive(), "the server does not stop"
