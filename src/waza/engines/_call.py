"""Call a foreign function beside the event loop, for a limited time, and contain whatever it raises."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
import time
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import Any, NamedTuple

_GRACE_S = 1.0
"""How long a cancelled coroutine may take to tidy up."""


class Outcome(NamedTuple):
    """What came of a call: a value, or an error."""

    value: Any = None
    error: BaseException | None = None


async def call(function: Callable[[], Any], timeout_s: float, *, is_async: bool) -> Outcome | None:
    """Return what a function gives back or raises, None when time ran out first.

    A plain function gets a thread to itself: a pool of fixed size would be used up by functions that never return, and
    would keep waza from ending. What it gives back is awaited if it can be.
    """
    deadline = time.monotonic() + timeout_s
    outcome = Outcome(function()) if is_async else await _within(_in_thread(function), timeout_s)
    if outcome is None or not inspect.isawaitable(outcome.value):
        return outcome
    return await _within(asyncio.ensure_future(_contained(outcome.value)), deadline - time.monotonic())


async def _within(work: asyncio.Future[Outcome], timeout_s: float) -> Outcome | None:
    try:
        await asyncio.wait({work}, timeout=max(timeout_s, 0))
        if not work.done():
            work.cancel()
            await asyncio.wait({work}, timeout=_GRACE_S)
            return None
    except asyncio.CancelledError:
        work.cancel()
        raise
    return Outcome(error=RuntimeError("it cancelled itself")) if work.cancelled() else work.result()


async def _contained(awaitable: Awaitable[Any]) -> Outcome:
    try:
        return Outcome(await awaitable)
    except (Exception, SystemExit) as error:  # noqa: BLE001  an agent's own errors must not end the run
        return Outcome(error=error)


Work = Callable[[], Callable[[], None]]
"""Does something, and returns what tells of it."""
_idle: list[SimpleQueue[Work]] = []
"""Where threads wait that have nothing to do; one whose function never returns does not come back here."""


def _in_thread(function: Callable[[], Any]) -> asyncio.Future[Outcome]:
    """Let a thread that has nothing to do call the function, or a new one; none of them keeps waza from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Outcome] = loop.create_future()
    context = contextvars.copy_context()

    def settle(outcome: Outcome) -> None:
        if not future.done():
            future.set_result(outcome)

    def work() -> Callable[[], None]:
        try:
            outcome = Outcome(context.run(function))
        except BaseException as error:  # noqa: BLE001  an agent's own errors must not end the run, SystemExit neither
            outcome = Outcome(error=error)
        return lambda: _tell(loop, settle, outcome)

    try:
        _idle.pop().put(work)
    except IndexError:
        threading.Thread(target=_serve, args=(work,), name="waza-agent", daemon=True).start()
    return future


def _serve(work: Work) -> None:
    """Do one work after the other; whoever is told of its end may have the thread at once."""
    desk: SimpleQueue[Work] = SimpleQueue()
    while True:
        tell = work()
        _idle.append(desk)
        tell()
        work = desk.get()


def _tell(loop: asyncio.AbstractEventLoop, settle: Callable[[Outcome], None], outcome: Outcome) -> None:
    with contextlib.suppress(RuntimeError):  # the run is over and its loop closed
        loop.call_soon_threadsafe(settle, outcome)
