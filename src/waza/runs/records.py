"""Lines and records of a journal: `crc32hex SPACE json NEWLINE`, with a header, results, notes and an end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from zlib import crc32

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from waza import __version__
from waza.errors import StoreError, TraceError
from waza.model import JSON, Grade, Result, Run, Trace
from waza.runs.outcomes import ResultView
from waza.runs.signing import HEADER
from waza.runs.summary import Summary
from waza.untrusted.json import encode_shallow

_START = re.compile(rb"[0-9a-f]{8} \{")
_SHORTEST = 10
_MOST_STARTS = 200
"""How many places in a damaged line that look like a record are tried: hostile text may have any number."""


class Piece(NamedTuple):
    """Some bytes of a journal: a record's payload, or bytes without one."""

    offset: int
    raw: bytes
    payload: bytes | None
    is_whole: bool = True
    """Whether the record is a whole line; one recovered from a damaged line is not."""

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
    """Return the line of a payload."""
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
    """Yield the records in a line whose newline was damaged: there may be two."""
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


VERSION = 2
"""Raised when older readers would misread the file; a new kind of record or a new field does not raise it."""


class Header(Struct, frozen=True, kw_only=True, tag="header", tag_field="kind"):
    """Who opened the journal for writing, and when; the first record, and one more for each resume."""

    version: int = VERSION
    waza: str = __version__
    pid: int = 0
    host: str = ""
    opened_at: str = ""
    run_json: list[str] = field(default_factory=list)
    """The hashes that `run.json` may have from here on: two while it is being replaced."""


class Note(Struct, frozen=True, kw_only=True, tag="note", tag_field="kind"):
    """Something that readers of the run should know."""

    text: str


class End(Struct, frozen=True, kw_only=True, tag="end", tag_field="kind"):
    """How the run ended, with its summary, so that a listing needs no full read."""

    run: Run
    """The run without its spec and results."""
    summary: Summary
    complete: bool = True
    reason: str = ""


class _Stored(Struct, frozen=True, tag="result", tag_field="kind"):
    result: Result


class _StoredResultView(Struct, frozen=True, tag="result", tag_field="kind"):
    result: ResultView


class _Version(Struct, frozen=True):
    version: int


Record = Header | Result | Note | End

_DECODER = msgspec.json.Decoder(Header | _Stored | Note | End)
_SEEN = msgspec.json.Decoder(Header | _StoredResultView | Note | End)
_VERSION = msgspec.json.Decoder(_Version)
_RESULT = b'{"kind":"result"'


def write_record(record: Record) -> bytes:
    """Return a record as one line of JSON, without its newline."""
    if isinstance(record, Result):
        return encode_shallow(_Stored(_storable(record)))
    if isinstance(record, End):
        record = replace(record, run=replace(record.run, spec={}, results=[], integrity=""))
    return encode_shallow(record)


def read_record(payload: bytes) -> Record | None:
    """Return the record, or None for one of a kind or shape this version does not know.

    Raises StoreError when a newer version wrote the journal.
    """
    if payload.startswith(HEADER):
        refuse_newer(payload)
    try:
        record = _DECODER.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return _newer_result(payload)
    return record.result if isinstance(record, _Stored) else record


def read_result_view(payload: bytes) -> Header | ResultView | Note | End | None:
    """Return what `read_record` returns, of a result only what summaries need."""
    if payload.startswith(HEADER):
        refuse_newer(payload)
    try:
        record = _SEEN.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return None
    return record.result if isinstance(record, _StoredResultView) else record


def is_result(payload: bytes) -> bool:
    """Return whether a payload is a result, without parsing it."""
    return payload.startswith(_RESULT)


def refuse_newer(payload: bytes) -> None:
    """Raise StoreError when the payload is the header of a journal this version cannot read."""
    if not payload.startswith(HEADER):
        return
    try:
        version = _VERSION.decode(payload).version
    except msgspec.DecodeError:
        return
    if version > VERSION:
        raise StoreError(f"written by a newer waza (journal version {version}, this one reads {VERSION}); update waza")


def run_hashes(payload: bytes) -> list[str]:
    """Return the hashes of `run.json` that a header names; nothing for other records."""
    record = read_record(payload) if payload.startswith(HEADER) else None
    return record.run_json if isinstance(record, Header) else []


def _storable(result: Result) -> Result:
    """Return the result without its open files, and with no score that is not a number between 0 and 1."""
    if result.trace.files is not None:
        result = replace(result, trace=replace(result.trace, files=None))
    if not all(0.0 <= grade.score <= 1.0 for grade in result.grades):
        result = replace(result, grades=[_sound(grade) for grade in result.grades])
    return result


def _sound(grade: Grade) -> Grade:
    if 0.0 <= grade.score <= 1.0:
        return grade
    feedback = f"the grader gave the score {grade.score}, which is not between 0 and 1"
    return replace(grade, status="error", score=0.0, feedback=feedback)


def _newer_result(payload: bytes) -> Result | None:
    """Return a result whose trace has fields this version does not know; they are preserved."""
    try:
        tree: JSON = msgspec.json.decode(payload)["result"]
        trace = Trace.from_json(tree["trace"])
        return replace(msgspec.convert(tree | {"trace": {"input": "", "output": ""}}, Result), trace=trace)
    except (msgspec.DecodeError, RecursionError, TraceError, KeyError, TypeError):
        return None
