"""Read a recording while its agent runs, so that nothing is lost when the agent is ended."""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec.structs import replace

from waza.errors import EngineError
from waza.model import ToolEvent, Trace
from waza.traces.base import DraftCall, Item, Reader
from waza.traces.reading import decode_line

_OTHER_CHARS = 2_000
_BURST_MS = 5.0
"""An agent whose calls and results all arrive within this time prints them at its end, so their times say nothing."""
_UNFINISHED = "unfinished: this call had no result when the agent ended"


class Live:
    """Feeds each JSON line of an agent's standard output to a reader as it arrives.

    Output after the deadline is kept separate: an agent whose programs are being ended reports that, and continues.
    """

    def __init__(self, reader: Reader, limit: int, time_s: float) -> None:
        self.reader = reader
        self.has_begun = False
        """Whether anything was printed."""
        self._line = bytearray()
        self._remaining = limit
        self._deadline = time.monotonic() + time_s
        self._late = bytearray()
        self._other = ""
        self._times = _CallTimes()

    def take(self, chunk: bytes) -> None:
        """Read the next chunk of output; raise EngineError when there is too much."""
        self.has_begun = True
        self._remaining -= len(chunk)
        if self._remaining < 0:
            raise EngineError("the agent printed more than is stored: raise max_output_mb")
        if time.monotonic() > self._deadline:
            self._late += chunk
        else:
            self._read_chunk(chunk)

    def _read_chunk(self, chunk: bytes) -> None:
        self._times.set_now()
        before, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            self._line += rest
            return
        for line in bytes(self._line + before).split(b"\n"):
            self._read_event(line)
        self._line = bytearray(rest)

    def end(self, *, in_time: bool) -> None:
        """End the recording; late output counts if the agent ended in time."""
        if in_time:
            self._read_chunk(bytes(self._late))
        self._read_event(bytes(self._line))
        self._line.clear()

    def trace(self) -> Trace:
        """Return the trace; calls without a result are marked as unfinished."""
        trace = list(self.reader.traces())[-1]
        calls = self.reader.draft.calls
        events = [
            event if call.has_result else _unfinished(event)
            for event, call in zip(trace.tool_events or [], calls, strict=True)
        ]
        return replace(trace, tool_events=self._times.timed(events))

    @property
    def words(self) -> str:
        """The last part of the output that is not events."""
        return self._other.strip()

    def read_line(self, line: bytes, kinds: tuple[str, ...]) -> None:
        """Read an event of one of these types that the agent recorded elsewhere than on standard output."""
        try:
            value = decode_line(line)
        except ValueError:
            return
        if isinstance(value, dict) and value.get("type") in kinds:
            self.feed(value)

    def _read_event(self, line: bytes) -> None:
        try:
            value = decode_line(line) if line.strip() else None
        except ValueError:
            self._other = (self._other + line.decode("utf-8", "replace") + "\n")[-_OTHER_CHARS:]
            return
        if isinstance(value, dict):
            self._feed(value)

    def feed(self, item: Item) -> None:
        """Read one event, from anywhere."""
        self._times.set_now()
        self._feed(item)

    def _feed(self, item: Item) -> None:
        try:
            self.reader.feed(item)
        except Exception as error:  # noqa: BLE001  one event of an unknown shape must not end the reading
            self.reader.draft.notes.add(f"an event could not be read: {type(error).__name__}: {str(list(item))[:60]}")
        self._times.update(self.reader.draft.calls)


class _CallTimes:
    """Arrival times of calls and results, for agents whose events have no times."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._now = 0.0
        self._starts: list[float] = []
        self._ends: dict[int, float] = {}
        self._open: list[int] = []

    def set_now(self) -> None:
        """Set the time of the events that follow: all events of one chunk have the same."""
        self._now = (time.monotonic() - self._began) * 1000

    def update(self, calls: Sequence[DraftCall]) -> None:
        """Record the arrival of new calls and of new results."""
        now = self._now
        if len(calls) < len(self._starts):  # another recording began
            self._starts, self._ends, self._open = [], {}, []
        self._open += range(len(self._starts), len(calls))
        self._starts += [now] * (len(calls) - len(self._starts))
        self._ends |= {place: now for place in self._open if calls[place].has_result}
        self._open = [place for place in self._open if not calls[place].has_result]

    def timed(self, events: list[ToolEvent]) -> list[ToolEvent]:
        """Return calls with the times that they lack; unchanged where all were printed at once."""
        if not self._ends or max(self._ends.values()) - self._starts[0] < _BURST_MS:
            return events
        return [self._with_times(place, event) for place, event in enumerate(events)]

    def _with_times(self, place: int, event: ToolEvent) -> ToolEvent:
        if event.start_ms is not None or place >= len(self._starts):
            return event
        start, end = self._starts[place], self._ends.get(place)
        took = event.duration_ms if event.duration_ms is not None or end is None else round(end - start, 3)
        return replace(event, start_ms=round(start, 3), duration_ms=took)


def _unfinished(event: ToolEvent) -> ToolEvent:
    return replace(event, success=False, error=_UNFINISHED, extra=event.extra | {"unfinished": True})
