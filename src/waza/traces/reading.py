"""Read traces from a file or stream: JSON lines, one JSON document, or a zip archive of Inspect.

The format is recognised by content, never by name. What is valid is read; what is missing or skipped is noted in the
trace as `reading_notes`. Archives are read member by member within limits; nothing is unpacked to disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple
from zipfile import BadZipFile, ZipFile, ZipInfo

from msgspec.structs import replace

from waza.errors import TraceError
from waza.model import JSON, Trace
from waza.traces.base import Item, Notes, Reader, reader_for, readers
from waza.traces.fields import decode, mapping, repair
from waza.traces.waza_trace import WazaTraceReader, own_trace

MAX_LINE_BYTES = 256 << 20
MAX_DOCUMENT_BYTES = 1 << 30
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_BOM = b"\xef\xbb\xbf"
MAGIC = b"PK\x03\x04"
MAX_MEMBER_BYTES = 256 << 20
MAX_TOTAL_BYTES = 4 << 30
_HEADERS = ("header.json", "_journal/start.json")
_SHOWN = 60

Source = str | Path | IO[bytes]


class FoundTrace(NamedTuple):
    """A trace and the format it was written in."""

    format: str
    trace: Trace

    @property
    def notes(self) -> list[str]:
        """Notes on what is missing or was skipped."""
        notes = self.trace.extra.get("reading_notes", [])
        return [str(note) for note in notes] if isinstance(notes, list) else []


def read_trace(source: Source) -> Trace:
    """Return the first trace in a file or a stream; raise TraceError when there is none."""
    for trace in read_traces(source):
        return trace
    raise TraceError(f"{_label(source)}: there is no trace in it")


def read_traces(source: Source) -> Iterator[Trace]:
    """Yield the traces in a file or a stream of bytes; raise TraceError when nothing in it is recognised.

    waza's own traces, one per line, take no more memory than the longest of them.
    """
    return (item.trace for item in read_found(source))


def read_found(source: Source, label: str = "") -> Iterator[FoundTrace]:
    """Yield the traces in a file or a stream, each with its format; `label` is what a stream is called in errors."""
    label = label or _label(source)
    try:
        with opened(source) as file:
            lines = first_lines(file)
            is_empty = True
            for trace in _recognised(lines, label):
                is_empty = False
                yield trace
            if is_empty:
                raise TraceError(_not_recognised(lines))
    except TraceError as error:
        message = str(error)
        raise TraceError(message if message.startswith(f"{label}:") else f"{label}: {message}") from None
    except OSError as error:
        raise TraceError(f"{label}: cannot be read: {error.strerror}") from None


def _recognised(lines: Lines, label: str) -> Iterator[FoundTrace]:
    if lines.first.startswith(MAGIC):
        yield from _from_archive(lines)
        return
    try:
        first = decode_line(lines.first)
    except ValueError:
        yield from _from_document(lines)
        return
    if isinstance(first, dict) and WazaTraceReader.recognises(first):
        yield from _from_own(lines, label)
    elif first is None:
        yield from _from_document(lines)
    else:
        yield from _feed_readers(lines.values(), lines)


def _from_own(lines: Lines, label: str) -> Iterator[FoundTrace]:
    """Yield waza's own traces, one per line, decoded and nothing else."""
    for number, line in lines.raw():
        try:
            trace = own_trace(line)
        except TraceError as error:
            raise TraceError(f"{label}:{number}: {error}") from None
        yield FoundTrace(WazaTraceReader.format, trace)


def _from_document(lines: Lines) -> Iterator[FoundTrace]:
    """Yield the traces of a source whose first line is not JSON: a document of many lines, a broken one, or text."""
    if lines.first.lstrip()[:1] not in (b"{", b"["):
        yield from _feed_readers(lines.values(), lines)
        return
    text = rest_of(lines)
    value = document(text)
    by_line = lines_of(lines, text)
    if value is not None:
        yield from _feed_readers([value], lines)
    elif any(_is_known(item) for item in by_line.values()):
        fresh = lines_of(lines, text)
        yield from _feed_readers(fresh.values(), fresh)
    else:
        yield from _feed_readers([repaired(lines, text)], lines)


def _is_known(value: JSON) -> bool:
    return isinstance(value, dict) and reader_for(value) is not None


def _from_archive(lines: Lines) -> Iterator[FoundTrace]:
    file = lines.file
    if file.seekable():
        file.seek(0)
    else:
        file = BytesIO(lines.first + file.read(MAX_DOCUMENT_BYTES))
    yield from _feed_readers(samples_in(file, lines.notes), lines)


def _feed_readers(values: Iterable[JSON], lines: Lines) -> Iterator[FoundTrace]:
    """Feed each item to the reader of its format, and yield the traces of each recording."""
    reader: Reader | None = None
    for value in values:
        if isinstance(value, list):
            if reader:
                yield from _traces_of(reader, lines)
                reader = None
            yield from _feed_readers(_members(value, lines), lines)
        elif isinstance(value, dict):
            if reader is None or reader.begins(value):
                if reader:
                    yield from _traces_of(reader, lines, is_last=False)
                reader = reader_for(value)
            if reader is None:
                lines.notes.add(f"an item of no known format is skipped: {_shown(value)}")
            else:
                _feed(reader, value, lines)
    if reader:
        yield from _traces_of(reader, lines)


def _members(value: list[JSON], lines: Lines) -> Iterator[JSON]:
    for member in value:
        if isinstance(member, dict) or (isinstance(member, list) and all(isinstance(item, dict) for item in member)):
            yield member
        else:
            lines.notes.add("a member of a list is skipped: it is not a JSON object")


def _feed(reader: Reader, item: Item, lines: Lines) -> None:
    try:
        reader.feed(item)
    except TraceError:
        raise
    except Exception as error:  # noqa: BLE001  one item of an unknown shape must not end the reading
        lines.notes.add(f"an item could not be read as {reader.format}: {type(error).__name__}: {_shown(item)}")


def _traces_of(reader: Reader, lines: Lines, *, is_last: bool = True) -> Iterator[FoundTrace]:
    """Yield a recording's traces; what was skipped since the last recording is noted on the last of them."""
    traces = list(reader.traces())
    for trace in traces[:-1]:
        yield FoundTrace(reader.format, trace)
    for trace in traces[-1:]:
        yield FoundTrace(reader.format, _noted(trace, reader, lines, is_last))


def _noted(trace: Trace, reader: Reader, lines: Lines, is_last: bool) -> Trace:
    notes = lines.notes.take()
    if not notes:
        return trace
    before = trace.extra.get("reading_notes")
    notes += before if isinstance(before, list) else []
    trace = replace(trace, extra=trace.extra | {"reading_notes": notes})
    if is_last and lines.is_truncated and not reader.ended and trace.status == "success":
        return replace(trace, status="error", error="the recording is truncated")
    return trace


def _not_recognised(lines: Lines) -> str:
    known = ", ".join(sorted({kind.format for kind in readers()}))
    start = lines.first[:_SHOWN].decode("utf-8", "replace").strip()
    return f"not a trace, nor a recording that is recognised: it starts with {start!r}; known: {known}"


def _shown(item: Item) -> str:
    return str(list(item))[:_SHOWN]


def _label(source: Source) -> str:
    return str(source) if isinstance(source, str | Path) else "standard input"


@dataclass
class Lines:
    """The lines of a source, of which the first was read already."""

    file: IO[bytes]
    first: bytes
    number: int
    """The first line's number, from 1."""
    notes: Notes = field(default_factory=Notes)
    """What was skipped so far."""
    is_truncated: bool = False
    """Whether the last line, or the document, is truncated."""

    def raw(self) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that are not blank, with their numbers; raise TraceError when one is too long."""
        lines = chain([self.first], iter(lambda: self.file.readline(MAX_LINE_BYTES + 1), b""))
        for number, line in enumerate(lines, self.number):
            if len(line) > MAX_LINE_BYTES:
                raise TraceError(f"line {number} is longer than {MAX_LINE_BYTES >> 20} MB")
            if line.strip():
                yield number, line

    def values(self) -> Iterator[JSON]:
        """Yield the value of each line; a line that is not JSON becomes a note."""
        for number, line in self.raw():
            try:
                value = decode_line(line)
            except ValueError as error:
                self.is_truncated = not line.endswith(b"\n")
                fact = "is truncated" if self.is_truncated else "is not JSON"
                self.notes.add(f"line {number} {fact} and is skipped: {error}")
                continue
            if isinstance(value, dict | list):
                yield value
            elif value is not None:
                self.notes.add(f"line {number} is skipped: it is not a JSON object")


@contextmanager
def opened(source: Source) -> Iterator[IO[bytes]]:
    """Open a source as a stream of bytes; raise TraceError when it cannot be opened."""
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
    """Return the lines of a stream; raise TraceError when it is empty, or not UTF-8."""
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
    """Return the value of one line, also of a list with one member per line, whose commas and brackets are skipped."""
    stripped = line.strip()
    if stripped in (b"[", b"]"):
        return None
    try:
        return decode(stripped)
    except ValueError:
        if not stripped.endswith(b","):
            raise
        return decode(stripped[:-1])


def rest_of(lines: Lines) -> bytes:
    """Return everything from the first line on; raise TraceError when it is too large for one document."""
    text = lines.first + lines.file.read(MAX_DOCUMENT_BYTES)
    if len(text) > MAX_DOCUMENT_BYTES:
        raise TraceError(f"it is one JSON document of more than {MAX_DOCUMENT_BYTES >> 30} GB")
    return text


def document(text: bytes) -> JSON:
    """Return a JSON document, or None when it is not one."""
    try:
        return decode(text)
    except ValueError:
        return None


def repaired(lines: Lines, text: bytes) -> JSON:
    """Return the complete part of a truncated document, and note that it is truncated."""
    value = repair(text)
    if value is not None:
        lines.is_truncated = True
        lines.notes.add("the file is truncated: only the part before that is read")
    return value


def lines_of(lines: Lines, text: bytes) -> Lines:
    """Return the lines of a text that was read as a whole."""
    file = BytesIO(text)
    return Lines(file, file.readline(), lines.number)


def samples_in(file: IO[bytes], notes: Notes, limit: int = MAX_MEMBER_BYTES) -> Iterator[Item]:
    """Yield one log per sample; samples that cannot be read, or exceed the limit, become notes.

    Raises TraceError when the archive is broken or not an evaluation log.
    """
    try:
        with ZipFile(file) as archive:
            yield from _samples(archive, notes, limit)
    except (BadZipFile, EOFError) as error:
        raise TraceError(f"a zip archive that cannot be read: {error}") from None


def _samples(archive: ZipFile, notes: Notes, limit: int) -> Iterator[Item]:
    members = {member.filename: member for member in archive.infolist()}
    samples = [member for path, member in members.items() if path.startswith("samples/") and path.endswith(".json")]
    header = next((members[path] for path in _HEADERS if path in members), None)
    if header is None and not samples:
        raise TraceError("a zip archive, but not an `.eval` log: it has neither header.json nor samples/")
    log = mapping(_read(archive, header, notes, limit)) if header else {}
    if "header.json" not in members:
        notes.add("the log was not finished: it has no header.json")
    spec = mapping(log.get("eval")) or {"task": "unknown"}
    total = 0
    for member in samples:
        total += member.file_size
        if total > MAX_TOTAL_BYTES:
            raise TraceError(f"its samples are more than {MAX_TOTAL_BYTES >> 30} GB")
        sample = _read(archive, member, notes, limit)
        if isinstance(sample, dict):
            yield {"eval": spec, "samples": [sample]}


def _read(archive: ZipFile, member: ZipInfo, notes: Notes, limit: int) -> object:
    """Return a member's JSON, or None with a note; the size in the archive's directory is not trusted."""
    try:
        with archive.open(member) as stream:
            content = stream.read(limit + 1)
        if len(content) > limit:
            raise ValueError(f"more than {limit >> 20} MB")
        return decode(content)
    except NotImplementedError:
        reason = "compressed in a way Python cannot read; `inspect log convert --to json` writes it as JSON"
    except (ValueError, BadZipFile, EOFError, OSError, RuntimeError) as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001  zlib and lzma have their own errors; one bad member is one note
        reason = f"{type(error).__name__}: {error}"
    notes.add(f"{member.filename!r} is skipped: {reason}")
    return None
