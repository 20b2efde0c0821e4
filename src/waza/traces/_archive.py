"""Inspect's `.eval` files: zip archives, read member by member within limits; nothing is ever unpacked to disk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO
from zipfile import BadZipFile, ZipFile, ZipInfo

from waza.errors import TraceError
from waza.traces._json import decode
from waza.traces._notes import Notes
from waza.traces._pick import mapping
from waza.traces._reader import Item

MAGIC = b"PK\x03\x04"
MAX_MEMBER_BYTES = 256 << 20
MAX_TOTAL_BYTES = 4 << 30
_HEADERS = ("header.json", "_journal/start.json")


def samples_in(file: IO[bytes], notes: Notes, limit: int = MAX_MEMBER_BYTES) -> Iterator[Item]:
    """Yield a log with one sample in it per sample; what cannot be read, or is above the limit, is told in `notes`.

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
    told = mapping(_read(archive, header, notes, limit)) if header else {}
    if "header.json" not in members:
        notes.add("the log was not finished: it has no header.json")
    spec = mapping(told.get("eval")) or {"task": "unknown"}
    total = 0
    for member in samples:
        total += member.file_size
        if total > MAX_TOTAL_BYTES:
            raise TraceError(f"its samples are more than {MAX_TOTAL_BYTES >> 30} GB")
        sample = _read(archive, member, notes, limit)
        if isinstance(sample, dict):
            yield {"eval": spec, "samples": [sample]}


def _read(archive: ZipFile, member: ZipInfo, notes: Notes, limit: int) -> object:
    """Return a member's JSON, or None with a note of what is wrong; its own word on its size is not trusted."""
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
    except Exception as error:  # noqa: BLE001  zlib and lzma raise errors of their own; one bad member is one note
        reason = f"{type(error).__name__}: {error}"
    notes.add(f"{member.filename!r} is left out: {reason}")
    return None
