"""The process above every program: hands out workers, and is there when one of them is killed.

    waza ─ zygote ─┬─ worker ─ program ─ …      a worker runs one program at a time, and then the next
                   └─ worker ─ program ─ …

The zygote is a child subreaper, so what a killed worker leaves comes to it. When waza is gone, so is everything here.
Started by `waza.sandbox.workers` as `python -I -S`: only the standard library, and little of it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import socket
import time
from typing import NoReturn

from waza.sandbox import wire
from waza.sandbox.descendants import SWEEP_S, adopt_orphans, descendants, sweep
from waza.sandbox.worker import GRACE_S, Bell, Worker, cap


class Zygote:
    """Makes workers on demand, and ends what a killed worker leaves."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.bell = Bell()
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
            self._mourn()
        deadline = time.monotonic() + GRACE_S + 2 * SWEEP_S
        while self._reap() and time.monotonic() < deadline:
            self._mourn()
            time.sleep(0.005)
        sweep(lambda: not self._reap())

    def _make_worker(self) -> bool:
        order = wire.next_worker(self.control)
        if order is None:
            return False
        caps, fd = order
        line = socket.socket(fileno=fd)
        try:
            pid = os.fork()
        except OSError:
            wire.send_pid(line, 0)
            return True
        if not pid:
            self._be_worker(caps, line)
        self.workers[pid] = line
        return True

    def _be_worker(self, caps: wire.Caps, line: socket.socket) -> NoReturn:
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

    def _mourn(self) -> None:
        """End what killed workers were running, and tell those who wait for it."""
        if not self.killed:
            return
        sweep(self._only_workers, self.workers)
        for line in self.killed:
            with contextlib.suppress(OSError):
                wire.send_report(line, wire.Report(error="its supervisor was killed; what it ran was ended"))
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
