"""A mocked program: asks waza for its output and exit code.

Started as `python -I -S program.py SOCKET NAME ARGUMENTS…`, from a copy in the trial folder: only the standard library.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys


def main(address: str, name: str, *args: str) -> int:
    """Print what waza replies, and return the exit code."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    request = {"command": name, "args": args, "cwd": os.getcwd(), "env": dict(os.environ)}  # noqa: PTH109  starts faster
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(address)
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as replies:
                reply = json.loads(replies.read())
        out, err, code = reply["stdout"], reply["stderr"], reply["exit_code"]
    except (OSError, ValueError, KeyError):
        out, err, code = "", f"{name}: waza does not answer for the mock of this program\n", 127
    sys.stdout.buffer.write(out.encode())
    sys.stdout.buffer.flush()
    sys.stderr.buffer.write(err.encode())
    return int(code)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
