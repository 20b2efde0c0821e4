"""A store of files by content: `objects/ab/abcd…` holds the bytes whose SHA-256 that is.

An object is written whole or not at all, once for all its users, and checked whenever it is read: a damaged one is an
error, never other content. What the objects are is not known here.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from waza.errors import StoreError
from waza.sandbox.tree import open_regular

_CHUNK = 1024 * 1024
_NAME = re.compile(r"[0-9a-f]{64}")


def keep_file(file: BinaryIO, size: int, store: Path) -> str:
    """Store the first `size` bytes of an open file, unless they lie there already, and return their name."""
    digest = hashlib.sha256()
    for chunk in _chunks(file, size):
        digest.update(chunk)
    if _holds(store, digest.hexdigest(), size):
        return digest.hexdigest()
    file.seek(0)
    return _write(_chunks(file, size), store)


def keep_bytes(content: bytes, store: Path) -> str:
    """Store bytes, unless they lie there already, and return their name."""
    name = hashlib.sha256(content).hexdigest()
    return name if _holds(store, name, len(content)) else _write([content], store)


def read_object(store: Path, name: str) -> bytes:
    """Return an object's bytes; raise OSError when it is not there or is damaged."""
    return b"".join(read_chunks(store, name))


def read_chunks(store: Path, name: str) -> Iterator[bytes]:
    """Yield an object's bytes piece by piece; raise OSError, at the latest at the end, when it is damaged."""
    digest = hashlib.sha256()
    with open_regular(_place(store, name)) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            yield chunk
    if digest.hexdigest() != name:
        raise OSError(errno.EIO, "the stored copy is damaged")


def _write(chunks: Iterable[bytes], store: Path) -> str:
    """Write an object beside its place, name it after what was really written, and return that name."""
    try:
        (store / "objects").mkdir(0o700, parents=True, exist_ok=True)
        handle, temp = tempfile.mkstemp(prefix=".", dir=store / "objects")
        try:
            digest = hashlib.sha256()
            with os.fdopen(handle, "wb") as out:
                for chunk in chunks:
                    digest.update(chunk)
                    out.write(chunk)
            place = _place(store, digest.hexdigest())
            place.parent.mkdir(0o700, exist_ok=True)
            Path(temp).replace(place)
        finally:
            Path(temp).unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{store}: a copy of the workspace cannot be written: {error.strerror}") from error
    return digest.hexdigest()


def _chunks(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield at most `size` bytes, so that a file that grows comes to an end."""
    left = size
    while left > 0 and (chunk := file.read(min(left, _CHUNK))):
        left -= len(chunk)
        yield chunk


def _holds(store: Path, name: str, size: int) -> bool:
    """Say whether an object lies in the store; a torn one has another size and is written again."""
    try:
        return _place(store, name).stat().st_size == size
    except OSError:
        return False


def _place(store: Path, name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise OSError(errno.EINVAL, "that is no name of a stored copy")
    return store / "objects" / name[:2] / name
