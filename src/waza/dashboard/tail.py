"""A journal read on from where somebody stopped: what the index and the live view share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from waza.errors import StoreError
from waza.results.disk import open_regular, why
from waza.results.frames import pieces
from waza.results.journal import begun
from waza.results.records import End, Header, Note, read_seen
from waza.results.seen import SeenResult
from waza.results.signing import Chain, read_key


class Entry(NamedTuple):
    """A record with its place in the file; None where the bytes hold none that can be read."""

    offset: int
    length: int
    record: Header | SeenResult | Note | End | None

    @property
    def end(self) -> int:
        """Where the next record begins."""
        return self.offset + self.length


def read_on(journal: Path, start: int, chain: Chain) -> Iterator[Entry]:
    """Yield every record from an offset on, up to one that is still being written. Raises StoreError.

    `chain` is what is known of the records before, and follows these; one that somebody else wrote is None.
    """
    key = read_key()
    try:
        with open_regular(journal) as file:
            if not start:
                begun(file, key, chain)
            file.seek(start)
            for piece in pieces(file):
                if piece.is_torn:
                    return
                is_own = piece.payload is not None and chain.accept(piece.payload, key)
                record = read_seen(piece.payload) if is_own and piece.payload is not None else None
                yield Entry(start + piece.offset, len(piece.raw), record)
    except OSError as error:
        raise StoreError(f"{journal}: cannot be read: {why(error)}") from error
