"""Verdicts that were paid for once: a file each, named after everything that could have changed the answer."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from waza.errors import StoreError
from waza.judges._base import Reply
from waza.model import JSON
from waza.results.disk import write_atomically

VERSION = 1
"""Raised when questions are put in another way: older answers are then not used."""


def key_of(*parts: JSON) -> str:
    """Return a name that changes with anything in the parts."""
    return hashlib.sha256(msgspec.json.encode([VERSION, *parts], order="deterministic")).hexdigest()


def recall(folder: Path | None, key: str) -> Reply | None:
    """Return the reply kept under that name, if there is one that can be read."""
    if folder is None:
        return None
    try:
        return msgspec.json.decode(_place(folder, key).read_bytes(), type=Reply)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def remember(folder: Path | None, key: str, reply: Reply) -> None:
    """Keep a reply; a disk that is full or read-only costs the next run a request, nothing else."""
    if folder is None:
        return
    with suppress(OSError, StoreError):
        place = _place(folder, key)
        place.parent.mkdir(parents=True, exist_ok=True)
        _ignore(folder)
        write_atomically(place, msgspec.json.encode(reply))


def _place(folder: Path, key: str) -> Path:
    return folder / key[:2] / f"{key[2:]}.json"


def _ignore(folder: Path) -> None:
    """Keep the cache out of version control."""
    with suppress(FileExistsError):
        descriptor = os.open(folder / ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        with os.fdopen(descriptor, "w") as file:
            file.write("*\n")
