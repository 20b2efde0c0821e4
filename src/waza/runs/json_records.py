"""Small JSON files in a folder of a project, one per record, that can be shared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from waza.errors import StoreError
from waza.files.disk import why, write_atomically

T = TypeVar("T")


def read_all(folder: Path, decoder: msgspec.json.Decoder[T], what: str) -> Iterator[T]:
    """Yield the record in every file of a folder; `what` is its kind and the command that makes it.

    Raises StoreError for a file that cannot be read.
    """
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".json")
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"{folder}: cannot be listed: {why(error)}") from error
    for path in paths:
        if (record := read_one(path, decoder, what)) is not None:
            yield record


def read_one(path: Path, decoder: msgspec.json.Decoder[T], what: str) -> T | None:
    """Return the record in a file, None where there is none. Raises StoreError when it cannot be read."""
    try:
        return decoder.decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {why(error)}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        noun, _, command = what.partition(": ")
        raise StoreError(f"{path}: is not a {noun}: {error}; remove it and run `{command}` again") from None


def write_one(path: Path, record: Any, what: str) -> Path:
    """Write a record, replacing an older one, and return its path."""
    noun = what.partition(": ")[0]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{path.parent}: cannot be created: {why(error)}; the {noun} is not stored") from error
    write_atomically(path, msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n", mode=0o644)
    return path
