"""Find and end everything a process started.

A child subreaper (prctl(2), PR_SET_CHILD_SUBREAPER) becomes the parent of every orphan below it, so on Linux no
descendant is missed: when it has no child left, no descendant is left. Other systems only have the process group, and
a daemon that leaves its group is missed. Only the standard library: the supervisor starts without packages.
"""
# No pathlib: it is slow to load, and its pages cost every fork.
# ruff: noqa: PTH110, PTH112, PTH123, PTH208

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Collection

from waza.process.linux_sandbox import libc

SWEEP_S = 5.0
"""How long to keep killing processes that fork again or cannot be killed."""
_SET_CHILD_SUBREAPER = 36
_STOPPING_ROUNDS = 64


def adopt_orphans() -> None:
    """Make this process the parent of every orphan below it (Linux)."""
    if sys.platform == "linux":
        libc().prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


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
    """Return the children of `pid` from the lists that most kernels have; none when it has ended."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    except OSError:
        pass
    return found


def children_scanned() -> Callable[[int], list[int]]:
    """Return a function for the children of a process, from a scan of all processes; for kernels without lists."""
    children: dict[int, list[int]] = {}
    for pid in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        if fields := _stat(int(pid)):
            children.setdefault(int(fields[1]), []).append(int(pid))
    return lambda pid: children.get(pid, [])


def living(pids: Collection[int]) -> int:
    """Return how many of `pids` are running and not just zombies."""
    return sum(fields[0] not in (b"Z", b"X") for pid in pids if (fields := _stat(pid)))


def sweep(gone: Callable[[], bool], spare: Collection[int] = ()) -> int:
    """Kill every process below this one until `gone` returns true; return how many could not be killed."""
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
    """Send a signal to a process that may have ended, or that we may not signal."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def send_group(pid: int, number: int) -> None:
    """Send a signal to a process group that may have ended, or that we may not signal."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _stop(gone: Callable[[], bool], spare: Collection[int]) -> None:
    """Stop everything below this process: a stopped process cannot fork, so that fork bombs are caught."""
    stopped: set[int] = set()
    for _ in range(_STOPPING_ROUNDS):
        fresh = [pid for pid in descendants(spare) if pid not in stopped]
        if not fresh or gone():
            return
        for pid in fresh:
            send(pid, signal.SIGSTOP)
        stopped.update(fresh)


def _stat(pid: int) -> list[bytes]:
    """Return state, parent and more of a process, or an empty list when it has ended."""
    try:
        return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return []


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()
