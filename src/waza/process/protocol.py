"""What waza and its supervisor say to each other, over a socket that also carries file descriptors.

    waza → zygote    one fixed-size message per worker wanted: its limits, and the worker's end of a new line
    worker → waza    its process id, once
    waza → worker    a Job with the program's streams; later perhaps CANCEL
    worker → waza    a Report

Both sides run the same Python, so marshal will do. Only the standard library: the supervisor starts without packages.
"""

from __future__ import annotations

import marshal
import os
import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple

CANCEL = b"c"
_LENGTH = struct.Struct("=I")
_LIMITS = struct.Struct("=3q")
_PID = struct.Struct("=q")
_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class Fence(NamedTuple):
    """What a program isolated by Landlock may reach."""

    readable: list[bytes]
    writable: list[bytes]
    devices: list[bytes]
    """Files it may write to, but not change in any other way."""
    network: bool
    own_mounts: bool
    """Whether it also gets a file system of its own with nothing else in it."""


class Job(NamedTuple):
    """A program to run."""

    path: bytes
    argv: list[bytes]
    env: dict[bytes, bytes]
    cwd: bytes
    timeout_s: float
    processes: int
    """How many processes it may have at once; 0 is no limit."""
    fence: Fence | None
    """What Landlock lets it reach."""


class ProgramReport(NamedTuple):
    """What became of a program; nothing of it is alive, but for `survivors`."""

    status: int | None = None
    """As of `os.waitpid`; None when it was never started."""
    timed_out: bool = False
    leftovers: int = 0
    survivors: int = 0
    duration_s: float = 0.0
    error: str = ""


class Caps(NamedTuple):
    """Limits that the kernel holds; 0 is none."""

    memory_bytes: int
    processes: int
    file_bytes: int


def ask_for_worker(control: socket.socket, caps: Caps, line_fd: int) -> None:
    """Ask the zygote for a worker that listens on `line_fd`."""
    socket.send_fds(control, [_LIMITS.pack(*caps)], [line_fd])


def next_worker(control: socket.socket) -> tuple[Caps, int] | None:
    """Return the limits and the line of the next worker wanted; None when waza is gone."""
    message, fds = _receive(control, _LIMITS.size, 1)
    return (Caps(*_LIMITS.unpack(message)), fds[0]) if fds else None


def send_pid(line: socket.socket, pid: int) -> None:
    """Tell waza which process its worker is."""
    line.sendall(_PID.pack(pid))


def receive_pid(line: socket.socket) -> int:
    """Return the worker's process id, or 0 when none could be made; raise ConnectionError when nobody answers."""
    message = line.recv(_PID.size)
    if len(message) < _PID.size:
        raise ConnectionResetError
    return int(_PID.unpack(message)[0])


def send_job(line: socket.socket, job: Job, streams: Sequence[int]) -> None:
    """Hand a job to a worker, with standard output, standard error and perhaps standard input."""
    # marshal takes plain tuples, and not their subclasses.
    body = marshal.dumps((*job[:-1], job.fence and tuple(job.fence)))
    message = _LENGTH.pack(len(body)) + body
    sent = socket.send_fds(line, [message], streams)
    if sent < len(message):
        line.sendall(message[sent:])


def receive_job(line: socket.socket) -> tuple[Job, list[int]] | None:
    """Return the next job and its streams; None when waza is gone."""
    header, fds = _receive(line, _LENGTH.size, 3)
    if len(header) < _LENGTH.size:
        return None
    length = _LENGTH.unpack(header)[0]
    body = bytearray()
    while len(body) < length:
        chunk = line.recv(length - len(body))
        if not chunk:
            return None
        body += chunk
    job = Job(*marshal.loads(body))
    return job._replace(fence=job.fence and Fence(*job.fence)), fds


def send_report(line: socket.socket, report: ProgramReport) -> None:
    """Tell waza how a job ended."""
    line.sendall(marshal.dumps(tuple(report)))


def receive_report(line: socket.socket) -> ProgramReport | None:
    """Return how the job ended; None when nobody is left to tell."""
    message = line.recv(65536)
    return ProgramReport(*marshal.loads(message)) if message else None


def _receive(line: socket.socket, size: int, most_fds: int) -> tuple[bytes, list[int]]:
    message, fds, _, _ = socket.recv_fds(line, size, most_fds, _CLOEXEC)
    if not _CLOEXEC:
        for fd in fds:
            os.set_inheritable(fd, False)
    return message, fds
