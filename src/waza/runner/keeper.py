"""Results on their way to the disk: each is safe before anyone hears of it, and nobody waits longer than needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from waza.model import Result


class Keeper:
    """Hands results to a store in a thread of its own; those that wait at the same time share one sync.

    With one trial at a time there is nothing to share: the store is called as it is.
    """

    def __init__(self, store: Callable[..., list[Result]], on_result: Callable[[Result], None], width: int) -> None:
        self._store = store
        self._on_result = on_result
        self._waiting: list[tuple[Result, asyncio.Future[None]]] = []
        self._thread = ThreadPoolExecutor(1, "waza-journal") if width > 1 else None
        self._writing: asyncio.Task[None] | None = None

    async def keep(self, result: Result) -> None:
        """Return when the result is safe and its listener has heard of it; raise what the store raises."""
        if self._thread is None:
            for kept in self._store(result):
                self._on_result(kept)
            return
        safe: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((result, safe))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        await safe

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
            except Exception as error:  # noqa: BLE001  it belongs to the trials whose results were not kept
                for _, safe in batch:
                    if not safe.done():
                        safe.set_exception(error)
                continue
            for result, (_, safe) in zip(kept, batch, strict=True):
                self._tell(result, safe)

    def _tell(self, result: Result, safe: asyncio.Future[None]) -> None:
        try:
            self._on_result(result)
        except Exception as error:  # noqa: BLE001  it belongs to the trial whose result was told
            if not safe.done():
                safe.set_exception(error)
        else:
            if not safe.done():
                safe.set_result(None)
