"""Server-sent events: the results of a running run as its journal grows, and changes of the list of runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from waza.errors import StoreError
from waza.model import JSON
from waza.reports.html.view import RunRow
from waza.runs.folder import JOURNAL, read_run_json
from waza.runs.outcomes import ResultView, outcome_of
from waza.runs.records import End, Note
from waza.runs.signing import Chain
from waza.server.index import JournalEntry, read_on
from waza.server.store import RunReader

POLL_S = 0.2
REFRESH_S = 1.0
_BEAT_S = 10.0
_MOST_AT_ONCE = 200
"""Results sent one by one when a page catches up; earlier ones are only counted."""


class Follower:
    """Reads a journal as it grows and counts its trials; of two results for one trial the later counts."""

    def __init__(self, listed: RunRow, sent_to: int) -> None:
        folder = listed.path
        self.journal = folder / JOURNAL
        self.planned = listed.planned
        self.at = 0
        self._sent_to = sent_to
        self._chain = Chain()
        self._fits = read_run_json(folder).suite.fingerprints
        self._status: dict[tuple[str, int], str] = {}

    def read(self) -> list[str]:
        """Return the new records as events."""
        events = [event for entry in read_on(self.journal, self.at, self._chain) if (event := self._event_of(entry))]
        return events[-_MOST_AT_ONCE:]

    def counts(self) -> JSON:
        """Return the progress of the run."""
        return {"done": len(self._status), "planned": self.planned, **Counter(self._status.values())}

    def _event_of(self, entry: JournalEntry) -> str | None:
        self.at = entry.end
        record = entry.record
        data: JSON = None
        if isinstance(record, ResultView):
            if record.fingerprint not in ("", self._fits.get(record.task_id, record.fingerprint)):
                return None
            self._status[record.task_id, record.trial] = record.status
            outcome = outcome_of(record)
            data = {"task": record.task_id, "trial": record.trial, "status": record.status, "reason": record.reason,
                    "score": outcome.score.weighted, "ms": outcome.duration_ms}  # fmt: skip
        elif isinstance(record, Note):
            data = {"note": record.text}
        elif isinstance(record, End):
            data = {"complete": record.complete, "reason": record.reason}
        if data is None or entry.end <= self._sent_to:
            return None
        kind = {ResultView: "result", Note: "note", End: "end"}[type(record)]  # type: ignore[index]
        return event(kind, {**data, **(self.counts() if kind == "result" else {})}, entry.end)


def event(kind: str, data: JSON, number: int | None = None) -> str:
    """Return one server-sent event; JSON holds no line break, so no text can begin another."""
    head = f"id: {number}\n" if number is not None else ""
    return f"{head}event: {kind}\ndata: {msgspec.json.encode(data).decode()}\n\n"


async def run_events(request: Request, store: RunReader) -> Response:
    """Answer with a run's results as they come, from an offset of its journal on."""
    listed = await run_in_threadpool(store.find, request.path_params["run"])
    if listed is None or listed.problem:
        return Response(status_code=404)
    last_id = request.headers.get("last-event-id") or request.query_params.get("from", "0")
    sent_to = int(last_id) if last_id.isascii() and last_id.isdigit() and len(last_id) < 16 else 0
    return _stream(request, _run_events(store, listed, sent_to))


async def _run_events(store: RunReader, listed: RunRow, sent_to: int) -> AsyncIterator[str]:
    try:
        follower = await run_in_threadpool(Follower, listed, sent_to)
        quiet_s = 0.0
        while not store.is_closing():
            events = await run_in_threadpool(follower.read)
            for one in events:
                yield one
            quiet_s = 0.0 if events else quiet_s + POLL_S
            if quiet_s % REFRESH_S < POLL_S:
                now = await run_in_threadpool(store.find, listed.key)
                if now is None or not now.is_live:
                    for one in await run_in_threadpool(follower.read):
                        yield one
                    yield event("over", follower.counts())
                    return
            if not events and quiet_s % _BEAT_S < POLL_S:
                yield ": still here\n\n"
            await asyncio.sleep(POLL_S)
    except StoreError as error:
        yield event("over", {"problem": str(error)})


async def list_events(request: Request, store: RunReader) -> Response:
    """Answer with an event whenever a run starts, progresses or ends."""
    return _stream(request, _list_events(store))


async def _list_events(store: RunReader) -> AsyncIterator[str]:
    before: list[tuple[object, ...]] | None = None
    while not store.is_closing():
        await run_in_threadpool(store.index.refresh)
        query = "SELECT key, verdict, is_complete, tags FROM runs ORDER BY key"
        now = await run_in_threadpool(store.index.table, query)
        live = await run_in_threadpool(store.live)
        if before is not None and now != before:
            yield event("changed", {})
        before = now
        yield event("live", [{"run": one.key, "done": one.done, "planned": one.planned} for one in live])
        for _ in range(round(REFRESH_S / POLL_S)):
            await asyncio.sleep(0 if store.is_closing() else POLL_S)


def _stream(request: Request, events: AsyncIterator[str]) -> Response:
    if request.method == "HEAD":
        return Response(media_type="text/event-stream")
    return StreamingResponse(events, media_type="text/event-stream")
