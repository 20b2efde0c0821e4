"""Results on their way to the disk: each is safe before anyone hears of it, and nobody waits longer than needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

from waza.model import Result


def as_it_is(result: Result) -> Result:
    """Return a result that the store hands back as one."""
    return result


class Keeper:
    """Hands results to a store in a thread of its own; those that wait at the same time share one sync.

    With one trial at a time there is nothing to share: the store is called as it is. The store returns what it kept,
    `read` makes results of that again, and so they are told. Reading stays out of the thread: two threads that both
    compute hold each other up.
    """

    def __init__(
        self,
        store: Callable[..., Sequence[Any]],
        on_result: Callable[[Result], None],
        width: int,
        read: Callable[[Any], Result] = as_it_is,
    ) -> None:
        self._store = store
        self._on_result = on_result
        self._read = read
        self._waiting: list[tuple[Result, asyncio.Future[None]]] = []
        self._thread = ThreadPoolExecutor(1, "waza-journal") if width > 1 else None
        self._writing: asyncio.Task[None] | None = None
        self._failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    def keep(self, result: Result) -> asyncio.Future[None]:
        """Take a result; what is returned is done when it is safe and told, or has what the store raised."""
        safe: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._thread is None:
            for kept in self._store(result):
                self._on_result(self._read(kept))
            safe.set_result(None)
            return safe
        self._waiting.append((result, safe))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        return safe

    async def trouble(self) -> NoReturn:
        """Raise what the store raises as soon as it does, so that no agent works for a result nobody can keep."""
        raise await self._failed

    async def close(self) -> None:
        """Write what still waits, and end the thread."""
        if self._writing is not None:
            await asyncio.shield(self._writing)
        if self._thread is not None:
            self._thread.shutdown()

    async def _write(self) -> None:
        """Write until nobody waits, all who wait at once together."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                kept = await loop.run_in_executor(self._thread, self._store, *(result for result, _ in batch))
                for one, (_, safe) in zip(kept, batch, strict=True):
                    self._on_result(self._read(one))
                    if not safe.done():
                        safe.set_result(None)
                    await asyncio.sleep(0)  # agents that wait to be started come first
            except Exception as error:  # noqa: BLE001  it belongs to the run, which is to end with it
                self._fail(error, [safe for _, safe in batch])

    def _fail(self, error: Exception, waiting: list[asyncio.Future[None]]) -> None:
        if not self._failed.done():
            self._failed.set_result(error)
        for safe in waiting:
            if not safe.done():
                safe.set_exception(error)
                safe.exception()  # nobody may be left to look at it
