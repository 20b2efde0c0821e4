"""Run a program in a worker of the supervisor: its output in bounded memory, idle workers, one session per program.

The zygote is started with the first program, and again if it was killed. A worker's limits apply to all programs it
starts, so idle workers are kept by limits. They all end with this process, however it ends. The worker ends the
program; nothing here depends on what the program does with its streams: it may never read, never stop printing, or
pass its output to a process that lives on.
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
    """One output stream of a program that has ended, decoded."""

    head: str = ""
    """The beginning; everything, when nothing was left out."""
    tail: str = ""
    """The end, when something between was left out."""
    total_bytes: int = 0
    """How much was printed."""
    omitted_bytes: int = 0
    """How much of it is not in head or tail."""
    lossy: bool = False
    """Whether bytes that are not UTF-8 were replaced."""

    @property
    def text(self) -> str:
        """Head and tail as one text, with a worker between them with the number of omitted bytes."""
        if not self.omitted_bytes:
            return self.head
        return f"{self.head}\n… {self.omitted_bytes} bytes omitted …\n{self.tail}"


class Capture:
    """Collects a stream chunk by chunk: at most `limit` bytes of it, or all of it for None."""

    __slots__ = ("_head", "_head_limit", "_tail", "_tail_limit", "total")

    def __init__(self, limit: int | None) -> None:
        self._head_limit = None if limit is None else limit - limit // 2
        self._tail_limit = 0 if limit is None else limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, chunk: bytes) -> None:
        """Add the next piece of the stream."""
        self.total += len(chunk)
        if self._head_limit is None:
            self._head += chunk
            return
        remaining = self._head_limit - len(self._head)
        if remaining > 0:
            self._head += chunk[:remaining]
            chunk = chunk[remaining:]
        self._tail += chunk
        surplus = len(self._tail) - self._tail_limit
        if surplus > 0:
            del self._tail[:surplus]

    def finish(self) -> Captured:
        """Return the collected output as text."""
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


MAX_IDLE = 8
"""Idle workers of a kind; each costs a process and little memory."""
_REPLY_S = 10.0
_START = "import sys; sys.path.append(sys.argv[1]); from waza.process.supervisor import main; main()"
_PACKAGES = str(Path(__file__).parents[2])


class WorkerConnection:
    """A worker process, as seen by waza: a socket to it, and its process id."""

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
        """Return a worker with these limits for exclusive use; raise OSError when none can be started."""
        with self._lock:
            if idle := self._idle.get(caps):
                return idle.pop()
            try:
                return self._new_worker(caps)
            except (ConnectionError, TimeoutError):
                self._end_zygote(patience_s=0)
                return self._new_worker(caps)

    def release(self, worker: WorkerConnection) -> None:
        """Keep an idle worker for the next job."""
        with self._lock:
            idle = self._idle.setdefault(worker.caps, [])
            if len(idle) < MAX_IDLE:
                idle.append(worker)
                return
        worker.sock.close()

    def end(self, worker: WorkerConnection) -> None:
        """End a worker that does not answer; the zygote ends what it ran."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)
        with self._lock, contextlib.suppress(ProcessLookupError):
            if self._zygote:
                os.kill(self._zygote.pid, signal.SIGCONT)

    def close(self) -> None:
        """End every worker and the zygote."""
        with self._lock:
            for sock in list(self._sockets):
                sock.close()
            self._end_zygote(_REPLY_S)

    def forget(self) -> None:
        """Drop what belongs to the parent; called in a forked child."""
        for sock in list(self._sockets):
            sock.close()
        if self._zygote:
            self._zygote.returncode = 0
        self._reset()

    def _new_worker(self, caps: protocol.Caps) -> WorkerConnection:
        control = self._control or self._start_zygote()
        ours, theirs = socket.socketpair()
        self._sockets.add(ours)
        try:
            with theirs:
                protocol.request_worker(control, caps, theirs.fileno())
            ours.settimeout(_REPLY_S)
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
        """End the zygote; when it exits by itself, it has ended its workers and all they ran."""
        for worker in (worker for workers in self._idle.values() for worker in workers):
            worker.sock.close()
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


CHUNK = 1 << 16
_SILENCE_S = 12.0
"""How long after the time limit a worker may be silent; after that it must have been stopped."""
_MAX_WORKERS_TRIED = 12
_DRAIN_BYTES = 4 << 20
"""What may still be read when all processes have ended; a pipe has less capacity."""


class ProgramOutcome(NamedTuple):
    """How a program ended, and its output."""

    report: protocol.ProgramReport
    stdout: Captured = Captured()
    stderr: Captured = Captured()


class Streams:
    """Waza's ends of the program's standard streams."""

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
        """Read what is left in the pipes, without waiting for other processes that hold them open."""
        limit = sum(capture.total for capture in self.captures) + _DRAIN_BYTES
        if self._feeding >= 0:
            self._end_feeding()
        while self._readers and sum(capture.total for capture in self.captures) < limit:
            ready = self.poll.poll(0)
            if not any(fd in self._readers for fd, _ in ready):
                return
            for fd, _ in ready:
                self.serve(fd)

    def close_theirs(self) -> None:
        """Close the program's ends."""
        while self.theirs:
            os.close(self.theirs.pop())

    def close(self) -> None:
        """Close everything."""
        self.close_theirs()
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


class ProgramSession:
    """One run of a program; `cancel` may be called from another thread."""

    def __init__(self, job: protocol.Job, caps: protocol.Caps, stdin: bytes, keep_bytes: int | None) -> None:
        self.job = job
        self.caps = caps
        self.stdin = stdin
        self.keep_bytes = keep_bytes
        self._lock = threading.Lock()
        self._worker: WorkerConnection | None = None
        self._cancelled = False

    def run(self, on_output: Callable[[bytes], None] | None = None) -> ProgramOutcome:
        """Run the program to its end; whatever happens here, no process of it is left afterwards."""
        for _ in range(_MAX_WORKERS_TRIED):
            if self._cancelled:
                return ProgramOutcome(protocol.ProgramReport(error="it was cancelled before it started"))
            with contextlib.suppress(_NotTaken):
                return self._attempt(on_output)
        return ProgramOutcome(protocol.ProgramReport(error="the supervisor of programs was killed again and again"))

    def cancel(self) -> None:
        """Request the end of the program; `run` returns when it has ended."""
        with self._lock:
            self._cancelled = True
            self._send_cancel()

    def _attempt(self, on_output: Callable[[bytes], None] | None) -> ProgramOutcome:
        worker = None
        try:
            worker = WORKER_POOL.take(self.caps)
            streams = Streams(self.stdin, self.keep_bytes, on_output)
        except OSError as error:
            if worker:
                WORKER_POOL.release(worker)
            return ProgramOutcome(
                protocol.ProgramReport(error=f"no supervisor could be started: {exhausted(error) or error}")
            )
        try:
            report = self._run_in(worker, streams)
            streams.drain()
        finally:
            streams.close()
        stdout, stderr = streams.captures
        return ProgramOutcome(report, stdout.finish(), stderr.finish())

    def _run_in(self, worker: WorkerConnection, streams: Streams) -> protocol.ProgramReport:
        """Let a worker run the program; raise _NotTaken when it had ended before it read the job."""
        try:
            protocol.send_job(worker.sock, self.job, streams.theirs)
        except ConnectionError:
            worker.sock.close()
            raise _NotTaken from None
        streams.close_theirs()
        with self._lock:
            self._worker = worker
            self._send_cancel()
        try:
            report = self._await_report(worker, streams)
        except BaseException:
            self._abort(worker)
            raise
        with self._lock:
            self._worker = None
        if report is None or report.error or report.survivors or self._cancelled:
            worker.sock.close()
        else:
            WORKER_POOL.release(worker)
        return report or protocol.ProgramReport(error="its supervisor does not answer; it may have been killed")

    def _await_report(self, worker: WorkerConnection, streams: Streams) -> protocol.ProgramReport | None:
        """Serve the streams until the worker reports; None when it never will."""
        sock_fd = worker.sock.fileno()
        streams.poll.register(sock_fd, select.POLLIN)
        deadline = time.monotonic() + self.job.timeout_s + _SILENCE_S
        killed = False
        while True:
            left = deadline - time.monotonic()
            if left <= 0 and killed:
                return None
            if left <= 0:
                WORKER_POOL.end(worker)
                killed, deadline = True, deadline + _SILENCE_S
            for fd, _ in streams.poll.poll(max(0.0, left) * 1000 + 1):
                if fd != sock_fd:
                    streams.serve(fd)
                    continue
                streams.poll.unregister(fd)
                try:
                    return protocol.receive_report(worker.sock)
                except ConnectionResetError:
                    raise _NotTaken from None

    def _send_cancel(self) -> None:
        if self._worker and self._cancelled:
            with contextlib.suppress(OSError):
                self._worker.sock.sendall(protocol.CANCEL)

    def _abort(self, worker: WorkerConnection) -> None:
        """Have the program killed at once, and wait for it."""
        with self._lock:
            self._worker = None
        with contextlib.suppress(OSError):
            worker.sock.shutdown(socket.SHUT_WR)
            worker.sock.settimeout(_SILENCE_S)
            protocol.receive_report(worker.sock)
        worker.sock.close()


class _NotTaken(Exception):
    """A worker that had ended before it read its job: the program never ran."""
