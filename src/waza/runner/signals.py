"""How a run ends early: Ctrl-C, a terminal that closes, a CI job that is cancelled."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from waza.runner.suite import Stop

GRACE_S = 10.0
"""How long running trials may go on after the first signal."""
LAST_S = 1.5
"""How long the clean-up may take after the second one."""
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def ends_cleanly(stop: Stop, on_remark: Callable[[str], None]) -> Iterator[None]:
    """Let the first signal stop the run after a grace period and the second one at once.

    Used inside the running event loop of the main thread; elsewhere the caller's own handling stays.
    """
    task: Any = asyncio.current_task()
    loop = asyncio.get_running_loop()

    def first_or_second(number: signal.Signals) -> None:
        if not stop.signal:
            stop.signal = int(number)
            stop(f"interrupted by {signal.Signals(number).name}")
            on_remark(f"stopping: running trials get {GRACE_S:.0f} s; once more to end at once")
            loop.call_later(GRACE_S, task.cancel)
        else:
            # Results are synced one by one, so nothing acknowledged is lost even when the clean-up hangs.
            loop.call_later(LAST_S, os._exit, 128 + stop.signal)
            task.cancel()

    installed = []
    for number in SIGNALS:
        try:
            loop.add_signal_handler(number, first_or_second, number)
        except (NotImplementedError, RuntimeError, ValueError):
            continue  # Windows, or not the main thread
        installed.append(number)
    try:
        yield
    finally:
        for number in installed:
            loop.remove_signal_handler(number)
