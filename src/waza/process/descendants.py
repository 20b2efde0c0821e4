"""Everything a process started, found and ended.

A child subreaper inherits every orphan below it, so on Linux nothing below it can get out of sight: when it has no
child left, no descendant is left. Other systems have no such thing; there the process group has to do, and a daemon
that leaves its group gets away. Only the standard library: the supervisor starts without packages.
"""
# pathlib is slow to load, and every fork pays for its pages
# ruff: noqa: PTH110, PTH112, PTH123, PTH208

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Collection

SWEEP_S = 5.0
"""How long to go on ending processes that come back or may not be ended."""
_SET_CHILD_SUBREAPER = 36
_STOPPING_ROUNDS = 64


def adopt_orphans() -> None:
    """Make this process the parent of every orphan below it (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(spare: Collection[int] = ()) -> list[int]:
    """Return every process below this one, parents before children, without `spare` and what is below them."""
    children = children_listed if os.path.exists(f"/proc/self/task/{os.getpid()}/children") else children_scanned()
    found: list[int] = []
    level = [os.getpid()]
    while level:
        level = [child for pid in level for child in children(pid) if child not in spare]
        found += level
    return found


def children_listed(pid: int) -> list[int]:
    """Return the children of `pid` from the lists that most kernels keep; none when it is gone."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    except OSError:
        pass
    return found


def children_scanned() -> Callable[[int], list[int]]:
    """Return what tells the children of a process, from a look at all processes; for kernels without lists."""
    children: dict[int, list[int]] = {}
    for pid in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        if fields := _stat(int(pid)):
            children.setdefault(int(fields[1]), []).append(int(pid))
    return lambda pid: children.get(pid, [])


def living(pids: Collection[int]) -> int:
    """Return how many of `pids` are more than an entry in the process table."""
    return sum(fields[0] not in (b"Z", b"X") for pid in pids if (fields := _stat(pid)))


def sweep(gone: Callable[[], bool], spare: Collection[int] = ()) -> int:
    """End every process below this one until `gone` says so; return how many could not be ended."""
    deadline = time.monotonic() + SWEEP_S
    while not gone():
        _stop(gone, spare)
        for pid in descendants(spare):
            send(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return max(1, living(descendants(spare)))
        time.sleep(0.0002)
    return 0


def send(pid: int, number: int) -> None:
    """Send a signal to a process that may be gone, or not ours to end."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def send_group(pid: int, number: int) -> None:
    """Send a signal to a process group that may be gone, or not ours to end."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _stop(gone: Callable[[], bool], spare: Collection[int]) -> None:
    """Stop everything below this process: what is stopped cannot fork, so what forks for ever is caught once."""
    stopped: set[int] = set()
    for _ in range(_STOPPING_ROUNDS):
        fresh = [pid for pid in descendants(spare) if pid not in stopped]
        if not fresh or gone():
            return
        for pid in fresh:
            send(pid, signal.SIGSTOP)
        stopped.update(fresh)


def _stat(pid: int) -> list[bytes]:
    """Return state, parent and more of a process, or nothing when it is gone."""
    try:
        return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return []


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()
