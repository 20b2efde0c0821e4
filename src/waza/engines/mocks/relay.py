"""The program an agent starts as a mocked MCP server: forwards standard input and output to waza.

Started as `python -I -S relay.py SOCKET NAME`, from a copy in the trial folder: only the standard library.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading

_BYTES = 1 << 16


def main(address: str, name: str) -> int:
    """Forward everything until waza closes the connection."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address)
        connection.sendall(json.dumps({"server": name}).encode() + b"\n")
    except OSError:
        sys.stderr.write(f"{name}: waza does not answer for the mock of this server\n")
        return 1
    threading.Thread(target=_forward_input, args=(connection,), daemon=True).start()
    while chunk := connection.recv(_BYTES):
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
    return 0


def _forward_input(connection: socket.socket) -> None:
    while chunk := os.read(0, _BYTES):
        connection.sendall(chunk)
    connection.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
