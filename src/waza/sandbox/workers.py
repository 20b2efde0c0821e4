"""Where waza gets a worker that runs a program, and where idle workers wait for the next one.

The zygote is started when the first program is run, and again if somebody killed it. Every worker holds the limits of
the programs it starts, so idle ones wait by limits. They all end when this process does, whatever ends it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from pathlib import Path

from waza.sandbox import wire

MOST_IDLE = 8
"""Idle workers of a kind; each costs a process and little memory."""
_ANSWER_S = 10.0
_START = "import sys; sys.path.append(sys.argv[1]); from waza.sandbox.supervisor import main; main()"
_PACKAGES = str(Path(__file__).parents[2])


class Line:
    """A worker, seen from waza: a socket to it, and its process id."""

    __slots__ = ("caps", "pid", "sock")

    def __init__(self, sock: socket.socket, caps: wire.Caps, pid: int) -> None:
        self.sock = sock
        self.caps = caps
        self.pid = pid


class Crew:
    """The zygote of this process and its workers."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[wire.Caps, list[Line]] = {}
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._zygote: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def take(self, caps: wire.Caps) -> Line:
        """Return a worker with these limits that nobody else uses; raise OSError when there can be none."""
        with self._lock:
            if idle := self._idle.get(caps):
                return idle.pop()
            try:
                return self._new_line(caps)
            except (ConnectionError, TimeoutError):
                self._end_zygote(patience_s=0)
                return self._new_line(caps)

    def give_back(self, line: Line) -> None:
        """Keep a worker that has reported for the next job."""
        with self._lock:
            idle = self._idle.setdefault(line.caps, [])
            if len(idle) < MOST_IDLE:
                idle.append(line)
                return
        line.sock.close()

    def end(self, line: Line) -> None:
        """End a worker that does not answer; the zygote ends what it ran."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(line.pid, signal.SIGKILL)
        with self._lock, contextlib.suppress(ProcessLookupError):
            if self._zygote:
                os.kill(self._zygote.pid, signal.SIGCONT)

    def close(self) -> None:
        """Let every worker and the zygote go."""
        with self._lock:
            for sock in list(self._sockets):
                sock.close()
            self._end_zygote(_ANSWER_S)

    def forget(self) -> None:
        """Let go of what belongs to the process that this one was forked from."""
        for sock in list(self._sockets):
            sock.close()
        if self._zygote:
            self._zygote.returncode = 0
        self._reset()

    def _new_line(self, caps: wire.Caps) -> Line:
        control = self._control or self._start_zygote()
        ours, theirs = socket.socketpair()
        self._sockets.add(ours)
        try:
            with theirs:
                wire.ask_for_worker(control, caps, theirs.fileno())
            ours.settimeout(_ANSWER_S)
            if not (pid := wire.receive_pid(ours)):
                raise BlockingIOError("too many processes")
        except OSError:
            ours.close()
            raise
        ours.settimeout(None)
        return Line(ours, caps, pid)

    def _start_zygote(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        self._sockets.add(ours)
        with theirs:
            self._zygote = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _START, _PACKAGES],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
                start_new_session=True,
            )
        self._control = ours
        return ours

    def _end_zygote(self, patience_s: float) -> None:
        """End the zygote; when it leaves by itself, it has ended its workers and all they ran."""
        for line in (line for lines in self._idle.values() for line in lines):
            line.sock.close()
        self._idle.clear()
        if self._control:
            self._control.close()
            self._control = None
        if self._zygote:
            try:
                self._zygote.wait(patience_s)
            except subprocess.TimeoutExpired:
                self._zygote.kill()
                self._zygote.wait()
            self._zygote = None


CREW = Crew()
atexit.register(CREW.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=CREW.forget)
