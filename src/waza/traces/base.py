"""The base class of readers: recognises a format by its first items, reads one item after the other, returns traces.

An item is one JSON object: a line of a stream, a member of a list, or a whole document. The folder is the registry:
`traces/codex.py` has `CodexReader`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, ClassVar

from waza.model import Trace
from waza.traces import READERS
from waza.traces._draft import DraftTrace

Item = dict[str, Any]


class Reader:
    """Read one recording; a new reader is made for each."""

    format: ClassVar[str]
    """The name of the format in messages."""
    engine: ClassVar[str | None] = None
    """The agent program or framework that writes it."""
    end_mark: ClassVar[str] = ""
    """What ends every complete recording; empty where the format has no such mark."""
    tools: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """The names of the agent's built-in tools, by kind (`shell`, `read`, …); see `aliases.py`."""
    reads_skill_files: ClassVar[bool] = False
    """Whether the agent has no skill tool, so that its model reads SKILL.md files."""
    provider: ClassVar[str] = ""
    """The vendor of the agent's models, by OpenTelemetry's name; empty where it may be any."""

    def __init__(self) -> None:
        self.draft = DraftTrace(engine=self.engine)
        if self.end_mark:
            self.draft.ended, self.draft.end_mark = False, self.end_mark

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Return whether an item is of this format, by what is in it."""
        raise NotImplementedError(f"{cls.__name__} recognises nothing")

    def begins(self, item: Item) -> bool:
        """Return whether an item starts another recording than the one read so far."""
        return False

    def feed(self, item: Item) -> None:
        """Read the next item."""
        raise NotImplementedError(f"{type(self).__name__} reads nothing")

    def traces(self) -> Iterable[Trace]:
        """Return the traces, after the last item."""
        return [self.draft.trace()]

    @property
    def ended(self) -> bool:
        """Whether the recording is known to be complete."""
        return self.draft.ended is True


@cache
def readers() -> list[type[Reader]]:
    """Return every reader, ours and other packages'."""
    return [READERS.load(name) for name in READERS.names()]


def reader_for(item: Item) -> Reader | None:
    """Return a new reader for an item's format; None when no reader recognises it."""
    return next((kind() for kind in readers() if kind.recognises(item)), None)
