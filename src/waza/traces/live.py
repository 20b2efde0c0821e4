"""A recording that is read while its agent still works: what was told before the agent was ended is there."""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec.structs import replace

from waza.errors import EngineError
from waza.model import ToolEvent, Trace
from waza.traces._draft import DraftCall
from waza.traces.base import Item, Reader
from waza.traces.reading import decode_line

_KEPT_CHARS = 2_000
_AT_ONCE_MS = 5.0
"""An agent whose calls and results all come within this time prints them at its end."""
_UNFINISHED = "unfinished: this call had not come back when the agent ended"


class Live:
    """Takes an agent's standard output as it comes and gives each JSON line to a reader.

    What comes after its time is kept apart: an agent whose programs are being ended tells of their end, and goes on.
    """

    def __init__(self, reader: Reader, limit: int, time_s: float) -> None:
        self.reader = reader
        self.has_begun = False
        """Whether anything was printed."""
        self._line = bytearray()
        self._left = limit
        self._deadline = time.monotonic() + time_s
        self._late = bytearray()
        self._words = ""
        self._heard = _Heard()

    def take(self, chunk: bytes) -> None:
        """Take the next piece of output; raise EngineError when there is more than may be kept."""
        self.has_begun = True
        self._left -= len(chunk)
        if self._left < 0:
            raise EngineError("the agent printed more than is kept: raise max_output_mb")
        if time.monotonic() > self._deadline:
            self._late += chunk
        else:
            self._take(chunk)

    def _take(self, chunk: bytes) -> None:
        self._heard.look_at_the_clock()
        before, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            self._line += rest
            return
        for line in bytes(self._line + before).split(b"\n"):
            self._read(line)
        self._line = bytearray(rest)

    def end(self, *, in_time: bool) -> None:
        """Take it that nothing more comes; what came late counts if the agent ended in time."""
        if in_time:
            self._take(bytes(self._late))
        self._read(bytes(self._line))
        self._line.clear()

    def trace(self) -> Trace:
        """Return what was recorded; calls without a result are marked as unfinished."""
        trace = list(self.reader.traces())[-1]
        calls = self.reader.draft.calls
        events = [
            event if call.is_settled else _unfinished(event)
            for event, call in zip(trace.tool_events or [], calls, strict=True)
        ]
        return replace(trace, tool_events=self._heard.timed(events))

    @property
    def words(self) -> str:
        """The end of what was printed beside the events."""
        return self._words.strip()

    def read_line(self, line: bytes, kinds: tuple[str, ...]) -> None:
        """Take an event of one of these types that the agent told elsewhere than on standard output."""
        try:
            value = decode_line(line)
        except ValueError:
            return
        if isinstance(value, dict) and value.get("type") in kinds:
            self.feed(value)

    def _read(self, line: bytes) -> None:
        try:
            value = decode_line(line) if line.strip() else None
        except ValueError:
            self._words = (self._words + line.decode("utf-8", "replace") + "\n")[-_KEPT_CHARS:]
            return
        if isinstance(value, dict):
            self._feed(value)

    def feed(self, item: Item) -> None:
        """Take one event, from wherever the agent told it."""
        self._heard.look_at_the_clock()
        self._feed(item)

    def _feed(self, item: Item) -> None:
        try:
            self.reader.feed(item)
        except Exception as error:  # noqa: BLE001  one event of an unheard-of shape must not end the reading
            self.reader.draft.notes.add(f"an event could not be read: {type(error).__name__}: {str(list(item))[:60]}")
        self._heard.listen(self.reader.draft.calls)


class _Heard:
    """When each call was told of, and its end: the times of agents that print their events without any."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._now = 0.0
        self._starts: list[float] = []
        self._ends: dict[int, float] = {}
        self._open: list[int] = []

    def look_at_the_clock(self) -> None:
        """Let what is heard next count as heard now: all that comes in one piece is of one moment."""
        self._now = (time.monotonic() - self._began) * 1000

    def listen(self, calls: Sequence[DraftCall]) -> None:
        """Take note of the calls that are new, and of those that came back."""
        now = self._now
        if len(calls) < len(self._starts):  # another recording began
            self._starts, self._ends, self._open = [], {}, []
        self._open += range(len(self._starts), len(calls))
        self._starts += [now] * (len(calls) - len(self._starts))
        self._ends |= {place: now for place in self._open if calls[place].is_settled}
        self._open = [place for place in self._open if not calls[place].is_settled]

    def timed(self, events: list[ToolEvent]) -> list[ToolEvent]:
        """Return calls with the times they do not have themselves; none where all was printed at once."""
        if not self._ends or max(self._ends.values()) - self._starts[0] < _AT_ONCE_MS:
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
