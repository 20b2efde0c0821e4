"""Snapshots: finding, reading and writing them, and how a text differs from one."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from waza.files.disk import write_atomically
from waza.files.paths import SpecFolder
from waza.graders.text import excerpt

_HOW_TO_WRITE = "`update_snapshots: true` writes it"
Status = Literal["updated", "created", "unchanged"]


def snapshot_path(snapshot: str, folder: SpecFolder, context_dir: str | None, *, create: bool) -> Path:
    """Return the path of a snapshot; with `create`, the path it would have.

    It is searched in `context_dir`, or without one next to the eval file and at the project's root. Raises ValueError
    when it leaves that folder, or does not exist and is not to be created.
    """
    if context_dir is not None:
        context = folder.place(context_dir) if create else folder.find(context_dir)
        place = (context / snapshot).resolve()
        if not place.is_relative_to(context) or place == context:
            raise ValueError(f"snapshot '{snapshot}' leaves the folder '{context_dir}'")
        return place
    try:
        return folder.find(snapshot)
    except ValueError as error:
        place = folder.place(snapshot)
        if not create:
            raise ValueError(f"{error}; {_HOW_TO_WRITE}") from None
        if not place.is_relative_to(folder.base):
            raise
        return place


def read_snapshot(place: Path, snapshot: str) -> bytes:
    """Return a snapshot's bytes; raise ValueError when it is not a file that can be read."""
    if not place.is_file():
        raise ValueError(f"snapshot '{snapshot}' does not exist or is not a file; {_HOW_TO_WRITE}")
    try:
        return place.read_bytes()
    except OSError as error:
        raise ValueError(f"snapshot '{snapshot}' cannot be read: {error.strerror}") from None


def write_snapshot(place: Path, content: bytes) -> tuple[Status, int]:
    """Write a snapshot if it differs, whole or not at all; return what was done and how many lines changed.

    Raises OSError or StoreError.
    """
    old = place.read_bytes() if place.exists() else None
    if old == content:
        return "unchanged", 0
    place.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(place, content, mode=0o644 if old is None else stat.S_IMODE(place.stat().st_mode))
    return "created" if old is None else "updated", lines_changed(old or b"", content)


def lines_changed(one: bytes, other: bytes) -> int:
    """Return at how many line numbers two files differ, ignoring line endings."""
    return sum(a != b for a, b in _line_pairs(one, other))


def first_difference(one: bytes, other: bytes) -> tuple[str, str]:
    """Return the first line that differs, as it is in each file."""
    for number, (a, b) in enumerate(_line_pairs(one, other), 1):
        if a != b:
            return f"line {number}: {_shown(a)}", f"line {number}: {_shown(b)}"
    return "the same lines, only line endings differ", "the same lines, only line endings differ"


def _shown(line: bytes) -> str:
    return excerpt(line.decode("utf-8", "backslashreplace"))


def _line_pairs(one: bytes, other: bytes) -> Iterator[tuple[bytes, bytes]]:
    mine, others = (text.replace(b"\r\n", b"\n").split(b"\n") for text in (one, other))
    return zip_longest(mine, others, fillvalue=b"")
