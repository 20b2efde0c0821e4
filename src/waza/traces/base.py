"""What every reader is: it recognises a format by its first items, takes one item after the other, gives traces.

An item is one JSON object: a line of a stream, a member of a list, or a whole document. The folder is the registry:
`traces/codex.py` holds `CodexReader`. Other packages announce readers under the entry point `waza.traces`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, ClassVar

from waza.model import Trace
from waza.plugins import Folder
from waza.traces._draft import DraftTrace

Item = dict[str, Any]


class Reader:
    """Read one recording; a new reader is made for each."""

    format: ClassVar[str]
    """What the format is called, for people."""
    engine: ClassVar[str | None] = None
    """The agent program or framework that writes it."""
    end_mark: ClassVar[str] = ""
    """What stands at the end of every whole recording; empty where the format has no such mark."""

    def __init__(self) -> None:
        self.draft = DraftTrace(engine=self.engine)
        if self.end_mark:
            self.draft.ended, self.draft.end_mark = False, self.end_mark

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Say whether an item is of this format, by what is in it."""
        raise NotImplementedError(f"{cls.__name__} recognises nothing")

    def begins(self, item: Item) -> bool:
        """Say whether an item is the start of another recording than the one read so far."""
        return False

    def feed(self, item: Item) -> None:
        """Take the next item."""
        raise NotImplementedError(f"{type(self).__name__} reads nothing")

    def traces(self) -> Iterable[Trace]:
        """Return what was recorded, when there are no more items."""
        return [self.draft.trace()]

    @property
    def ended(self) -> bool:
        """Whether the recording is known to be whole."""
        return self.draft.ended is True


READERS = Folder("traces", "Reader")


@cache
def readers() -> list[type[Reader]]:
    """Return every reader, ours and other packages'."""
    return [READERS.load(name) for name in READERS.names()]


def reader_for(item: Item) -> Reader | None:
    """Return a new reader for the format an item is of; None when no reader recognises it."""
    return next((kind() for kind in readers() if kind.recognises(item)), None)
