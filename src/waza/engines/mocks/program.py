"""A stand-in for a program: asks waza what to say.

Started as `python -I -S program.py SOCKET NAME ARGUMENTS…`, from a copy in the trial's room: only the standard library.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys


def main(address: str, name: str, *args: str) -> int:
    """Say what waza says, and return the exit code."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    asked = {"command": name, "args": args, "cwd": os.getcwd(), "env": dict(os.environ)}  # noqa: PTH109  starts faster
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(address)
            line.sendall(json.dumps(asked).encode() + b"\n")
            with line.makefile("rb") as replies:
                told = json.loads(replies.read())
        out, err, code = told["stdout"], told["stderr"], told["exit_code"]
    except (OSError, ValueError, KeyError):
        out, err, code = "", f"{name}: waza does not answer for the mock of this program\n", 127
    sys.stdout.buffer.write(out.encode())
    sys.stdout.buffer.flush()
    sys.stderr.buffer.write(err.encode())
    return int(code)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
