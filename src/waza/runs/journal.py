"""The journal: one append-only file per run, one checksummed record per line, on the disk before it is acknowledged.

Acknowledged records survive a kill, a crash and a full disk; truncated or damaged lines are detected and skipped, never
misread. The journal is the only authority on results: everything else in a run folder can be derived from it. Lines and
records are defined in `records.py`, signatures in `signing.py`: what another program wrote into the file is reported
and never counted.
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
from typing import BinaryIO, NamedTuple, NoReturn, Self, TypeVar
from zlib import crc32

from msgspec.structs import replace

from waza.errors import StoreError
from waza.files.disk import (
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
from waza.model import Result
from waza.runs.records import (
    End,
    Header,
    Note,
    Piece,
    Record,
    frame,
    is_result,
    pieces,
    read_record,
    refuse_newer,
    run_hashes,
    write_record,
)
from waza.runs.signing import RUN_CHANGED, Chain, Signature, is_signed, make_key, read_key, unsigned

__all__ = ["End", "Ended", "Header", "Journal", "Note", "Record", "begun", "read_end", "read_journal", "scan_journal"]

_TAIL = 1 << 13
_BUFFER = 1 << 18
_MAX_FOREIGN = 1 << 20
"""How many foreign bytes are searched for our records after a failed write."""
WRITTEN_TO = "another program wrote into it during the run; what it wrote is ignored"
Parsed = TypeVar("Parsed")


class Journal:
    """A journal open for writing, locked by this process; `append` may be called from any thread."""

    def __init__(self, path: Path, fd: int, disk: Disk) -> None:
        self.path = path
        self.results = 0
        """How many results are durable in the file."""
        self.warnings: list[str] = []
        """Problems found when it was opened, for people."""
        self._disk = disk
        self._fd = fd
        self._end = 0
        """Where the last record of ours ends."""
        self._broken = ""
        self._chain = Chain()
        self._key = b""
        self._needs_newline = False
        """Whether foreign bytes at the end of the file may lack a newline."""
        self._turn = threading.Lock()

    @classmethod
    def open(cls, path: str | Path, disk: Disk = DISK, *, run_json: str = "") -> Self:
        """Return the journal at `path`: created if it does not exist, locked, checked and repaired.

        `run_json` is the hash of the file it belongs to. Raises StoreError when another process has it locked, when a
        newer version wrote it, or when it cannot be written.
        """
        path = Path(path)
        try:
            fd, is_locked = _open_locked(path, disk)
        except BlockingIOError:
            raise StoreError(_locked_message(path)) from None
        except OSError as error:
            raise StoreError(f"{path}: cannot be opened for writing: {why(error)}; nothing was run") from error
        journal = cls(path, fd, disk)
        if not is_locked:
            journal.warnings.append(f"{path}: this file system has no locks; do not start a second run on this folder")
        try:
            journal._load_key()
            changed = journal._repair(run_json)
            journal.append(_header(run_json), *changed)
        except BaseException:
            journal.close()
            raise
        return journal

    def append(self, *records: Record) -> list[Piece]:
        """Write records to the disk, with one sync for all of them, and return their places; then they are durable.

        Raises StoreError when that fails: every earlier record is durable, and no part of the new ones is left in the
        file.
        """
        bodies = [write_record(record) for record in records]
        with self._turn:
            if self._broken:
                raise StoreError(self._broken)
            chain = replace(self._chain)
            payloads = [chain.sign(body, self._key) for body in bodies]
            framed = [frame(payload) for payload in payloads]
            lines = b"".join(framed)
            size = self._size()
            try:
                write_all(self._disk, self._fd, b"\n" + lines if self._needs_newline else lines)
                self._disk.sync(self._fd)
                start = self._written_at(size, lines)
            except BaseException as error:  # an interrupt too: a record that is not acknowledged must not stay
                self._cut_back(size, framed, payloads)
                if isinstance(error, OSError):
                    raise StoreError(self._message(error)) from error
                raise
            self._end, self._chain, self._needs_newline = start + len(lines), chain, False
            self.results += sum(isinstance(record, Result) for record in records)
            if not self._disk.links(self._fd):
                self._restore()
            starts = accumulate(map(len, framed), initial=start)
            return [Piece(*at) for at in zip(starts, framed, payloads, strict=False)]

    def bind(self, *run_json: str) -> None:
        """Record the hashes that `run.json` may have from here on."""
        self.append(_header(*run_json))

    def close(self) -> None:
        """Close the file and release its lock; appended records are durable already."""
        with self._turn:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1
            self._broken = self._broken or f"{self.path}: is closed"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _load_key(self) -> None:
        """Load the user's key; without one records are signed with a random key and cannot be verified later."""
        try:
            self._key = make_key()
        except StoreError as error:
            self._key = secrets.token_bytes(32)
            self.warnings.append(f"{self.path}: cannot be verified later on: {error}")

    def _size(self) -> int:
        """Return where the next record is written; raise StoreError when acknowledged records were removed."""
        size = os.lseek(self._fd, 0, os.SEEK_END)
        if size < self._end:
            before = self.results
            self.results = self._count()
            self._broken = f"{self.path}: another program truncated it; {self._kept()} left of {before}; resume the run"
            raise StoreError(self._broken)
        if size > self._end:
            if (warning := f"{self.path}: {WRITTEN_TO}") not in self.warnings:
                self.warnings.append(warning)
            self._needs_newline = os.pread(self._fd, 1, size - 1) != b"\n"
            self._end = size
        return size

    def _count(self) -> int:
        """Return how many results the file has."""
        os.lseek(self._fd, 0, os.SEEK_SET)
        chain = Chain()
        with open(self._fd, "rb", closefd=False) as file:
            found = (piece.payload for piece in pieces(file) if piece.payload is not None)
            return sum(is_result(payload) for payload in found if chain.accept(payload, self._key))

    def _written_at(self, size: int, lines: bytes) -> int:
        """Return where lines begin that were just written; raise OSError when foreign bytes are between them."""
        end = os.lseek(self._fd, 0, os.SEEK_CUR)  # where the last write of this descriptor ended
        start = end - len(lines)
        if start != size + self._needs_newline and os.pread(self._fd, len(lines), start) != lines:
            raise OSError(errno.EIO, "another program writes to it")
        return start

    def _cut_back(self, size: int, framed: list[bytes], payloads: list[bytes]) -> None:
        """Remove what this write added, so that the next record begins on a line of its own; never foreign bytes.

        If another program wrote after it, it stays: a whole record then counts, the rest is closed by a newline.
        """
        self._broken = f"{self.path}: a write was interrupted; resume the run"
        written = (b"\n" if self._needs_newline else b"") + b"".join(framed)
        try:
            own_end = os.lseek(self._fd, 0, os.SEEK_CUR)  # where the last write of this descriptor ended
            end = os.lseek(self._fd, 0, os.SEEK_END)
            if end - size > len(written) + _MAX_FOREIGN:
                return
            added = os.pread(self._fd, end - size, size) if end > size else b""
            own = _length_at_end(added, written) if own_end == end else 0
            if own:
                self._disk.truncate(self._fd, end - own)
                added = added[:-own]
            for line, payload in zip(framed, payloads, strict=True):
                if line in added:
                    self._chain.accept(payload, self._key)
                    self.results += is_result(payload)
            self._needs_newline = self._needs_newline or (bool(added) and not added.endswith(b"\n"))
            self._end = size + len(added)
            self._broken = ""
        except OSError as error:
            self._broken = self._message(error)

    def _restore(self) -> NoReturn:
        """Restore the file after it was deleted: its content exists as long as it is open."""
        try:
            os.lseek(self._fd, 0, os.SEEK_SET)
            with open(self._fd, "rb", closefd=False) as file:
                content = file.read()
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(self.path, content, self._disk)
            self._broken = f"{self.path}: was deleted during the run; {self._kept()} restored; resume the run"
        except (OSError, StoreError) as error:
            self._broken = f"{self.path}: was deleted during the run and cannot be restored: {error}"
        raise StoreError(self._broken)

    def _message(self, error: OSError) -> str:
        if is_full(error):
            return f"{self.path}: the disk is full; {self._kept()} safe; free some space and resume the run"
        return f"{self.path}: cannot be written: {why(error)}; {self._kept()} safe; fix that and resume the run"

    def _kept(self) -> str:
        return "1 result is" if self.results == 1 else f"{self.results} results are"

    def _repair(self, run_json: str) -> list[Note]:
        """Check every line; truncate an unfinished end; replace a damaged file by its good records and keep a copy.

        Returns notes for readers.
        """
        faults: list[Piece] = []
        fitting: list[str] = []
        with open(self._fd, "rb", closefd=False) as file:
            self._chain = begun(file, self._key)
            for piece in pieces(file):
                if piece.payload is not None and self._chain.accept(piece.payload, self._key):
                    _refuse_newer(self.path, piece.payload)
                    self.results += is_result(piece.payload)
                    self._end = piece.end
                    fitting = run_hashes(piece.payload) or fitting
                elif piece.payload is not None:
                    continue
                if piece.payload is None or not piece.is_whole:
                    faults.append(piece)
        self.warnings += [*_warnings(self.path, faults), *_chain_warnings(self.path, self._chain)]
        notes = [Note(text=RUN_CHANGED)] if run_json and fitting and run_json not in fitting else []
        self.warnings += [f"{self.path}: {note.text}" for note in notes]
        if not faults and not self._chain.is_broken:
            return notes
        is_torn = len(faults) == 1 and faults[0].is_torn and not self._chain.is_broken
        if not self._end and not (is_torn and faults[0].looks_started):
            raise StoreError(f"{self.path}: is not a journal this version can read; it was left as it is")
        self._try(self._cut_end if is_torn else self._set_aside)
        return notes

    def _cut_end(self) -> None:
        self._disk.truncate(self._fd, self._end)

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except OSError as error:
            raise StoreError(self._message(error)) from error

    def _set_aside(self) -> None:
        """Copy the damaged file to another name and atomically replace it by its good records."""
        with open_regular(self.path) as file:
            content = file.read()
        copy = self.path.with_name(f"{self.path.name}.damaged-{crc32(content):08x}")
        write_atomically(copy, content, self._disk)
        facts = self._chain.faults()
        what = f"altered ({'; '.join(facts)})" if facts else "damaged"
        note = Note(text=f"the journal was {what}; a copy is in {copy.name}, and its good records were kept")
        chain, good = self._signed_again(content)
        temp = self.path.with_name(f".{secrets.token_hex(8)}.tmp")
        fd = self._disk.open(temp, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL)
        try:
            self._disk.lock(fd)
            lines = b"".join([*good, frame(chain.sign(write_record(note), self._key))])
            write_all(self._disk, fd, lines)
            self._disk.sync(fd)
            self._disk.replace(temp, self.path)
            self._disk.sync_folder(self.path.parent)
        except BaseException:
            os.close(fd)
            temp.unlink(missing_ok=True)
            raise
        os.close(self._fd)
        self._fd, self._end, self._chain = fd, len(lines), chain

    def _signed_again(self, content: bytes) -> tuple[Chain, list[bytes]]:
        """Return the lines of every valid record in a new chain; foreign ones stay unsigned."""
        file = BytesIO(content)
        old, new = begun(file, self._key), Chain()
        lines: list[bytes] = []
        for payload in (piece.payload for piece in pieces(file) if piece.payload is not None):
            if not old.accept(payload, self._key):
                continue
            body = unsigned(payload)
            if old.is_ours:
                lines.append(frame(new.sign(body, self._key)))
            elif new.accept(body, self._key):
                lines.append(frame(body))
        return new, lines


def read_journal(path: str | Path) -> tuple[list[Record], list[str]]:
    """Return every good record in order, and warnings about the rest.

    Never misreads a truncated or damaged file, and needs no lock: the run may still be running. Raises StoreError when
    the file cannot be read at all or a newer version wrote it.
    """
    warnings: list[str] = []
    found: Iterator[tuple[Piece, Record]] = scan_journal(path, warnings, read_record)
    return [record for _, record in found], warnings


def scan_journal(
    path: str | Path, warnings: list[str], read: Callable[[bytes], Parsed | None], chain: Chain | None = None
) -> Iterator[tuple[Piece, Parsed]]:
    """Yield every good record in order with its place, as `read` returns it; `warnings` is filled at the end.

    Foreign records are left out; `chain`, where it is given, has the faults afterwards.
    """
    path, key, followed = Path(path), read_key(), chain or Chain()
    faults: list[Piece] = []
    notes: list[str] = []
    unknown = 0
    try:
        with open_regular(path, _BUFFER) as file:
            begun(file, key, followed)
            for piece in pieces(file):
                if piece.payload is None:
                    faults.append(piece)
                elif not followed.accept(piece.payload, key):
                    continue
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
    warnings += _warnings(path, faults) + ([] if chain else _chain_warnings(path, followed)) + notes
    if unknown:
        warnings.append(f"{path}: {unknown} records are of a kind this version does not know; they stay in the file")


def begun(file: BinaryIO, key: bytes | None, chain: Chain | None = None) -> Chain:
    """Return a chain for the records of a file from its start; the file's position stays at the start."""
    chain = Chain() if chain is None else chain
    chain.begin((piece.payload for piece in pieces(file) if piece.payload is not None), key)
    file.seek(0)
    return chain


class Ended(NamedTuple):
    """How a run ended, and what readers cannot rely on."""

    end: End
    integrity: str


def read_end(path: str | Path, *, is_tail: bool = False) -> Ended | None:
    """Return how the run ended, from the last few records alone; None when it did not, or when that is unknown.

    Only a record that continues the chain counts. With `is_tail` the file has only the end of a journal.
    """
    path, key = Path(path), read_key()
    try:
        with open_regular(path) as file:
            first = next((piece.payload for piece in pieces(file) if piece.payload is not None), b"")
            signature = Signature.of(first)
            is_ours = key is not None and is_signed(first, key)
            if key is not None and not is_ours and not is_tail and _has_ours(file, key):
                return None  # resumed here after it was copied: what counts takes the whole file
            chain = Chain(journal=signature.journal if signature and not is_tail else "", refuses_unsigned=is_ours)
            return _last_end(path, file, key if is_ours or is_tail else None, chain)
    except OSError:
        return None


def _has_ours(file: BinaryIO, key: bytes) -> bool:
    """Return whether a journal that another key began continues with records signed with ours."""
    file.seek(0)
    return any(is_signed(piece.payload, key) for piece in pieces(file) if piece.payload is not None)


def _last_end(path: Path, file: BinaryIO, key: bytes | None, start: Chain) -> Ended | None:
    """Return the end that the last record is, notes and headers apart; more is read until it follows another one."""
    size = file.seek(0, os.SEEK_END)
    tail = _TAIL
    while True:
        file.seek(max(0, size - tail))
        payloads = [piece.payload for piece in pieces(file.readlines()) if piece.payload is not None]
        ours = key is not None and any(is_signed(payload, key) for payload in payloads)
        chain = replace(start, refuses_unsigned=start.refuses_unsigned or ours)
        last: Record | None = None
        count = place = 0
        for payload in payloads:
            if not chain.accept(payload, key):
                continue
            count += 1
            if count == 1:  # whether it continues the chain is unknown
                chain.missing = chain.replaced = 0
            record = _read_record(path, payload)
            if not isinstance(record, (Header, Note)):
                last, place = record, count
        if place > 1 or tail >= size:
            return Ended(last, chain.integrity()) if isinstance(last, End) and chain.is_whole else None
        tail *= 8


def _open_locked(path: Path, disk: Disk) -> tuple[int, bool]:
    """Return a locked descriptor, and whether the file system has locks.

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


def _header(*run_json: str) -> Header:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    hashes = [hash for hash in run_json if hash]
    return Header(pid=os.getpid(), host=socket.gethostname(), opened_at=now, run_json=hashes)


def _length_at_end(added: bytes, written: bytes) -> int:
    """Return how many of the first bytes of `written` are the last ones of `added`."""
    longest = min(len(added), len(written))
    head = written[:64]
    at = added.find(head, len(added) - longest) if longest >= len(head) else -1
    while at >= 0:
        if written.startswith(added[at:]):
            return len(added) - at
        at = added.find(head, at + 1)
    return next((length for length in range(min(longest, len(head)), 0, -1) if added.endswith(written[:length])), 0)


def _locked_message(path: Path) -> str:
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


def _chain_warnings(path: Path, chain: Chain) -> list[str]:
    return [f"{path}: {fact}" for fact in chain.faults()]


def _warnings(path: Path, faults: list[Piece]) -> list[str]:
    return [
        f"{path}: {len(fault.raw)} bytes of an unfinished record at the end are ignored"
        if fault.is_torn
        else f"{path}: bytes {fault.offset} to {fault.end} are damaged; what is not whole there is ignored"
        for fault in faults
    ]
