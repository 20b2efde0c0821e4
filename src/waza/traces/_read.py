"""Traces out of anything: the format is recognised by content, what is sound is read, what is missing is said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from waza.errors import TraceError
from waza.model import JSON, Trace
from waza.traces._archive import MAGIC, samples_in
from waza.traces._reader import Item, Reader, reader_for, readers
from waza.traces._source import (
    MAX_DOCUMENT_BYTES,
    Lines,
    Source,
    again,
    decode_line,
    first_lines,
    mended,
    opened,
    rest_of,
    whole,
)
from waza.traces.waza_trace import WazaTraceReader, own_trace

_SHOWN = 60


class Found(NamedTuple):
    """A trace and the format it was written in."""

    format: str
    trace: Trace

    @property
    def notes(self) -> list[str]:
        """What is missing or was left out."""
        notes = self.trace.extra.get("reading_notes", [])
        return [str(note) for note in notes] if isinstance(notes, list) else []


def read_trace(source: Source) -> Trace:
    """Return the first trace in a file or a stream; raise TraceError with a sentence when there is none."""
    for trace in read_traces(source):
        return trace
    raise TraceError(f"{_label(source)}: there is no trace in it")


def read_traces(source: Source) -> Iterator[Trace]:
    """Yield the traces in a file or a stream of bytes; raise TraceError when nothing in it is recognised.

    Our own traces, one a line, take no more memory than the longest of them.
    """
    return (found.trace for found in read_found(source))


def read_found(source: Source, label: str = "") -> Iterator[Found]:
    """Yield the traces in a file or a stream, each with its format; `label` is what a stream is called in errors."""
    label = label or _label(source)
    try:
        with opened(source) as file:
            lines = first_lines(file)
            is_empty = True
            for found in _found(lines, label):
                is_empty = False
                yield found
            if is_empty:
                raise TraceError(_nothing(lines))
    except TraceError as error:
        told = str(error)
        raise TraceError(told if told.startswith(f"{label}:") else f"{label}: {told}") from None
    except OSError as error:
        raise TraceError(f"{label}: cannot be read: {error.strerror}") from None


def _found(lines: Lines, label: str) -> Iterator[Found]:
    if lines.first.startswith(MAGIC):
        yield from _from_archive(lines)
        return
    try:
        first = decode_line(lines.first)
    except ValueError:
        yield from _from_unclear(lines)
        return
    if isinstance(first, dict) and WazaTraceReader.recognises(first):
        yield from _from_own(lines, label)
    elif first is None:
        yield from _from_unclear(lines)
    else:
        yield from _pump(lines.values(), lines)


def _from_own(lines: Lines, label: str) -> Iterator[Found]:
    """Yield our own traces, one a line, with nothing done to them beside decoding."""
    for number, line in lines.raw():
        try:
            trace = own_trace(line)
        except TraceError as error:
            raise TraceError(f"{label}:{number}: {error}") from None
        yield Found(WazaTraceReader.format, trace)


def _from_unclear(lines: Lines) -> Iterator[Found]:
    """Read what does not start with a whole JSON line: a document over many lines, a broken one, or other text."""
    if lines.first.lstrip()[:1] not in (b"{", b"["):
        yield from _pump(lines.values(), lines)
        return
    text = rest_of(lines)
    value = whole(text)
    by_line = again(lines, text)
    if value is not None:
        yield from _pump([value], lines)
    elif any(_is_known(item) for item in by_line.values()):
        fresh = again(lines, text)
        yield from _pump(fresh.values(), fresh)
    else:
        yield from _pump([mended(lines, text)], lines)


def _is_known(value: JSON) -> bool:
    return isinstance(value, dict) and reader_for(value) is not None


def _from_archive(lines: Lines) -> Iterator[Found]:
    file = lines.file
    if file.seekable():
        file.seek(0)
    else:
        file = BytesIO(lines.first + file.read(MAX_DOCUMENT_BYTES))
    yield from _pump(samples_in(file, lines.notes), lines)


def _pump(values: Iterable[JSON], lines: Lines) -> Iterator[Found]:
    """Give each item to the reader of its format, and yield what each recording comes to."""
    reader: Reader | None = None
    for value in values:
        if isinstance(value, list):
            if reader:
                yield from _given(reader, lines)
                reader = None
            yield from _pump(_members(value, lines), lines)
        elif isinstance(value, dict):
            if reader is None or reader.begins(value):
                if reader:
                    yield from _given(reader, lines, is_last=False)
                reader = reader_for(value)
            if reader is None:
                lines.notes.add(f"an item of no known format is left out: {_shown(value)}")
            else:
                _feed(reader, value, lines)
    if reader:
        yield from _given(reader, lines)


def _members(value: list[JSON], lines: Lines) -> Iterator[JSON]:
    for member in value:
        if isinstance(member, dict) or (isinstance(member, list) and all(isinstance(item, dict) for item in member)):
            yield member
        else:
            lines.notes.add("a member of a list is left out: it holds no JSON object")


def _feed(reader: Reader, item: Item, lines: Lines) -> None:
    try:
        reader.feed(item)
    except TraceError:
        raise
    except Exception as error:  # noqa: BLE001  one item of an unheard-of shape must not end the reading
        lines.notes.add(f"an item could not be read as {reader.format}: {type(error).__name__}: {_shown(item)}")


def _given(reader: Reader, lines: Lines, *, is_last: bool = True) -> Iterator[Found]:
    """Yield a recording's traces; what was left out since the one before is noted on the last of them."""
    traces = list(reader.traces())
    for trace in traces[:-1]:
        yield Found(reader.format, trace)
    for trace in traces[-1:]:
        yield Found(reader.format, _noted(trace, reader, lines, is_last))


def _noted(trace: Trace, reader: Reader, lines: Lines, is_last: bool) -> Trace:
    notes = lines.notes.take()
    if not notes:
        return trace
    before = trace.extra.get("reading_notes")
    notes += before if isinstance(before, list) else []
    trace = replace(trace, extra=trace.extra | {"reading_notes": notes})
    if is_last and lines.is_cut and not reader.ended and trace.status == "success":
        return replace(trace, status="error", error="the recording breaks off")
    return trace


def _nothing(lines: Lines) -> str:
    known = ", ".join(sorted({kind.format for kind in readers()}))
    start = lines.first[:_SHOWN].decode("utf-8", "replace").strip()
    return f"not a trace, nor a recording that is recognised: it starts with {start!r}; known: {known}"


def _shown(item: Item) -> str:
    return str(list(item))[:_SHOWN]


def _label(source: Source) -> str:
    return str(source) if isinstance(source, str | Path) else "standard input"
