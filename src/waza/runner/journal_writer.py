"""Results on their way to the disk: each is safe before anyone hears of it, and no agent waits for that."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

from waza.model import Result

MOST_WAIT_S = 0.005
"""How long a result waits at most for others to share its sync."""
NOTIFY_DELAY_S = 0.03
"""How long results that are safe wait to be told of."""
MOST_UNNOTIFIED = 64
"""How many may wait for that; they must not pile up where there is no lull."""


def as_it_is(result: Result) -> Result:
    """Return a result that the store hands back as one."""
    return result


class JournalWriter:
    """Hands results to a store in a thread of its own; those that wait at the same time share one sync.

    With one trial at a time there is nothing to share: the store is called as it is. The store returns what it kept,
    `read` makes results of that again, and so they are told. Reading stays out of the thread (two threads that both
    compute hold each other up), and waits for a lull: agents that end together are graded and followed first.
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
        self._is_ending = False
        self._unnotified: deque[Any] = deque()
        self._telling: asyncio.Task[None] | None = None
        self._failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    def store(self, result: Result) -> asyncio.Future[None]:
        """Take a result; what is returned is done when it is safe, or has what the store raised."""
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

    def hurry(self) -> None:
        """Say that no further trial starts: results wait for nobody from now on."""
        self._is_ending = True

    async def trouble(self) -> NoReturn:
        """Raise what the store raises as soon as it does, so that no agent works for a result nobody can keep."""
        raise await self._failed

    async def close(self) -> None:
        """Write and tell what still waits, and end the thread; one who is cancelled meanwhile waits all the same."""
        self.hurry()
        cancelled = None
        while self._writing is not None and not self._writing.done():
            try:
                await asyncio.shield(self._writing)
            except asyncio.CancelledError as error:
                cancelled = error
        if self._thread is not None:
            self._thread.shutdown()
        if self._telling is not None:
            self._telling.cancel()
        self._notify(len(self._unnotified))
        if cancelled is not None:
            raise cancelled

    async def _write(self) -> None:
        """Write until nobody waits, all who wait at once together."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            if not self._is_ending:
                await asyncio.sleep(_for_company_s(self._waiting[0][0]))
            batch, self._waiting = self._waiting, []
            try:
                self._unnotified += await loop.run_in_executor(
                    self._thread, self._store, *(result for result, _ in batch)
                )
                self._notify(len(self._unnotified) - MOST_UNNOTIFIED)
            except Exception as error:  # noqa: BLE001  it belongs to the run, which is to end with it
                self._fail(error, [safe for _, safe in batch])
                continue
            for _, safe in batch:
                if not safe.done():
                    safe.set_result(None)
            if self._telling is None or self._telling.done():
                self._telling = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        """Tell of what is safe, one in a round of the event loop."""
        await asyncio.sleep(NOTIFY_DELAY_S)
        try:
            while self._unnotified:
                self._notify(1)
                await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001  as above
            self._fail(error, [])

    def _notify(self, number: int) -> None:
        for _ in range(number):
            self._on_result(self._read(self._unnotified.popleft()))

    def _fail(self, error: Exception, waiting: list[asyncio.Future[None]]) -> None:
        if not self._failed.done():
            self._failed.set_result(error)
        for safe in waiting:
            if not safe.done():
                safe.set_exception(error)
                safe.exception()  # nobody may be left to look at it


def _for_company_s(result: Result) -> float:
    """Return how long a result waits for others that end with it: next to nothing of what its agent took."""
    return min(MOST_WAIT_S, (result.trace.duration_ms or 0.0) / 20_000)
