"""Verdicts that were paid for once: a file each, named after everything that could have changed the answer.

Each is signed with the user's key and counts only under its own name: an entry that somebody else wrote, or that was
moved or changed, is ignored, and the judge is asked.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from hmac import compare_digest
from pathlib import Path
from typing import NamedTuple

import msgspec

from waza.errors import StoreError
from waza.judges._base import Reply
from waza.model import JSON
from waza.results.disk import open_regular, write_atomically
from waza.results.signing import keyed_hash, make_key, read_key

VERSION = 2
"""Raised when questions are put in another way: older answers are then not used."""


_PURPOSE = b"waza verdicts"
_MOST_BYTES = 1 << 24


class Recalled(NamedTuple):
    """What the cache holds of a question."""

    reply: Reply | None = None
    is_refused: bool = False
    """Whether an entry is there that was not signed with the user's key for this question."""


def key_of(*parts: JSON) -> str:
    """Return a name that changes with anything in the parts."""
    return hashlib.sha256(msgspec.json.encode([VERSION, *parts], order="deterministic")).hexdigest()


def recall(folder: Path | None, key: str) -> Recalled:
    """Return the reply kept under that name, if there is one that the user's key signed."""
    if folder is None:
        return Recalled()
    try:
        with open_regular(_place(folder, key)) as file:
            signature, _, content = file.read(_MOST_BYTES).partition(b"\n")
    except FileNotFoundError:
        return Recalled()
    except OSError:
        return Recalled(is_refused=True)
    signing = read_key()
    if signing is None or not compare_digest(signature, _signature(signing, key, content)):
        return Recalled(is_refused=True)
    try:
        return Recalled(msgspec.json.decode(content, type=Reply))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Recalled()


def remember(folder: Path | None, key: str, reply: Reply) -> None:
    """Keep a reply; a disk that is full or read-only costs the next run a request, nothing else."""
    if folder is None:
        return
    with suppress(OSError, StoreError):
        content = msgspec.json.encode(reply)
        place = _place(folder, key)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _ignore(folder)
        write_atomically(place, _signature(make_key(), key, content) + b"\n" + content)


def _signature(signing: bytes, key: str, content: bytes) -> bytes:
    return keyed_hash(signing, _PURPOSE, key.encode() + content).encode()


def _place(folder: Path, key: str) -> Path:
    return folder / key[:2] / f"{key[2:]}.json"


def _ignore(folder: Path) -> None:
    """Keep a cache that a caller has put into a project out of version control."""
    with suppress(FileExistsError):
        descriptor = os.open(folder / ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        with os.fdopen(descriptor, "w") as file:
            file.write("*\n")
