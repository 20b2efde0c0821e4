"""Many time limits, one timer: nearly all are lifted before they are over, and a timer each would cost too much."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from itertools import count
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

_TICK_S = max(1e-6, time.get_clock_info("monotonic").resolution)
"""An event loop may call a timer by that much too early."""


class Deadlines:
    """The time limits of one event loop; only the next one that may be over has a timer of the loop."""

    def __init__(self) -> None:
        self._set: dict[int, tuple[float, Callable[[], None]]] = {}
        self._numbers = count()
        self._next_look = math.inf

    def set(self, seconds: float, on_over: Callable[[], None]) -> int:
        """Call `on_over` in so many seconds, unless what is returned is handed to `lift` before."""
        loop = asyncio.get_running_loop()
        number, when = next(self._numbers), loop.time() + max(seconds, 0.0)
        self._set[number] = when, on_over
        self._look_at(when, loop)
        return number

    def lift(self, number: int) -> None:
        """Take back a limit; one that is over already is none."""
        self._set.pop(number, None)

    def _look_at(self, when: float, loop: asyncio.AbstractEventLoop) -> None:
        if when < self._next_look:
            self._next_look = when
            loop.call_at(when, self._look)

    def _look(self) -> None:
        """Tell of every limit that is over; the timer may have been set for one that was lifted since."""
        loop = asyncio.get_running_loop()
        now, self._next_look = loop.time() + _TICK_S, math.inf
        over = [number for number, (when, _) in self._set.items() if when <= now]
        told = [self._set.pop(number)[1] for number in over]
        if self._set:
            self._look_at(min(when for when, _ in self._set.values()), loop)
        for on_over in told:
            on_over()


_OF_LOOP: WeakKeyDictionary[asyncio.AbstractEventLoop, Deadlines] = WeakKeyDictionary()


def deadlines() -> Deadlines:
    """Return the time limits of the running event loop."""
    loop = asyncio.get_running_loop()
    found = _OF_LOOP.get(loop)
    return _OF_LOOP.setdefault(loop, Deadlines()) if found is None else found


# Blocking work beside an event loop that must be finished, not dropped, when its task is cancelled.

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Return what `work` returns in a thread of its own, which is left to itself when its task is cancelled."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    threading.Thread(target=_deliver, args=(work, done, loop), name="waza-work", daemon=True).start()
    return await done


async def beside_loop(work: Callable[[], T], cancel: Callable[[], None]) -> T:
    """Return what `work` returns in a thread of its own; when cancelled, call `cancel` and wait for it all the same."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    threading.Thread(target=_deliver, args=(work, done, loop), name="waza-program", daemon=True).start()
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        cancel()
        while not done.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([done])
        done.exception()
        raise


def in_loop(function: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Return a function for other threads that calls `function` in this loop, and waits: nothing piles up."""
    loop = asyncio.get_running_loop()

    def deliver(chunk: bytes) -> None:
        outcome: Future[None] = Future()

        def call() -> None:
            try:
                function(chunk)
                outcome.set_result(None)
            except Exception as error:  # noqa: BLE001  it is raised in the thread that delivered
                outcome.set_exception(error)

        loop.call_soon_threadsafe(call)
        outcome.result()

    return deliver


def _deliver(work: Callable[[], T], done: asyncio.Future[T], loop: asyncio.AbstractEventLoop) -> None:
    outcome: Future[T] = Future()
    try:
        outcome.set_result(work())
    except BaseException as error:  # noqa: BLE001  it belongs to whoever awaits the result
        outcome.set_exception(error)
    with contextlib.suppress(RuntimeError):  # the loop is closed already
        loop.call_soon_threadsafe(_copy, outcome, done)


def _copy(outcome: Future[T], done: asyncio.Future[T]) -> None:
    if done.done():
        return
    if error := outcome.exception():
        done.set_exception(error)
    else:
        done.set_result(outcome.result())


# Wait for a coroutine from plain code, also where an event loop is running already (a notebook).

Value = TypeVar("Value")


def wait_for(work: Coroutine[Any, Any, Value]) -> Value:
    """Return what a coroutine comes to; under a running event loop it gets a thread and a loop of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        try:
            return asyncio.run(work)
        finally:
            work.close()  # where there was no event loop to be had it has not begun
    outcome: list[Value] = []
    errors: list[BaseException] = []
    context = contextvars.copy_context()

    def run() -> None:
        try:
            outcome.append(context.run(asyncio.run, work))
        except BaseException as error:  # noqa: BLE001  it goes on in the thread that waits
            errors.append(error)

    thread = threading.Thread(target=run, name="waza-waiting")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return outcome[0]


# A few at a time, though many come at once.

A_ROUND = 4
"""How many are let through in a round: fewer would cost a round of the event loop for little work."""


class FairQueue:
    """Lets a few through in each round of the event loop.

    Agents of equal length end together. If all were graded in the same round, the next agents would start only after
    the last grade: the whole width would wait. A few a round, the next agents start while the others are graded.
    """

    def __init__(self) -> None:
        self._left = A_ROUND
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Return when it is our turn: at once if few were let through in this round."""
        loop = asyncio.get_running_loop()
        if self._left == A_ROUND:
            loop.call_soon(self._next)
        if self._left:
            self._left -= 1
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _next(self) -> None:
        """Begin a round: let the next ones through who still wait."""
        self._left = A_ROUND
        while self._waiting and self._left:
            turn = self._waiting.popleft()
            if not turn.done():
                if self._left == A_ROUND:
                    turn.get_loop().call_soon(self._next)
                turn.set_result(None)
                self._left -= 1
