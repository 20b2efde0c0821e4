"""Small asyncio tools: many time limits on one timer, blocking work in threads, waiting from synchronous code."""

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
"""An event loop may call a timer this much too early."""


class Deadlines:
    """The time limits of one event loop on one timer of it.

    Nearly all limits are cancelled before they expire, and a timer of the loop for each would cost too much.
    """

    def __init__(self) -> None:
        self._set: dict[int, tuple[float, Callable[[], None]]] = {}
        self._numbers = count()
        self._next_check = math.inf

    def set(self, seconds: float, on_expired: Callable[[], None]) -> int:
        """Call `on_expired` after that time unless `cancel` is called with the returned number before."""
        loop = asyncio.get_running_loop()
        number, when = next(self._numbers), loop.time() + max(seconds, 0.0)
        self._set[number] = when, on_expired
        self._check_at(when, loop)
        return number

    def cancel(self, number: int) -> None:
        """Cancel a limit; does nothing for one that has expired."""
        self._set.pop(number, None)

    def _check_at(self, when: float, loop: asyncio.AbstractEventLoop) -> None:
        if when < self._next_check:
            self._next_check = when
            loop.call_at(when, self._check)

    def _check(self) -> None:
        """Call back every limit that has expired; the timer may have been set for one that was cancelled since."""
        loop = asyncio.get_running_loop()
        now, self._next_check = loop.time() + _TICK_S, math.inf
        expired = [number for number, (when, _) in self._set.items() if when <= now]
        callbacks = [self._set.pop(number)[1] for number in expired]
        if self._set:
            self._check_at(min(when for when, _ in self._set.values()), loop)
        for on_expired in callbacks:
            on_expired()


_OF_LOOP: WeakKeyDictionary[asyncio.AbstractEventLoop, Deadlines] = WeakKeyDictionary()


def deadlines() -> Deadlines:
    """Return the time limits of the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _OF_LOOP:
        _OF_LOOP[loop] = Deadlines()
    return _OF_LOOP[loop]


T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Return the result of `work` in a thread of its own, which keeps running when its task is cancelled."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    threading.Thread(target=_deliver, args=(work, done, loop), name="waza-work", daemon=True).start()
    return await done


async def in_thread_to_the_end(work: Callable[[], T], cancel: Callable[[], None]) -> T:
    """Return the result of `work` in a thread of its own; when cancelled, call `cancel` and wait for its end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    threading.Thread(target=_deliver, args=(work, done, loop), name="waza-program", daemon=True).start()
    try:
        # Without the shield, a cancelled task would cancel `done` and return while the thread still works.
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        cancel()
        while not done.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([done])
        done.exception()
        raise


def in_loop(function: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Return a function for other threads that calls `function` in this loop and waits, so that no queue builds up."""
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
    except BaseException as error:  # noqa: BLE001  raised again in the task that awaits the result
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


Value = TypeVar("Value")


def wait_for(work: Coroutine[Any, Any, Value]) -> Value:
    """Return the result of a coroutine to synchronous code, also under a running event loop (a notebook)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        try:
            return asyncio.run(work)
        finally:
            work.close()  # where no event loop could be created it has not started, which would warn
    outcome: list[Value] = []
    errors: list[BaseException] = []
    context = contextvars.copy_context()

    def run() -> None:
        try:
            outcome.append(context.run(asyncio.run, work))
        except BaseException as error:  # noqa: BLE001  raised again in the thread that waits
            errors.append(error)

    thread = threading.Thread(target=run, name="waza-waiting")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return outcome[0]


PER_ROUND = 4
"""How many pass in a round: fewer would cost a round of the event loop for little work."""


class FairQueue:
    """Lets a few tasks pass in each round of the event loop.

    Agents of equal length end together. If all were graded in the same round, the next agents would start only after
    the last grade, and all slots would wait. With a few a round, the next agents start while the others are graded.
    """

    def __init__(self) -> None:
        self._left = PER_ROUND
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Return when it is the caller's turn: at once if few have passed in this round."""
        loop = asyncio.get_running_loop()
        if self._left == PER_ROUND:
            loop.call_soon(self._next)
        if self._left:
            self._left -= 1
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _next(self) -> None:
        """Begin a round: let the next waiting tasks pass."""
        self._left = PER_ROUND
        while self._waiting and self._left:
            turn = self._waiting.popleft()
            if not turn.done():
                if self._left == PER_ROUND:
                    turn.get_loop().call_soon(self._next)
                turn.set_result(None)
                self._left -= 1
