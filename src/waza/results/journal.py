"""The journal: one append-only file a run, one checksummed record a line, on the disk before it is acknowledged.

What was acknowledged survives a kill, a crash and a full disk; what was cut or damaged is noticed and skipped, never
misread. The journal is the only authority on results: everything else in a run folder can be made again from it.
How a line looks is in `frames.py`, what it holds in `records.py`.
"""

from __future__ import annotations

import errno
import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from io import BytesIO
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, NoReturn, Self, TypeVar
from zlib import crc32

from waza.errors import StoreError
from waza.model import Result
from waza.results.disk import (
    DISK,
    NO_WAIT,
    SPECIAL,
    Disk,
    is_full,
    is_special,
    open_regular,
    why,
    write_all,
    write_atomically,
)
from waza.results.frames import Piece, frame, pieces
from waza.results.records import End, Header, Note, Record, is_result, read_record, refuse_newer, write_record

__all__ = ["End", "Header", "Journal", "Note", "Record", "read_end", "read_journal", "scan_journal"]

_TAIL = 1 << 13
_BUFFER = 1 << 18
Seen = TypeVar("Seen")


class Journal:
    """A journal open for writing, held by this process alone; `append` may be called from any thread."""

    def __init__(self, path: Path, fd: int, disk: Disk) -> None:
        self.path = path
        self.results = 0
        """How many results are safe in the file."""
        self.warnings: list[str] = []
        """What opening it found, for a person to read."""
        self._disk = disk
        self._fd = fd
        self._end = 0
        self._broken = ""
        self._turn = threading.Lock()

    @classmethod
    def open(cls, path: str | Path, disk: Disk = DISK) -> Self:
        """Return the journal at `path`: made if it is not there, locked, checked and repaired.

        Raises StoreError when another process holds it, when a newer version wrote it, or when it cannot be written.
        """
        path = Path(path)
        try:
            fd, is_locked = _open_locked(path, disk)
        except BlockingIOError:
            raise StoreError(_held(path)) from None
        except OSError as error:
            raise StoreError(f"{path}: cannot be opened for writing: {why(error)}; nothing was run") from error
        journal = cls(path, fd, disk)
        if not is_locked:
            journal.warnings.append(f"{path}: this file system has no locks; do not start a second run on this folder")
        try:
            journal._repair()
            journal.append(_header())
        except BaseException:
            journal.close()
            raise
        return journal

    def append(self, *records: Record) -> list[Piece]:
        """Put records on the disk, with one sync for all of them; when this returns they are safe: here they stand.

        Raises StoreError when that fails: every record before them is safe, and nothing of them is left in the file.
        """
        payloads = [write_record(record) for record in records]
        framed = [frame(payload) for payload in payloads]
        lines = b"".join(framed)
        with self._turn:
            if self._broken:
                raise StoreError(self._broken)
            try:
                write_all(self._disk, self._fd, lines)
                self._disk.sync(self._fd)
                self._end += len(lines)
            except BaseException as error:  # an interrupt too: what is not acknowledged must not stay
                self._cut_back()
                if isinstance(error, OSError):
                    raise StoreError(self._sentence(error)) from error
                raise
            self.results += sum(isinstance(record, Result) for record in records)
            if not self._disk.links(self._fd):
                self._put_back()
            starts = accumulate(map(len, framed), initial=self._end - len(lines))
            return [Piece(*at) for at in zip(starts, framed, payloads, strict=False)]

    def close(self) -> None:
        """Give back the file and its lock; what was appended is safe already."""
        with self._turn:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1
            self._broken = self._broken or f"{self.path}: is closed"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _cut_back(self) -> None:
        """Take out what was half written, so that the next record does not stick to it."""
        self._broken = f"{self.path}: a write was broken off; resume the run"
        try:
            self._disk.truncate(self._fd, self._end)
            self._broken = ""
        except OSError as error:
            self._broken = self._sentence(error)

    def _put_back(self) -> NoReturn:
        """Write the file again that someone deleted under us: its content lives as long as it is open."""
        try:
            os.lseek(self._fd, 0, os.SEEK_SET)
            with open(self._fd, "rb", closefd=False) as file:
                content = file.read(self._end)
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(self.path, content, self._disk)
            self._broken = f"{self.path}: was deleted while the run went on; {self._kept()} there again; resume the run"
        except (OSError, StoreError) as error:
            self._broken = f"{self.path}: was deleted while the run went on and cannot be put back: {error}"
        raise StoreError(self._broken)

    def _sentence(self, error: OSError) -> str:
        if is_full(error):
            return f"{self.path}: the disk is full; {self._kept()} safe; free some space and resume the run"
        return f"{self.path}: cannot be written: {why(error)}; {self._kept()} safe; mend that and resume the run"

    def _kept(self) -> str:
        return "1 result is" if self.results == 1 else f"{self.results} results are"

    def _repair(self) -> None:
        """Check every line; cut an unfinished end; set a damaged file aside and go on with its good records."""
        faults: list[Piece] = []
        with open(self._fd, "rb", closefd=False) as file:
            for piece in pieces(file):
                if piece.payload is not None:
                    _refuse_newer(self.path, piece.payload)
                    self.results += is_result(piece.payload)
                    self._end = piece.end
                if piece.payload is None or not piece.is_whole:
                    faults.append(piece)
        self.warnings += _warnings(self.path, faults)
        if not faults:
            return
        is_torn = len(faults) == 1 and faults[0].is_torn
        if not self._end and not (is_torn and faults[0].looks_started):
            raise StoreError(f"{self.path}: is not a journal this version can read; it was left as it is")
        self._try(self._cut_end if is_torn else self._set_aside)

    def _cut_end(self) -> None:
        self._disk.truncate(self._fd, self._end)

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except OSError as error:
            raise StoreError(self._sentence(error)) from error

    def _set_aside(self) -> None:
        """Keep the damaged file under another name and put its good records in its place, in one step."""
        with open_regular(self.path) as file:
            content = file.read()
        kept = self.path.with_name(f"{self.path.name}.damaged-{crc32(content):08x}")
        write_atomically(kept, content, self._disk)
        note = Note(text=f"the journal was damaged; it is kept as {kept.name}, and its good records were taken over")
        good = [frame(piece.payload) for piece in pieces(BytesIO(content)) if piece.payload is not None]
        temp = self.path.with_name(f".{secrets.token_hex(8)}.tmp")
        fd = self._disk.open(temp, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL)
        try:
            self._disk.lock(fd)
            lines = b"".join([*good, frame(write_record(note))])
            write_all(self._disk, fd, lines)
            self._disk.sync(fd)
            self._disk.replace(temp, self.path)
            self._disk.sync_folder(self.path.parent)
        except BaseException:
            os.close(fd)
            temp.unlink(missing_ok=True)
            raise
        os.close(self._fd)
        self._fd, self._end = fd, len(lines)


def read_journal(path: str | Path) -> tuple[list[Record], list[str]]:
    """Return every good record in order, and what a person should know about the rest.

    Never misreads a cut or damaged file, and needs no lock: a run may be going on. Raises StoreError when the file
    cannot be read at all or a newer version wrote it.
    """
    warnings: list[str] = []
    found: Iterator[tuple[Piece, Record]] = scan_journal(path, warnings, read_record)
    return [record for _, record in found], warnings


def scan_journal(
    path: str | Path, warnings: list[str], read: Callable[[bytes], Seen | None]
) -> Iterator[tuple[Piece, Seen]]:
    """Yield every good record in order with its place, as `read` returns it; `warnings` is filled at the end."""
    path = Path(path)
    faults: list[Piece] = []
    notes: list[str] = []
    unknown = 0
    try:
        with open_regular(path, _BUFFER) as file:
            for piece in pieces(file):
                if piece.payload is None:
                    faults.append(piece)
                elif (record := read(piece.payload)) is None:
                    unknown += 1
                else:
                    if isinstance(record, Note):
                        notes.append(record.text)
                    yield piece, record
    except StoreError as error:
        raise StoreError(f"{path}: {error}") from None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {why(error)}") from error
    warnings += _warnings(path, faults) + notes
    if unknown:
        warnings.append(f"{path}: {unknown} records are of a kind this version does not know; they are kept")


def read_end(path: str | Path) -> End | None:
    """Return how the run ended, from the last few records alone; None when it did not, or when that cannot be told."""
    path = Path(path)
    try:
        with open_regular(path) as file:
            for piece in reversed(_last_pieces(file)):
                record = _read_record(path, piece.payload) if piece.payload is not None else None
                if not isinstance(record, (Header, Note)):
                    return record if isinstance(record, End) else None
    except OSError:
        return None
    return None


def _last_pieces(file: BinaryIO) -> list[Piece]:
    """Return the pieces at the end of a file, the last one whole however long it is."""
    size = file.seek(0, os.SEEK_END)
    tail = _TAIL
    while True:
        file.seek(max(0, size - tail))
        lines = file.readlines()
        if len(lines) > 1 or tail >= size:
            return list(pieces(lines))
        tail *= 8


def _open_locked(path: Path, disk: Disk) -> tuple[int, bool]:
    """Return a descriptor that holds the lock, and whether the file system has locks.

    Opens again when the holder before us put a repaired file in the place of the one we had opened.
    """
    while True:
        fd = _open(path, disk)
        try:
            if is_special(fd):
                raise OSError(errno.EINVAL, SPECIAL)
            is_locked = disk.lock(fd)
            if disk.links(fd):
                return fd, is_locked
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _open(path: Path, disk: Disk) -> int:
    try:
        return disk.open(path, os.O_RDWR | os.O_APPEND | NO_WAIT)
    except FileNotFoundError:
        fd = disk.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL)
    try:
        disk.sync_folder(path.parent)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _header() -> Header:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Header(pid=os.getpid(), host=socket.gethostname(), opened_at=now)


def _held(path: Path) -> str:
    records, _ = read_journal(path)
    headers = [record for record in records if isinstance(record, Header)]
    who = f"process {headers[-1].pid} on {headers[-1].host}, since {headers[-1].opened_at}" if headers else "a process"
    return f"{path}: another run is writing it ({who}); wait for it or end it"


def _read_record(path: Path, payload: bytes) -> Record | None:
    try:
        return read_record(payload)
    except StoreError as error:
        raise StoreError(f"{path}: {error}") from None


def _refuse_newer(path: Path, payload: bytes) -> None:
    try:
        refuse_newer(payload)
    except StoreError as error:
        raise StoreError(f"{path}: {error}; the file was left as it is") from None


def _warnings(path: Path, faults: list[Piece]) -> list[str]:
    return [
        f"{path}: {len(fault.raw)} bytes of an unfinished record at the end are ignored"
        if fault.is_torn
        else f"{path}: bytes {fault.offset} to {fault.end} are damaged; what is not whole there is ignored"
        for fault in faults
    ]
