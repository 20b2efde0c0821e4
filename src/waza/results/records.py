"""What a journal holds: a header, results, notes, an end. And how each is written and read."""

from __future__ import annotations

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from waza import __version__
from waza.errors import StoreError, TraceError
from waza.model import JSON, Grade, Result, Run, Trace
from waza.results.plain import encode_shallow
from waza.results.seen import SeenResult
from waza.results.signing import HEADER
from waza.results.summary import Summary

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


class _StoredSeen(Struct, frozen=True, tag="result", tag_field="kind"):
    result: SeenResult


class _Version(Struct, frozen=True):
    version: int


Record = Header | Result | Note | End

_DECODER = msgspec.json.Decoder(Header | _Stored | Note | End)
_SEEN = msgspec.json.Decoder(Header | _StoredSeen | Note | End)
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


def read_seen(payload: bytes) -> Header | SeenResult | Note | End | None:
    """Return what `read_record` returns, of a result only what summaries look at."""
    if payload.startswith(HEADER):
        refuse_newer(payload)
    try:
        record = _SEEN.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return None
    return record.result if isinstance(record, _StoredSeen) else record


def is_result(payload: bytes) -> bool:
    """Say whether a payload holds a result, without reading it."""
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
    """Return a result whose trace has fields this version does not know; they are kept."""
    try:
        tree: JSON = msgspec.json.decode(payload)["result"]
        trace = Trace.from_json(tree["trace"])
        return replace(msgspec.convert(tree | {"trace": {"input": "", "output": ""}}, Result), trace=trace)
    except (msgspec.DecodeError, RecursionError, TraceError, KeyError, TypeError):
        return None
