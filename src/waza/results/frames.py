"""How a record stands in a journal: `crc32hex SPACE json NEWLINE`. What the bytes mean is not known here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from zlib import crc32

_START = re.compile(rb"[0-9a-f]{8} \{")
_SHORTEST = 10
_MOST_STARTS = 200
"""In a damaged line, how many places that look like a record are tried: hostile text may hold any number."""


class Piece(NamedTuple):
    """Some bytes of a journal: a record's payload, or bytes that hold none."""

    offset: int
    raw: bytes
    payload: bytes | None
    is_whole: bool = True
    """Whether the record stands in a line of its own; one saved out of a damaged line does not."""

    @property
    def end(self) -> int:
        """The offset behind these bytes."""
        return self.offset + len(self.raw)

    @property
    def is_torn(self) -> bool:
        """Whether this is the unfinished end of a file: a write that was never acknowledged."""
        return self.payload is None and not self.raw.endswith(b"\n")

    @property
    def looks_started(self) -> bool:
        """Whether these bytes begin as a record does, as far as they go."""
        return bool(_START.match(self.raw)) or len(self.raw) < _SHORTEST


def frame(payload: bytes) -> bytes:
    """Return the line that holds a payload."""
    return b"%08x %b\n" % (crc32(payload), payload)


def unframe(line: bytes) -> bytes | None:
    """Return the payload of a line, or None when it is not exactly what was written."""
    payload = line[9:-1]
    return payload if line[8:9] == b" " and line[-1:] == b"\n" and line[:8] == b"%08x" % crc32(payload) else None


def pieces(lines: Iterable[bytes]) -> Iterator[Piece]:
    """Yield every line as a piece; a damaged one as the records that can be saved from it and the bytes between."""
    offset = 0
    for line in lines:
        payload = unframe(line)
        if payload is not None:
            yield Piece(offset, line, payload)
        else:
            yield from _saved(line, offset)
        offset += len(line)


def _saved(line: bytes, offset: int) -> Iterator[Piece]:
    """Yield what a line holds whose newline was damaged: two records may stand in it."""
    done = 0
    starts = [match.start() for match, _ in zip(_START.finditer(line), range(_MOST_STARTS), strict=False)]
    for start in starts:
        if start < done:
            continue
        for end in (*(later - 1 for later in starts if later > start), len(line) - 1, len(line)):
            payload = unframe(line[start:end] + b"\n")
            if payload is not None:
                if start > done:
                    yield Piece(offset + done, line[done:start], None)
                yield Piece(offset + start, line[start : end + 1], payload, is_whole=False)
                done = end + 1
                break
    if done < len(line):
        yield Piece(offset + done, line[done:], None)
