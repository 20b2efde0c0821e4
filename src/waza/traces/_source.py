"""Where items come from: a file or a stream with JSON lines, one JSON document, or an archive. Names play no part."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import IO

from waza.errors import TraceError
from waza.model import JSON
from waza.traces._json import decode, mend
from waza.traces._notes import Notes

MAX_LINE_BYTES = 256 << 20
MAX_DOCUMENT_BYTES = 1 << 30
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_BOM = b"\xef\xbb\xbf"

Source = str | Path | IO[bytes]


@dataclass
class Lines:
    """The lines of a source, the first of which was looked at."""

    file: IO[bytes]
    first: bytes
    number: int
    """The first line's number, from 1."""
    notes: Notes = field(default_factory=Notes)
    """What was left out on the way."""
    is_cut: bool = False
    """Whether the last line, or the document, breaks off."""

    def raw(self) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that are not blank, with their numbers; raise TraceError when one is far too long."""
        lines = chain([self.first], iter(lambda: self.file.readline(MAX_LINE_BYTES + 1), b""))
        for number, line in enumerate(lines, self.number):
            if len(line) > MAX_LINE_BYTES:
                raise TraceError(f"line {number} is longer than {MAX_LINE_BYTES >> 20} MB")
            if line.strip():
                yield number, line

    def values(self) -> Iterator[JSON]:
        """Yield the value of each line; lines that are no JSON are told in the notes."""
        for number, line in self.raw():
            try:
                value = decode_line(line)
            except ValueError as error:
                self.is_cut = not line.endswith(b"\n")
                fact = "breaks off" if self.is_cut else "is not JSON"
                self.notes.add(f"line {number} {fact} and is left out: {error}")
                continue
            if isinstance(value, dict | list):
                yield value
            elif value is not None:
                self.notes.add(f"line {number} is left out: it holds no JSON object")


@contextmanager
def opened(source: Source) -> Iterator[IO[bytes]]:
    """Give a source as a stream of bytes; raise TraceError when it cannot be opened."""
    if not isinstance(source, str | Path):
        yield source
        return
    try:
        file = Path(source).open("rb")  # noqa: SIM115  closed below
    except OSError as error:
        raise TraceError(f"cannot be read: {error.strerror}") from None
    with file:
        yield file


def first_lines(file: IO[bytes]) -> Lines:
    """Return the lines of a stream; raise TraceError when there is nothing in it, or nothing that is UTF-8."""
    number = 1
    line = file.readline(MAX_LINE_BYTES + 1)
    if line.startswith(_UTF16):
        raise TraceError("it is UTF-16; save it as UTF-8")
    line = line.removeprefix(_BOM)
    while line and not line.strip():
        number += 1
        line = file.readline(MAX_LINE_BYTES + 1)
    if not line:
        raise TraceError("it is empty")
    return Lines(file, line, number)


def decode_line(line: bytes) -> JSON:
    """Return the value of one line; in a list with one member a line, the comma and the brackets are none."""
    bare = line.strip()
    if bare in (b"[", b"]"):
        return None
    try:
        return decode(bare)
    except ValueError:
        if not bare.endswith(b","):
            raise
        return decode(bare[:-1])


def rest_of(lines: Lines) -> bytes:
    """Return everything from the first line on; raise TraceError when it is too much for one document."""
    text = lines.first + lines.file.read(MAX_DOCUMENT_BYTES)
    if len(text) > MAX_DOCUMENT_BYTES:
        raise TraceError(f"it is one JSON document of more than {MAX_DOCUMENT_BYTES >> 30} GB")
    return text


def whole(text: bytes) -> JSON:
    """Return a document, or None when it is none."""
    try:
        return decode(text)
    except ValueError:
        return None


def mended(lines: Lines, text: bytes) -> JSON:
    """Return what stands before the place where a document breaks off, and note that it does."""
    value = mend(text)
    if value is not None:
        lines.is_cut = True
        lines.notes.add("the file breaks off: only what stands before is read")
    return value


def again(lines: Lines, text: bytes) -> Lines:
    """Return the lines of a text that was read as a whole."""
    file = BytesIO(text)
    return Lines(file, file.readline(), lines.number)
