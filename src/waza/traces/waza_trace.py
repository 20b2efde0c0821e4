"""Traces as waza writes them, and evaldeck's (their `steps` are a list)."""

from __future__ import annotations

from waza.errors import TraceError
from waza.model import Trace
from waza.traces.base import Item, Reader


class WazaTraceReader(Reader):
    """One trace an item, taken as it is."""

    format = "trace"

    def __init__(self) -> None:
        super().__init__()
        self._traces: list[Trace] = []

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Return whether this has an input, and an output or evaldeck's steps."""
        has_output = "output" in item and isinstance(item["output"], str | None)
        return isinstance(item.get("input"), str) and (has_output or isinstance(item.get("steps"), list))

    def begins(self, item: Item) -> bool:
        """Return whether this is another trace, which each one is."""
        return True

    def feed(self, item: Item) -> None:
        """Read the trace; raise TraceError when a field has the wrong type."""
        self._traces = [own_trace(item)]

    def traces(self) -> list[Trace]:
        """Return the one trace."""
        return self._traces


def own_trace(source: bytes | Item) -> Trace:
    """Return a trace of ours or evaldeck's; raise TraceError when it is none, whatever is in it."""
    try:
        return Trace.from_json(source)
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise TraceError(f"not a trace: {error}") from None
