"""The original's transcript files: one task, the events of all its trials one after the other."""

from __future__ import annotations

from waza.model import Trace
from waza.traces.base import Item, Reader
from waza.traces.copilot import CopilotReader
from waza.traces.fields import amount, mappings, name, text


class WazaTranscriptReader(Reader):
    """One transcript; its events are Copilot's in a flattened form, without times."""

    format = "task transcript"

    def __init__(self) -> None:
        super().__init__()
        self._events = CopilotReader()

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Return whether this has a task and a transcript."""
        return isinstance(item.get("transcript"), list) and "task_id" in item and "final_output" in item

    def begins(self, item: Item) -> bool:
        """Return whether this is another transcript, which each one is."""
        return True

    def feed(self, item: Item) -> None:
        """Read the transcript."""
        for event in mappings(item["transcript"]):
            self._events.feed(event | {"result": event.get("tool_result")})
        draft = self._events.draft
        draft.ended = True
        draft.input = text(item.get("prompt")) or draft.input
        draft.output = text(item.get("final_output"))
        draft.duration_ms = amount(item.get("duration_ms"))
        draft.extra = {"task_id": text(item.get("task_id"))}
        if item.get("status") == "error":
            draft.fail(name(item.get("error_msg")) or "the task ended with an error")

    def traces(self) -> list[Trace]:
        """Return the one trace."""
        return [self._events.draft.trace()]
