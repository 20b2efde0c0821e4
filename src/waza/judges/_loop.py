"""The one event loop all judges are asked on, in a thread of its own.

Connections, limits and pauses belong to one loop; so a plain `grade()`, with or without a loop of the caller's, and a
run with many trials share them, and many verdicts at once need no thread each.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

_LOCK = threading.Lock()
_LOOP: list[asyncio.AbstractEventLoop] = []


def wait_for_judge(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine comes to on the judges' loop, for plain code."""
    future = _start(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def judged(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine comes to on the judges' loop, for code on a loop of its own; cancelling goes through."""
    if _LOOP and asyncio.get_running_loop() is _LOOP[0]:
        return await work
    return await asyncio.wrap_future(_start(work))


def _start(work: Coroutine[Any, Any, T]) -> Future[T]:
    with _LOCK:
        if not _LOOP:
            _LOOP.append(asyncio.new_event_loop())
            threading.Thread(target=_LOOP[0].run_forever, name="waza-judges", daemon=True).start()
    return asyncio.run_coroutine_threadsafe(work, _LOOP[0])
