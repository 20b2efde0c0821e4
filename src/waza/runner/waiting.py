"""Wait for a coroutine from plain code, also where an event loop is running already (a notebook)."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

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
