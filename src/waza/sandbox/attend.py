"""Waza's side of one run of a program: feeds it, reads it, waits for the worker's report.

The worker ends the program; here nothing depends on what the program does with its streams: it may never read, never
stop printing, or hand its output to a process that lives on.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from waza.errors import exhausted
from waza.sandbox import wire
from waza.sandbox.capture import Capture, Captured
from waza.sandbox.workers import CREW, Line

CHUNK = 1 << 16
_SILENCE_S = 12.0
"""How long after the time limit a worker may be silent; then somebody stopped it."""
_MOST_WORKERS_TRIED = 12
_DRAIN_BYTES = 4 << 20
"""What may still be read when everything is dead; a pipe holds less."""


class Outcome(NamedTuple):
    """How a run went, and what it printed."""

    report: wire.Report
    stdout: Captured = Captured()
    stderr: Captured = Captured()


class Streams:
    """The program's standard streams, seen from waza."""

    def __init__(self, stdin: bytes, keep_bytes: int | None, on_output: Callable[[bytes], None] | None) -> None:
        self.captures = (Capture(keep_bytes), Capture(keep_bytes))
        self.poll = select.poll()
        self.theirs: list[int] = []
        self._on_output = on_output
        self._readers: dict[int, Capture] = {}
        self._left = memoryview(stdin)
        self._feeding = -1
        try:
            self._open()
        except OSError:
            self.close()
            raise

    def _open(self) -> None:
        for capture in self.captures:
            ours, theirs = os.pipe()
            self.theirs.append(theirs)
            self._readers[ours] = capture
            self.poll.register(ours, select.POLLIN)
        if self._left:
            theirs, self._feeding = os.pipe()
            self.theirs.append(theirs)
            os.set_blocking(self._feeding, False)
            self.poll.register(self._feeding, select.POLLOUT)
            self._feed()

    def serve(self, fd: int) -> None:
        """Read or write a stream that is ready."""
        if fd == self._feeding:
            self._feed()
        elif fd in self._readers:
            self._read(fd)

    def drain(self) -> None:
        """Read what the dead have left; whoever else holds the pipe is not waited for."""
        limit = sum(capture.total for capture in self.captures) + _DRAIN_BYTES
        if self._feeding >= 0:
            self._end_feeding()
        while self._readers and sum(capture.total for capture in self.captures) < limit:
            ready = self.poll.poll(0)
            if not any(fd in self._readers for fd, _ in ready):
                return
            for fd, _ in ready:
                self.serve(fd)

    def let_go(self) -> None:
        """Close the ends that are the program's."""
        while self.theirs:
            os.close(self.theirs.pop())

    def close(self) -> None:
        """Close everything."""
        self.let_go()
        for fd in list(self._readers):
            self._end_reading(fd)
        if self._feeding >= 0:
            self._end_feeding()

    def _read(self, fd: int) -> None:
        chunk = os.read(fd, CHUNK)
        if not chunk:
            self._end_reading(fd)
            return
        capture = self._readers[fd]
        capture.add(chunk)
        if self._on_output and capture is self.captures[0]:
            self._on_output(chunk)

    def _feed(self) -> None:
        try:
            self._left = self._left[os.write(self._feeding, self._left[: 1 << 20]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._left = self._left[:0]
        if not self._left:
            self._end_feeding()

    def _end_reading(self, fd: int) -> None:
        self.poll.unregister(fd)
        del self._readers[fd]
        os.close(fd)

    def _end_feeding(self) -> None:
        self.poll.unregister(self._feeding)
        os.close(self._feeding)
        self._feeding = -1


class Attendance:
    """One run of a program; `cancel` may be called from another thread."""

    def __init__(self, job: wire.Job, caps: wire.Caps, stdin: bytes, keep_bytes: int | None) -> None:
        self.job = job
        self.caps = caps
        self.stdin = stdin
        self.keep_bytes = keep_bytes
        self._lock = threading.Lock()
        self._line: Line | None = None
        self._cancelled = False

    def run(self, on_output: Callable[[bytes], None] | None = None) -> Outcome:
        """Run the program to its end; whatever happens here, nothing of it is alive afterwards."""
        for _ in range(_MOST_WORKERS_TRIED):
            if self._cancelled:
                return Outcome(wire.Report(error="it was cancelled before it started"))
            with contextlib.suppress(_NotTaken):
                return self._attempt(on_output)
        return Outcome(wire.Report(error="the supervisor of programs was killed again and again"))

    def cancel(self) -> None:
        """Ask for the end of the program; `run` returns when it is dead."""
        with self._lock:
            self._cancelled = True
            self._pass_on_cancel()

    def _attempt(self, on_output: Callable[[bytes], None] | None) -> Outcome:
        line = None
        try:
            line = CREW.take(self.caps)
            streams = Streams(self.stdin, self.keep_bytes, on_output)
        except OSError as error:
            if line:
                CREW.give_back(line)
            return Outcome(wire.Report(error=f"no supervisor could be started: {exhausted(error) or error}"))
        try:
            report = self._hand_over(line, streams)
            streams.drain()
        finally:
            streams.close()
        stdout, stderr = streams.captures
        return Outcome(report, stdout.finish(), stderr.finish())

    def _hand_over(self, line: Line, streams: Streams) -> wire.Report:
        """Let a worker run the program; raise _NotTaken when it was gone before it read the job."""
        try:
            wire.send_job(line.sock, self.job, streams.theirs)
        except ConnectionError:
            line.sock.close()
            raise _NotTaken from None
        streams.let_go()
        with self._lock:
            self._line = line
            self._pass_on_cancel()
        try:
            report = self._attend(line, streams)
        except BaseException:
            self._hang_up(line)
            raise
        with self._lock:
            self._line = None
        if report is None or report.error or report.survivors or self._cancelled:
            line.sock.close()
        else:
            CREW.give_back(line)
        return report or wire.Report(error="its supervisor does not answer; it may have been killed")

    def _attend(self, line: Line, streams: Streams) -> wire.Report | None:
        """Serve the streams until the worker reports; None when it never will."""
        sock_fd = line.sock.fileno()
        streams.poll.register(sock_fd, select.POLLIN)
        deadline = time.monotonic() + self.job.timeout_s + _SILENCE_S
        shaken = False
        while True:
            left = deadline - time.monotonic()
            if left <= 0 and shaken:
                return None
            if left <= 0:
                CREW.end(line)
                shaken, deadline = True, deadline + _SILENCE_S
            for fd, _ in streams.poll.poll(max(0.0, left) * 1000 + 1):
                if fd != sock_fd:
                    streams.serve(fd)
                    continue
                streams.poll.unregister(fd)
                try:
                    return wire.receive_report(line.sock)
                except ConnectionResetError:
                    raise _NotTaken from None

    def _pass_on_cancel(self) -> None:
        if self._line and self._cancelled:
            with contextlib.suppress(OSError):
                self._line.sock.sendall(wire.CANCEL)

    def _hang_up(self, line: Line) -> None:
        """Have the program killed at once, and wait for that."""
        with self._lock:
            self._line = None
        with contextlib.suppress(OSError):
            line.sock.shutdown(socket.SHUT_WR)
            line.sock.settimeout(_SILENCE_S)
            wire.receive_report(line.sock)
        line.sock.close()


class _NotTaken(Exception):
    """A worker that was gone before it read its job: the program never ran."""
