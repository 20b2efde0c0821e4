"""What an agent starts as its MCP server: hands standard input and output on to waza.

Started as `python -I -S relay.py SOCKET NAME`, from a copy in the trial's room: only the standard library.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading

_BYTES = 1 << 16


def main(address: str, name: str) -> int:
    """Pass everything on until waza hangs up."""
    line = socket.socket(socket.AF_UNIX)
    try:
        line.connect(address)
        line.sendall(json.dumps({"server": name}).encode() + b"\n")
    except OSError:
        sys.stderr.write(f"{name}: waza does not answer for the mock of this server\n")
        return 1
    threading.Thread(target=_upwards, args=(line,), daemon=True).start()
    while piece := line.recv(_BYTES):
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    return 0


def _upwards(line: socket.socket) -> None:
    while piece := os.read(0, _BYTES):
        line.sendall(piece)
    line.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
