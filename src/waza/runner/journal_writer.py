"""Writes results to the journal in a thread, and at the end of a run the files made from it.

Each result is durable before listeners get it, and no agent waits for that.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from sys import intern
from typing import Any, NoReturn

from msgspec.structs import replace

from waza.errors import StoreError
from waza.model import Result, Run
from waza.runner.auto import is_settled as auto_is_settled
from waza.runs.lazy_results import ProgressResults, RunProgress
from waza.runs.outcomes import outcomes_of
from waza.runs.results_json import results_json
from waza.runs.store import RunFolder, open_run
from waza.runs.summary import summarize
from waza.runs.tasks import summarize_tasks

MOST_WAIT_S = 0.005
"""How long a result waits at most for others to share its sync."""
NOTIFY_DELAY_S = 0.03
"""How long durable results wait before listeners get them."""
MOST_UNNOTIFIED = 64
"""How many may wait for that: they must not pile up while agents keep the event loop busy."""


def as_it_is(result: Result) -> Result:
    """Return the result itself, for a store that returns results."""
    return result


class JournalWriter:
    """Hands results to a store in a thread of its own; those that wait at the same time share one sync.

    With one trial at a time there is nothing to share: the store is called as it is. The store returns what it wrote,
    `read` returns results from that, and listeners get those. Reading stays out of the thread (two threads that both
    compute slow each other down) and is delayed: agents that end together are graded and replaced first.
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
        self._notifying: asyncio.Task[None] | None = None
        self._failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    def store(self, result: Result) -> asyncio.Future[None]:
        """Take a result and return a future that is done when it is durable, or has what the store raised."""
        safe: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._thread is None:
            for written in self._store(result):
                self._on_result(self._read(written))
            safe.set_result(None)
            return safe
        self._waiting.append((result, safe))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        return safe

    def hurry(self) -> None:
        """Write results without waiting for others from now on: no further trial starts."""
        self._is_ending = True

    async def trouble(self) -> NoReturn:
        """Raise what the store raises as soon as it does, so that no agent works for a result that cannot be stored."""
        raise await self._failed

    async def close(self) -> None:
        """Write what still waits, notify listeners and end the thread; a cancellation is raised only after that."""
        self.hurry()
        cancelled = None
        while self._writing is not None and not self._writing.done():
            try:
                await asyncio.shield(self._writing)
            except asyncio.CancelledError as error:
                cancelled = error
        if self._thread is not None:
            self._thread.shutdown()
        if self._notifying is not None:
            self._notifying.cancel()
        self._notify(len(self._unnotified))
        if cancelled is not None:
            raise cancelled

    async def _write(self) -> None:
        """Write until no result waits, those that wait at the same time together."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            if not self._is_ending:
                await asyncio.sleep(_shared_sync_wait_s(self._waiting[0][0]))
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
            if self._notifying is None or self._notifying.done():
                self._notifying = asyncio.create_task(self._notify_later())

    async def _notify_later(self) -> None:
        """Hand durable results to listeners, one in each round of the event loop."""
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
                safe.exception()  # marks it as retrieved: the worker may be gone


def _shared_sync_wait_s(result: Result) -> float:
    """Return how long a result waits for others that end with it: a small part of its agent's time."""
    return min(MOST_WAIT_S, (result.trace.duration_ms or 0.0) / 20_000)


RESULTS = "results.json"


def finish(
    folder: RunFolder,
    reason: str,
    on_remark: Callable[[str], None],
    progress: ProgressResults | None = None,
    *,
    is_settled: bool | None = None,
) -> Run:
    """Store how the run ended and the files made from its results; return the run, its results read on demand.

    With `progress`, the results of a run of this process, the journal is not read again. `is_settled` says whether
    `auto` needs no further trial, which one arm of a baseline run cannot decide alone.
    """
    made = stored_run(folder, progress)
    made = replace(made, complete=is_complete(made, is_settled=is_settled))
    tasks = summarize_tasks(made) if progress is None else progress.tasks
    summary = summarize(made, tasks=tasks)
    try:
        folder.finish(summary, complete=made.complete, reason=reason)
        folder.write(RESULTS, results_json(made, tasks, summary))
    except StoreError as error:
        on_remark(f"{error}; every result is safe in the journal, and `waza show` reads it")
    return made


def complete_results(progress: RunProgress, folder: RunFolder) -> ProgressResults | None:
    """Return the results received while they were stored; None where the journal has others, and must be read."""
    found = progress.results()
    return found if found is not None and len(found) == folder.journal.results else None


def stored_run(folder: RunFolder, progress: ProgressResults | None = None) -> Run:
    """Return the run in a folder that is being written to."""
    return open_run(folder.path) if progress is None else replace(folder.run, results=progress)


def is_complete(run: Run, *, is_settled: bool | None = None) -> bool:
    """Return whether every planned trial has a result."""
    suite = run.suite
    trials = range(1, suite.config.trials + 1)
    made: Counter[str] = Counter()  # a trial has one result
    for some in (run.results, run.triggers):
        made.update(intern(outcome.task_id) for outcome in outcomes_of(some) if outcome.trial in trials)
    planned = chain(suite.tasks, suite.trigger_tasks)
    if not all(made[task["id"]] == len(trials) for task in planned):
        return False
    if suite.auto_trials is None:
        return True
    return auto_is_settled(run) if is_settled is None else is_settled
