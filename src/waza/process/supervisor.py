"""The process above every program: hands out workers, and is there when one of them is killed.

    waza ─ zygote ─┬─ worker ─ program ─ …      a worker runs one program at a time, and then the next
                   └─ worker ─ program ─ …

The zygote is a child subreaper, so what a killed worker leaves comes to it. When waza is gone, so is everything here.
Started by `waza.process.worker_pool` as `python -I -S`: only the standard library, and little of it.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Literal, NoReturn

from waza.process import landlock, mounts, protocol, seccomp
from waza.process.descendants import SWEEP_S, adopt_orphans, descendants, living, send_group, sweep


class Zygote:
    """Makes workers on demand, and ends what a killed worker leaves."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.bell = ChildSignal()
        self.alive, self.held = os.pipe()
        self.workers: dict[int, socket.socket] = {}
        self.killed: list[socket.socket] = []

    def serve(self) -> None:
        """Make workers until waza is gone, then see to it that everybody leaves."""
        poll = select.poll()
        for fd in (self.control.fileno(), self.bell.fd):
            poll.register(fd, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self.control.fileno() in ready and not self._make_worker():
                break
            self.bell.quiet()
            self._reap()
            self._end_orphans()
        deadline = time.monotonic() + GRACE_S + 2 * SWEEP_S
        while self._reap() and time.monotonic() < deadline:
            self._end_orphans()
            time.sleep(0.005)
        sweep(lambda: not self._reap())

    def _make_worker(self) -> bool:
        order = protocol.next_worker(self.control)
        if order is None:
            return False
        caps, fd = order
        line = socket.socket(fileno=fd)
        try:
            pid = os.fork()
        except OSError:
            protocol.send_pid(line, 0)
            return True
        if not pid:
            self._be_worker(caps, line)
        self.workers[pid] = line
        return True

    def _be_worker(self, caps: protocol.Caps, line: socket.socket) -> NoReturn:
        code = 1
        try:
            for other in (self.control, *self.workers.values()):
                other.close()
            os.close(self.held)
            os.close(self.bell.fd)
            adopt_orphans()
            cap(caps)
            Worker(line, self.alive).serve()
            code = 0
        except OSError:
            pass
        finally:
            os._exit(code)

    def _reap(self) -> bool:
        """Collect the dead and say whether anybody is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            line = self.workers.pop(pid, None)
            if line and status:
                self.killed.append(line)
            elif line:
                line.close()

    def _end_orphans(self) -> None:
        """End what killed workers were running, and tell those who wait for it."""
        if not self.killed:
            return
        sweep(self._only_workers, self.workers)
        for line in self.killed:
            with contextlib.suppress(OSError):
                protocol.send_report(
                    line, protocol.ProgramReport(error="its supervisor was killed; what it ran was ended")
                )
            line.close()
        self.killed.clear()

    def _only_workers(self) -> bool:
        self._reap()
        return not any(descendants(self.workers) for _ in range(3))


def main() -> None:
    """Serve the waza at the other end of standard input."""
    control = socket.socket(fileno=os.dup(0))
    os.dup2(1, 0)
    adopt_orphans()
    zygote = Zygote(control)
    gc.collect()
    gc.freeze()
    gc.disable()
    zygote.serve()


# One worker of the supervisor: runs one program at a time, and leaves nothing of it behind.
#
# A worker is a child subreaper, so it sees the end of everything a program started. It ends a program when time runs
# out, when waza says so, and when waza or the zygote is gone: its line to waza and its pipe to the zygote are
# lifelines.
# Only the standard library: the supervisor starts without packages.

# pathlib is slow to load, and every fork pays for its pages
# ruff: noqa: PTH110, PTH123


GRACE_S = 1.0
"""Between asking a program to end and ending it."""
LINGER_S = 0.1
"""What a program's helpers get to finish after it has ended."""
COUNT_EVERY_S = 0.25
"""How often a program's processes are counted."""
ROOM = 4
"""The kernel counts a user's processes, not a program's: its limit leaves room for this many programs."""
_TO_DEFAULT = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
)
"""Signals that Python or whoever started waza may ignore, which programs would inherit."""
_ISOLATION = b"isolation"
"""What an error of the isolation names in place of a file."""
Wake = Literal["done", "time", "cancel", "lost", "crowd"]


class ChildSignal:
    """A descriptor that can be read when a child has ended."""

    def __init__(self) -> None:
        self.fd, ring = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(ring, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(ring, warn_on_full_buffer=False)

    def quiet(self) -> None:
        """Forget what rang so far."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 4096)


class Worker:
    """Runs one program after the other for whoever holds the other end of the line."""

    def __init__(self, line: socket.socket, zygote_fd: int) -> None:
        self.line = line
        self.bell = ChildSignal()
        self.zygote_fd = zygote_fd
        self.poll = select.poll()
        for fd in (line.fileno(), self.bell.fd, zygote_fd):
            self.poll.register(fd, select.POLLIN)

    def serve(self) -> None:
        """Run jobs until nobody is there to want one."""
        protocol.send_pid(self.line, os.getpid())
        while self._wanted() and (order := protocol.receive_job(self.line)):
            report = WorkerRun(self, *order).finish()
            protocol.send_report(self.line, report)
            if report.survivors:
                return

    def _wanted(self) -> bool:
        while True:
            ready = {fd for fd, _ in self.poll.poll()}
            if self.zygote_fd in ready:
                return False
            if self.line.fileno() in ready:
                return True
            self.bell.quiet()


class WorkerRun:
    """One program, from its start until nothing of it is left."""

    def __init__(self, worker: Worker, job: protocol.Job, streams: list[int]) -> None:
        self.worker = worker
        self.job = job
        self.streams = streams
        self.main = 0
        self.status: int | None = None
        self.next_count = 0.0

    def finish(self) -> protocol.ProgramReport:
        """Run the program and everything it starts to the end, and tell how it went."""
        started = time.monotonic()
        self.next_count = started + COUNT_EVERY_S
        try:
            os.chdir(self.job.cwd)
            self.main = start(self.job, self.streams)
        except OSError as error:
            return protocol.ProgramReport(error=explain(error, self.job))
        finally:
            for fd in self.streams:
                os.close(fd)
        end = self._wait(self._ended, self.job.timeout_s)
        duration = time.monotonic() - started
        leftovers, survivors = self._clear(end)
        os.chdir("/")
        return protocol.ProgramReport(self.status, end == "time", leftovers, survivors, duration, self._blame(end))

    def _blame(self, end: Wake) -> str:
        if end == "crowd":
            return f"it had more than {self.job.processes} processes at once and was ended"
        if end == "lost":
            return "the supervisor was killed while it ran; it was ended, too"
        return ""

    def _clear(self, end: Wake) -> tuple[int, int]:
        """Let the program and its helpers end, then end them; return how many were left, and how many still are."""
        if end in ("time", "cancel"):
            send_group(self.main, signal.SIGTERM)
            send_group(self.main, signal.SIGCONT)
            end = self._wait(self._ended, GRACE_S)
        if end == "done":
            self._wait(self._alone, LINGER_S)
        if self._alone():
            return 0, 0
        leftovers = max(int(self.status is not None), living([pid for pid in descendants() if pid != self.main]))
        if sys.platform != "linux":
            send_group(self.main, signal.SIGKILL)
        return leftovers, sweep(self._alone)

    def _wait(self, done: Callable[[], bool], seconds: float) -> Wake:
        """Wait until `done`, and return what came first."""
        deadline = time.monotonic() + seconds
        while not done():
            now = time.monotonic()
            if now >= deadline:
                return "time"
            if now >= self.next_count:
                self.next_count = now + COUNT_EVERY_S
                if 0 < self.job.processes < len(descendants()):
                    return "crowd"
            if wake := self._listen(min(deadline, self.next_count) - now):
                return wake
        return "done"

    def _listen(self, seconds: float) -> Wake | None:
        """Wait for a child or a word from waza; return what it means."""
        ready = {fd for fd, _ in self.worker.poll.poll(max(0.0, seconds) * 1000 + 1)}
        if self.worker.bell.fd in ready:
            self.worker.bell.quiet()
        if self.worker.zygote_fd in ready:
            return "lost"
        if self.worker.line.fileno() in ready:
            return "cancel" if self.worker.line.recv(1) == protocol.CANCEL else "lost"
        return None

    def _ended(self) -> bool:
        self._alone()
        return self.status is not None

    def _alone(self) -> bool:
        """Collect the dead and say whether nobody is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if not pid:
                return False
            if pid == self.main:
                self.status = status


def start(job: protocol.Job, streams: list[int]) -> int:
    """Start the program in a session of its own, without a terminal; return its process id."""
    if job.fence is not None:
        return _start_fenced(job, job.fence, streams, _built(job.fence))
    actions = [(os.POSIX_SPAWN_DUP2, fd, number) for fd, number in zip(streams, (1, 2, 0), strict=False)]
    return os.posix_spawn(
        job.path,
        job.argv,
        job.env,
        file_actions=actions,
        setsid=True,
        setsigmask=(),
        setsigdef=_TO_DEFAULT,
    )


def _built(asked: protocol.Fence) -> int:
    return landlock.build(asked.readable, (*asked.devices, *asked.writable), asked.network)


def _start_fenced(job: protocol.Job, asked: protocol.Fence, streams: list[int], fence: int) -> int:
    """Start the program behind a Landlock fence, which only the new process itself can put up."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        _become(job, asked, streams, fence, writing)
    os.close(fence)
    os.close(writing)
    with open(reading, "rb") as pipe:
        number, _, path = pipe.read().partition(b" ")
    if number:
        os.waitpid(pid, 0)
        raise OSError(int(number), os.strerror(int(number)), path)
    return pid


def _become(job: protocol.Job, asked: protocol.Fence, streams: list[int], fence: int, writing: int) -> NoReturn:
    try:
        os.setsid()
        for fd, number in zip(streams, (1, 2, 0), strict=False):
            os.dup2(fd, number)
        for number in _TO_DEFAULT:
            signal.signal(number, signal.SIG_DFL)
        _confine(asked, fence)
        os.chdir(job.cwd)
        os.execve(job.path, job.argv, job.env)
    except OSError as error:
        os.write(writing, b"%d %s" % (error.errno or 0, error.filename or b""))
    finally:
        os._exit(127)


def _confine(asked: protocol.Fence, fence: int) -> None:
    """Give up everything that was not asked for; in this order, since each step takes away what the one before needs.

    Without mounts of its own, or where Landlock does not know abstract sockets, a program would reach the Unix sockets
    of everybody: then it gets none but socket pairs.
    """
    try:
        if asked.own_mounts:
            mounts.enter((*asked.readable, *asked.devices), asked.writable)
        landlock.enter(fence)
        if seccomp.is_available():
            seccomp.restrict(network=asked.network, unix_sockets=asked.own_mounts and landlock.abi() >= 6)
    except OSError as error:
        error.filename = _ISOLATION
        raise


def explain(error: OSError, job: protocol.Job) -> str:
    """Return why a program could not be started."""
    path = os.fsdecode(job.path)[:500]
    if error.filename == _ISOLATION:
        return f"the isolation could not be set up: {error.strerror}; `waza list isolation` shows what works here"
    if error.filename == job.cwd and error.filename != job.path:
        return f"the folder '{os.fsdecode(job.cwd)[:500]}' to start in: {error.strerror}"
    if error.errno == errno.ENOENT and os.path.exists(job.path):
        return f"'{path}' names an interpreter that is not there; look at its first line"
    if error.errno == errno.ENOEXEC:
        return f"'{path}' is not a program for this machine; a script needs a first line such as #!/bin/sh"
    if error.errno == errno.EACCES:
        return f"'{path}' is not executable; make it so with chmod +x"
    return f"'{path}': {error.strerror}"


def cap(caps: protocol.Caps) -> None:
    """Lower the limits of this process, and so of every program it starts, for good."""
    _lower(resource.RLIMIT_CORE, 0)
    if caps.memory_bytes:
        _lower(resource.RLIMIT_AS, caps.memory_bytes)
    if caps.file_bytes:
        _lower(resource.RLIMIT_FSIZE, caps.file_bytes)
    if caps.processes and sys.platform == "linux":
        with open("/proc/loadavg") as file:
            running = int(file.read().split()[3].split("/")[1])
        _lower(resource.RLIMIT_NPROC, running + ROOM * caps.processes)


def _lower(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))
