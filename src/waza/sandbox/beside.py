"""Blocking work beside an event loop that must be finished, not dropped, when its task is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

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
