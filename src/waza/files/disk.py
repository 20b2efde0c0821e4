"""The system calls that write to a disk, in one object, and atomic writing of whole files.

Tests pass a `Disk` that fails. The rules of the journal are in `runs/journal.py`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from waza.errors import StoreError

try:
    import fcntl
except ImportError:  # Windows has its own locks
    fcntl = None  # type: ignore[assignment]
    import msvcrt

_ALWAYS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_FULL = {errno.ENOSPC, errno.EDQUOT}
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}
_FAR = 2**62
_PIECE = 1 << 20
NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
"""Opening a pipe or a device with these does not wait for the other end."""
SPECIAL = "it is not a regular file; remove it"


class Disk:
    """The operating system's calls, as they are."""

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        """Return a descriptor that no child inherits; a new file has exactly `mode`, whatever the umask."""
        fd = os.open(path, flags | _ALWAYS, mode)
        if flags & os.O_EXCL and hasattr(os, "fchmod"):
            os.fchmod(fd, mode)
        return fd

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Write and return how many bytes were written."""
        return os.write(fd, data)

    def sync(self, fd: int) -> None:
        """Wait until the written bytes are on the disk."""
        (os.fdatasync if hasattr(os, "fdatasync") else os.fsync)(fd)

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file."""
        os.ftruncate(fd, size)

    def lock(self, fd: int) -> bool:
        """Take the only lock on an open file, until it is closed or its process ends; False if the system has none.

        Raises BlockingIOError when another process holds it.
        """
        try:
            _lock(fd)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return False
            raise
        return True

    def links(self, fd: int) -> int:
        """Return how many names the open file has; 0 when it was deleted."""
        return os.fstat(fd).st_nlink

    def replace(self, source: Path, target: Path) -> None:
        """Give `source` the name `target`, in one step."""
        source.replace(target)

    def sync_folder(self, folder: Path) -> None:
        """Wait until the names in a folder are on the disk, where the system can do that."""
        if os.name != "posix":
            return
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        finally:
            os.close(fd)


DISK = Disk()


def open_regular(path: Path, buffering: int = -1) -> BinaryIO:
    """Open a file of a run folder for reading; every reader of the store uses this, as a folder may be of any origin.

    Raises OSError for a link, which could lead to any file of the reader's, and for a pipe, a device or a socket, which
    could be read forever.
    """
    return open(path, "rb", buffering, opener=_open_regular)


def _open_regular(path: str, flags: int) -> int:
    if not hasattr(os, "O_NOFOLLOW") and Path(path).is_symlink():
        raise OSError(errno.ELOOP, SPECIAL)
    try:
        fd = os.open(path, flags | NO_WAIT | _ALWAYS)
    except OSError as error:
        if error.errno == errno.ELOOP and Path(path).is_symlink():
            raise OSError(errno.ELOOP, SPECIAL) from None
        raise
    if is_special(fd):
        os.close(fd)
        raise OSError(errno.EINVAL, SPECIAL)
    return fd


def is_special(fd: int) -> bool:
    """Return whether an open file is a pipe, a device or a socket; a folder is refused when it is read."""
    mode = os.fstat(fd).st_mode
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def write_all(disk: Disk, fd: int, data: bytes) -> None:
    """Write every byte; a short write is followed by another, which raises the reason."""
    view = memoryview(data)
    while view:
        written = disk.write(fd, view)
        if written <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view = view[written:]


def write_atomically(
    path: Path, data: bytes | str | Iterable[bytes], disk: Disk = DISK, mode: int = 0o600, *, lasts: bool = True
) -> None:
    """Write a whole file, in one piece or in many: afterwards it is the old one or the new one, never half of either.

    With `lasts` the folder is synced too, so that the new file survives a power cut.
    Raises StoreError; the old file is then untouched and no temporary file is left.
    """
    temp = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        text = data.encode() if isinstance(data, str) else data
        _write_new(temp, [text] if isinstance(text, bytes) else _large(text), disk, mode)
        disk.replace(temp, path)
        if lasts:
            disk.sync_folder(path.parent)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {why(error)}; the old file is untouched") from error
    finally:
        with contextlib.suppress(OSError):
            temp.unlink()


def _large(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield small pieces as fewer large ones."""
    buffered: list[bytes] = []
    size = 0
    for piece in pieces:
        buffered.append(piece)
        size += len(piece)
        if size >= _PIECE:
            yield b"".join(buffered)
            buffered, size = [], 0
    yield b"".join(buffered)


def _write_new(path: Path, pieces: Iterable[bytes], disk: Disk, mode: int) -> None:
    fd = disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        for piece in pieces:
            write_all(disk, fd, piece)
        disk.sync(fd)
    finally:
        os.close(fd)


def probe(folder: Path, disk: Disk = DISK) -> None:
    """Raise StoreError unless a file can be written in `folder`; called before the first paid call."""
    temp = folder / f".{secrets.token_hex(8)}.tmp"
    try:
        _write_new(temp, [b"waza\n"], disk, 0o600)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be written to: {why(error)}; nothing was run") from error
    finally:
        with contextlib.suppress(OSError):
            temp.unlink()


def _lock(fd: int) -> None:
    if fcntl is not None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    # One byte beyond any real end: Windows forbids others to read what is locked.
    os.lseek(fd, _FAR, os.SEEK_SET)
    try:
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    except PermissionError as error:
        raise BlockingIOError(error.errno, error.strerror) from None
    finally:
        os.lseek(fd, 0, os.SEEK_SET)


def is_full(error: OSError) -> bool:
    """Return whether the disk or the quota is full."""
    return error.errno in _FULL


def why(error: OSError) -> str:
    """Return the cause in words, without the path."""
    return (error.strerror or str(error)).lower()
