"""The messages between waza and its supervisor, over a socket that also carries file descriptors.

    waza → zygote    one fixed-size message per worker wanted: its limits, and the worker's end of a new socket pair
    worker → waza    its process id, once
    waza → worker    a Job with the program's streams; later perhaps CANCEL
    worker → waza    a Report

Both sides run the same Python, so marshal is enough. Only the standard library: the supervisor starts without packages.
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


class Sandbox(NamedTuple):
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
    sandbox: Sandbox | None
    """What it may reach; None is everything."""


class ProgramReport(NamedTuple):
    """How a program ended; no process of it is left except `survivors`."""

    status: int | None = None
    """As of `os.waitpid`; None when it was never started."""
    timed_out: bool = False
    leftovers: int = 0
    survivors: int = 0
    duration_s: float = 0.0
    error: str = ""


class Caps(NamedTuple):
    """Limits that the kernel enforces; 0 is none."""

    memory_bytes: int
    processes: int
    file_bytes: int


def request_worker(control: socket.socket, caps: Caps, worker_fd: int) -> None:
    """Ask the zygote for a worker that listens on `worker_fd`."""
    socket.send_fds(control, [_LIMITS.pack(*caps)], [worker_fd])


def next_worker(control: socket.socket) -> tuple[Caps, int] | None:
    """Return the limits and the socket of the next worker wanted; None when waza has ended."""
    message, fds = _receive(control, _LIMITS.size, 1)
    return (Caps(*_LIMITS.unpack(message)), fds[0]) if fds else None


def send_pid(sock: socket.socket, pid: int) -> None:
    """Send waza the process id of its worker."""
    sock.sendall(_PID.pack(pid))


def receive_pid(sock: socket.socket) -> int:
    """Return the worker's process id, or 0 when none could be started; raise ConnectionError when there is no reply."""
    message = sock.recv(_PID.size)
    if len(message) < _PID.size:
        raise ConnectionResetError
    return int(_PID.unpack(message)[0])


def send_job(sock: socket.socket, job: Job, streams: Sequence[int]) -> None:
    """Send a job to a worker, with standard output, standard error and perhaps standard input."""
    # marshal accepts tuples, and not their subclasses.
    body = marshal.dumps((*job[:-1], job.sandbox and tuple(job.sandbox)))
    message = _LENGTH.pack(len(body)) + body
    sent = socket.send_fds(sock, [message], streams)
    if sent < len(message):
        sock.sendall(message[sent:])


def receive_job(sock: socket.socket) -> tuple[Job, list[int]] | None:
    """Return the next job and its streams; None when waza has ended."""
    header, fds = _receive(sock, _LENGTH.size, 3)
    if len(header) < _LENGTH.size:
        return None
    length = _LENGTH.unpack(header)[0]
    body = bytearray()
    while len(body) < length:
        chunk = sock.recv(length - len(body))
        if not chunk:
            return None
        body += chunk
    job = Job(*marshal.loads(body))
    return job._replace(sandbox=job.sandbox and Sandbox(*job.sandbox)), fds


def send_report(sock: socket.socket, report: ProgramReport) -> None:
    """Send waza the report of a job."""
    sock.sendall(marshal.dumps(tuple(report)))


def receive_report(sock: socket.socket) -> ProgramReport | None:
    """Return how the job ended; None when the worker has ended without a report."""
    message = sock.recv(65536)
    return ProgramReport(*marshal.loads(message)) if message else None


def _receive(sock: socket.socket, size: int, max_fds: int) -> tuple[bytes, list[int]]:
    message, fds, _, _ = socket.recv_fds(sock, size, max_fds, _CLOEXEC)
    if not _CLOEXEC:
        for fd in fds:
            os.set_inheritable(fd, False)
    return message, fds
