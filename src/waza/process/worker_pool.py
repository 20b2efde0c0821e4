"""What a program printed, in bounded memory: the head and the tail, and how much lies between.

Bytes are decoded once, at the end; nothing a program prints can make that fail.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from waza.errors import exhausted
from waza.process import protocol


class Captured(Struct, frozen=True):
    """One stream of a program that has ended."""

    head: str = ""
    """The beginning; everything, when nothing was left out."""
    tail: str = ""
    """The end, when something between was left out."""
    total_bytes: int = 0
    """How much was printed."""
    omitted_bytes: int = 0
    """How much of it was not kept."""
    lossy: bool = False
    """Whether bytes that are not UTF-8 were replaced."""

    @property
    def text(self) -> str:
        """Head and tail as one text, with a line between them that says how much was left out."""
        if not self.omitted_bytes:
            return self.head
        return f"{self.head}\n… {self.omitted_bytes} bytes omitted …\n{self.tail}"


class Capture:
    """Collects a stream chunk by chunk and keeps at most `limit` bytes of it, or all of it for None."""

    __slots__ = ("_head", "_head_limit", "_tail", "_tail_limit", "total")

    def __init__(self, limit: int | None) -> None:
        self._head_limit = None if limit is None else limit - limit // 2
        self._tail_limit = 0 if limit is None else limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, chunk: bytes) -> None:
        """Take the next piece of the stream."""
        self.total += len(chunk)
        if self._head_limit is None:
            self._head += chunk
            return
        trial_folder = self._head_limit - len(self._head)
        if trial_folder > 0:
            self._head += chunk[:trial_folder]
            chunk = chunk[trial_folder:]
        self._tail += chunk
        surplus = len(self._tail) - self._tail_limit
        if surplus > 0:
            del self._tail[:surplus]

    def finish(self) -> Captured:
        """Return what was kept, as text."""
        if self.total == len(self._head) + len(self._tail):
            text, lossy = _decode(self._head + self._tail)
            return Captured(text, "", self.total, 0, lossy)
        _trim_end(self._head)
        _trim_start(self._tail)
        head, head_lossy = _decode(self._head)
        tail, tail_lossy = _decode(self._tail)
        omitted = self.total - len(self._head) - len(self._tail)
        return Captured(head, tail, self.total, omitted, head_lossy or tail_lossy)


def _decode(raw: bytearray) -> tuple[str, bool]:
    try:
        return raw.decode(), False
    except UnicodeDecodeError:
        return raw.decode(errors="replace"), True


def _trim_end(raw: bytearray) -> None:
    """Drop a character that the cut split, so that the cut itself loses nothing."""
    for back in range(1, min(4, len(raw) + 1)):
        byte = raw[-back]
        if byte >= 0xC0:
            width = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            if width > back:
                del raw[-back:]
            return
        if byte < 0x80:
            return


def _trim_start(raw: bytearray) -> None:
    width = 0
    while width < min(3, len(raw)) and 0x80 <= raw[width] < 0xC0:
        width += 1
    del raw[:width]


# Where waza gets a worker that runs a program, and where idle workers wait for the next one.
#
# The zygote is started when the first program is run, and again if somebody killed it. Every worker holds the limits
# of
# the programs it starts, so idle ones wait by limits. They all end when this process does, whatever ends it.

MOST_IDLE = 8
"""Idle workers of a kind; each costs a process and little memory."""
_ANSWER_S = 10.0
_START = "import sys; sys.path.append(sys.argv[1]); from waza.process.supervisor import main; main()"
_PACKAGES = str(Path(__file__).parents[2])


class WorkerConnection:
    """A worker, seen from waza: a socket to it, and its process id."""

    __slots__ = ("caps", "pid", "sock")

    def __init__(self, sock: socket.socket, caps: protocol.Caps, pid: int) -> None:
        self.sock = sock
        self.caps = caps
        self.pid = pid


class WorkerPool:
    """The zygote of this process and its workers."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[protocol.Caps, list[WorkerConnection]] = {}
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._zygote: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def take(self, caps: protocol.Caps) -> WorkerConnection:
        """Return a worker with these limits that nobody else uses; raise OSError when there can be none."""
        with self._lock:
            if idle := self._idle.get(caps):
                return idle.pop()
            try:
                return self._new_line(caps)
            except (ConnectionError, TimeoutError):
                self._end_zygote(patience_s=0)
                return self._new_line(caps)

    def give_back(self, line: WorkerConnection) -> None:
        """Keep a worker that has reported for the next job."""
        with self._lock:
            idle = self._idle.setdefault(line.caps, [])
            if len(idle) < MOST_IDLE:
                idle.append(line)
                return
        line.sock.close()

    def end(self, line: WorkerConnection) -> None:
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

    def _new_line(self, caps: protocol.Caps) -> WorkerConnection:
        control = self._control or self._start_zygote()
        ours, theirs = socket.socketpair()
        self._sockets.add(ours)
        try:
            with theirs:
                protocol.ask_for_worker(control, caps, theirs.fileno())
            ours.settimeout(_ANSWER_S)
            if not (pid := protocol.receive_pid(ours)):
                raise BlockingIOError("too many processes")
        except OSError:
            ours.close()
            raise
        ours.settimeout(None)
        return WorkerConnection(ours, caps, pid)

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


WORKER_POOL = WorkerPool()
atexit.register(WORKER_POOL.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=WORKER_POOL.forget)


# Waza's side of one run of a program: feeds it, reads it, waits for the worker's report.
#
# The worker ends the program; here nothing depends on what the program does with its streams: it may never read, never
# stop printing, or hand its output to a process that lives on.

CHUNK = 1 << 16
_SILENCE_S = 12.0
"""How long after the time limit a worker may be silent; then somebody stopped it."""
_MOST_WORKERS_TRIED = 12
_DRAIN_BYTES = 4 << 20
"""What may still be read when everything is dead; a pipe holds less."""


class ProgramOutcome(NamedTuple):
    """How a run went, and what it printed."""

    report: protocol.ProgramReport
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

    def __init__(self, job: protocol.Job, caps: protocol.Caps, stdin: bytes, keep_bytes: int | None) -> None:
        self.job = job
        self.caps = caps
        self.stdin = stdin
        self.keep_bytes = keep_bytes
        self._lock = threading.Lock()
        self._line: WorkerConnection | None = None
        self._cancelled = False

    def run(self, on_output: Callable[[bytes], None] | None = None) -> ProgramOutcome:
        """Run the program to its end; whatever happens here, nothing of it is alive afterwards."""
        for _ in range(_MOST_WORKERS_TRIED):
            if self._cancelled:
                return ProgramOutcome(protocol.ProgramReport(error="it was cancelled before it started"))
            with contextlib.suppress(_NotTaken):
                return self._attempt(on_output)
        return ProgramOutcome(protocol.ProgramReport(error="the supervisor of programs was killed again and again"))

    def cancel(self) -> None:
        """Ask for the end of the program; `run` returns when it is dead."""
        with self._lock:
            self._cancelled = True
            self._pass_on_cancel()

    def _attempt(self, on_output: Callable[[bytes], None] | None) -> ProgramOutcome:
        line = None
        try:
            line = WORKER_POOL.take(self.caps)
            streams = Streams(self.stdin, self.keep_bytes, on_output)
        except OSError as error:
            if line:
                WORKER_POOL.give_back(line)
            return ProgramOutcome(
                protocol.ProgramReport(error=f"no supervisor could be started: {exhausted(error) or error}")
            )
        try:
            report = self._hand_over(line, streams)
            streams.drain()
        finally:
            streams.close()
        stdout, stderr = streams.captures
        return ProgramOutcome(report, stdout.finish(), stderr.finish())

    def _hand_over(self, line: WorkerConnection, streams: Streams) -> protocol.ProgramReport:
        """Let a worker run the program; raise _NotTaken when it was gone before it read the job."""
        try:
            protocol.send_job(line.sock, self.job, streams.theirs)
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
            WORKER_POOL.give_back(line)
        return report or protocol.ProgramReport(error="its supervisor does not answer; it may have been killed")

    def _attend(self, line: WorkerConnection, streams: Streams) -> protocol.ProgramReport | None:
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
                WORKER_POOL.end(line)
                shaken, deadline = True, deadline + _SILENCE_S
            for fd, _ in streams.poll.poll(max(0.0, left) * 1000 + 1):
                if fd != sock_fd:
                    streams.serve(fd)
                    continue
                streams.poll.unregister(fd)
                try:
                    return protocol.receive_report(line.sock)
                except ConnectionResetError:
                    raise _NotTaken from None

    def _pass_on_cancel(self) -> None:
        if self._line and self._cancelled:
            with contextlib.suppress(OSError):
                self._line.sock.sendall(protocol.CANCEL)

    def _hang_up(self, line: WorkerConnection) -> None:
        """Have the program killed at once, and wait for that."""
        with self._lock:
            self._line = None
        with contextlib.suppress(OSError):
            line.sock.shutdown(socket.SHUT_WR)
            line.sock.settimeout(_SILENCE_S)
            protocol.receive_report(line.sock)
        line.sock.close()


class _NotTaken(Exception):
    """A worker that was gone before it read its job: the program never ran."""
