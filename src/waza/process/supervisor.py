"""The processes between waza and every program: a zygote that forks workers, and the workers.

    waza ─ zygote ─┬─ worker ─ program ─ …      a worker runs one program after the other
                   └─ worker ─ program ─ …

Both are child subreapers (see `descendants`): a worker inherits every process a program started and leaves none; the
zygote inherits what a killed worker leaves. A worker ends a program when time runs out, when waza cancels it, and when
waza or the zygote has ended: its socket to waza and its pipe from the zygote are lifelines. Started by
`waza.process.worker_pool` as `python -I -S`: only the standard library, and little of it.
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

from waza.process import linux_sandbox, protocol
from waza.process.descendants import SWEEP_S, adopt_orphans, descendants, living, send_group, sweep


class Zygote:
    """Forks workers on demand, and ends what a killed worker leaves."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.child_signal = ChildSignal()
        self.lifeline, self.own_end = os.pipe()
        self.workers: dict[int, socket.socket] = {}
        self.killed: list[socket.socket] = []

    def serve(self) -> None:
        """Fork workers until waza has ended, then end all workers and what they run."""
        poll = select.poll()
        for fd in (self.control.fileno(), self.child_signal.fd):
            poll.register(fd, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self.control.fileno() in ready and not self._make_worker():
                break
            self.child_signal.clear()
            self._reap()
            self._end_orphans()
        deadline = time.monotonic() + GRACE_S + 2 * SWEEP_S
        while self._reap() and time.monotonic() < deadline:
            self._end_orphans()
            time.sleep(0.005)
        sweep(lambda: not self._reap())

    def _make_worker(self) -> bool:
        request = protocol.next_worker(self.control)
        if request is None:
            return False
        caps, fd = request
        sock = socket.socket(fileno=fd)
        try:
            pid = os.fork()
        except OSError:
            protocol.send_pid(sock, 0)
            return True
        if not pid:
            self._be_worker(caps, sock)
        self.workers[pid] = sock
        return True

    def _be_worker(self, caps: protocol.Caps, sock: socket.socket) -> NoReturn:
        code = 1
        try:
            for other in (self.control, *self.workers.values()):
                other.close()
            os.close(self.own_end)
            os.close(self.child_signal.fd)
            adopt_orphans()
            cap(caps)
            Worker(sock, self.lifeline).serve()
            code = 0
        except OSError:
            pass
        finally:
            os._exit(code)

    def _reap(self) -> bool:
        """Reap ended children and return whether any is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            sock = self.workers.pop(pid, None)
            if sock and status:
                self.killed.append(sock)
            elif sock:
                sock.close()

    def _end_orphans(self) -> None:
        """End what killed workers were running, and report that to those who wait for it."""
        if not self.killed:
            return
        sweep(self._only_workers, self.workers)
        for sock in self.killed:
            with contextlib.suppress(OSError):
                protocol.send_report(
                    sock, protocol.ProgramReport(error="its supervisor was killed; what it ran was ended")
                )
            sock.close()
        self.killed.clear()

    def _only_workers(self) -> bool:
        self._reap()
        return not any(descendants(self.workers) for _ in range(3))


def main() -> None:
    """Serve the waza process at the other end of standard input."""
    control = socket.socket(fileno=os.dup(0))
    os.dup2(1, 0)
    adopt_orphans()
    zygote = Zygote(control)
    # Collections in a fork would write to shared pages and copy them.
    gc.collect()
    gc.freeze()
    gc.disable()
    zygote.serve()


# No pathlib: it is slow to load, and its pages cost every fork.
# ruff: noqa: PTH110, PTH123


GRACE_S = 1.0
"""Between SIGTERM and SIGKILL."""
LINGER_S = 0.1
"""How long a program's child processes may still run after it has ended."""
COUNT_EVERY_S = 0.25
"""How often a program's processes are counted."""
PROGRAMS_PER_USER = 4
"""The kernel counts a user's processes, not a program's: its limit allows for this many programs."""
_TO_DEFAULT = (
    signal.SIGPIPE,
    signal.SIGXFSZ,
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
)
"""Signals that Python or waza's parent may ignore, which programs would inherit."""
_ISOLATION = b"isolation"
"""The file name in errors of the isolation."""
Wake = Literal["done", "time", "cancel", "lost", "crowd"]


class ChildSignal:
    """A descriptor that can be read when a child has ended."""

    def __init__(self) -> None:
        self.fd, write_end = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(write_end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)

    def clear(self) -> None:
        """Discard the signals so far."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 4096)


class Worker:
    """Runs one program after the other for the process at the other end of the socket."""

    def __init__(self, sock: socket.socket, zygote_fd: int) -> None:
        self.sock = sock
        self.child_signal = ChildSignal()
        self.zygote_fd = zygote_fd
        self.poll = select.poll()
        for fd in (sock.fileno(), self.child_signal.fd, zygote_fd):
            self.poll.register(fd, select.POLLIN)

    def serve(self) -> None:
        """Run jobs until waza or the zygote has ended."""
        protocol.send_pid(self.sock, os.getpid())
        while self._is_job_ready() and (job := protocol.receive_job(self.sock)):
            report = WorkerRun(self, *job).finish()
            protocol.send_report(self.sock, report)
            if report.survivors:
                return

    def _is_job_ready(self) -> bool:
        while True:
            ready = {fd for fd, _ in self.poll.poll()}
            if self.zygote_fd in ready:
                return False
            if self.sock.fileno() in ready:
                return True
            self.child_signal.clear()


class WorkerRun:
    """One program, from its start until no process of it is left."""

    def __init__(self, worker: Worker, job: protocol.Job, streams: list[int]) -> None:
        self.worker = worker
        self.job = job
        self.streams = streams
        self.main = 0
        self.status: int | None = None
        self.next_count = 0.0

    def finish(self) -> protocol.ProgramReport:
        """Run the program and everything it starts to the end, and report how it ended."""
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
        return protocol.ProgramReport(self.status, end == "time", leftovers, survivors, duration, self._error(end))

    def _error(self, end: Wake) -> str:
        if end == "crowd":
            return f"it had more than {self.job.processes} processes at once and was ended"
        if end == "lost":
            return "the supervisor was killed while it ran; it was ended, too"
        return ""

    def _clear(self, end: Wake) -> tuple[int, int]:
        """Let the program and its children end, then kill them; return how many were left, and how many still are."""
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
        """Wait until `done`, a limit or a message, and return which came first."""
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
        """Wait for the end of a child or a message from waza; return what it means."""
        ready = {fd for fd, _ in self.worker.poll.poll(max(0.0, seconds) * 1000 + 1)}
        if self.worker.child_signal.fd in ready:
            self.worker.child_signal.clear()
        if self.worker.zygote_fd in ready:
            return "lost"
        if self.worker.sock.fileno() in ready:
            return "cancel" if self.worker.sock.recv(1) == protocol.CANCEL else "lost"
        return None

    def _ended(self) -> bool:
        self._alone()
        return self.status is not None

    def _alone(self) -> bool:
        """Reap ended children and return whether none is left."""
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
    if job.sandbox is not None:
        return _start_sandboxed(job, job.sandbox, streams, _ruleset(job.sandbox))
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


def _ruleset(sandbox: protocol.Sandbox) -> int:
    return linux_sandbox.build_ruleset(sandbox.readable, (*sandbox.devices, *sandbox.writable), sandbox.network)


def _start_sandboxed(job: protocol.Job, sandbox: protocol.Sandbox, streams: list[int], ruleset: int) -> int:
    """Start the program in a Landlock sandbox, which only the new process itself can enter."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        _become(job, sandbox, streams, ruleset, writing)
    os.close(ruleset)
    os.close(writing)
    with open(reading, "rb") as pipe:
        number, _, path = pipe.read().partition(b" ")
    if number:
        os.waitpid(pid, 0)
        raise OSError(int(number), os.strerror(int(number)), path)
    return pid


def _become(job: protocol.Job, sandbox: protocol.Sandbox, streams: list[int], ruleset: int, writing: int) -> NoReturn:
    try:
        os.setsid()
        for fd, number in zip(streams, (1, 2, 0), strict=False):
            os.dup2(fd, number)
        for number in _TO_DEFAULT:
            signal.signal(number, signal.SIG_DFL)
        _confine(sandbox, ruleset)
        os.chdir(job.cwd)
        os.execve(job.path, job.argv, job.env)
    except OSError as error:
        os.write(writing, b"%d %s" % (error.errno or 0, error.filename or b""))
    finally:
        os._exit(127)


def _confine(sandbox: protocol.Sandbox, ruleset: int) -> None:
    """Give up everything that was not requested, in this order: each step takes away what the one before needs.

    Without mounts of its own, or where Landlock does not restrict abstract sockets, a program could connect to the Unix
    sockets of every process: then it may only use socket pairs.
    """
    try:
        if sandbox.own_mounts:
            linux_sandbox.enter_mounts((*sandbox.readable, *sandbox.devices), sandbox.writable)
        linux_sandbox.enter_landlock(ruleset)
        if linux_sandbox.has_seccomp():
            linux_sandbox.restrict_calls(
                network=sandbox.network, unix_sockets=sandbox.own_mounts and linux_sandbox.landlock_abi() >= 6
            )
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
        return f"'{path}' names an interpreter that does not exist; check its first line"
    if error.errno == errno.ENOEXEC:
        return f"'{path}' is not a program for this machine; a script needs a first line such as #!/bin/sh"
    if error.errno == errno.EACCES:
        return f"'{path}' is not executable; make it so with chmod +x"
    return f"'{path}': {error.strerror}"


def cap(caps: protocol.Caps) -> None:
    """Lower the limits of this process and of every program it starts, for good."""
    _lower(resource.RLIMIT_CORE, 0)
    if caps.memory_bytes:
        _lower(resource.RLIMIT_AS, caps.memory_bytes)
    if caps.file_bytes:
        _lower(resource.RLIMIT_FSIZE, caps.file_bytes)
    if caps.processes and sys.platform == "linux":
        with open("/proc/loadavg") as file:
            running = int(file.read().split()[3].split("/")[1])
        _lower(resource.RLIMIT_NPROC, running + PROGRAMS_PER_USER * caps.processes)


def _lower(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))
