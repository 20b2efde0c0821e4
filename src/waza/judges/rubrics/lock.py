"""`rubrics.lock`: the hash of the text of each version of a local rubric.

The file is in the folder of its rubrics. It detects a text that changed under the same version, which would make old
and new verdicts look comparable. Only `waza rubric lock` writes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from waza.errors import SpecError, UsageError
from waza.judges.rubrics.rubric import MAX_VERSION, Rubric
from waza.untrusted.yaml import read_yaml

LOCK = "rubrics.lock"
_HEAD = """\
# The text that each version of a rubric here stands for. `waza rubric lock` writes this file; commit it.
"""
_NUMBER = re.compile(r"\d+")


class LockEntry(NamedTuple):
    """The lock's entry for one rubric."""

    version: str
    hash: str


def read_lock(folder: Path) -> dict[str, LockEntry]:
    """Return the entries of a lock by rubric name, none if there is no lock; raise ValueError if it is broken."""
    path = folder / LOCK
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ValueError(f"{LOCK}: cannot be read: {error.strerror or error}") from None
    try:
        tree = read_yaml(raw, LOCK, may_be_empty=True)
    except SpecError as error:
        raise ValueError(f"{error}; fix it, or remove it and run `waza rubric lock`") from None
    return {name: _entry(name, value) for name, value in _mapping(tree).items()}


def _mapping(tree: Any) -> dict[str, Any]:
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ValueError(f"{LOCK}: a mapping of rubric names is needed; remove the file and run `waza rubric lock`")
    return tree


def _entry(name: str, value: Any) -> LockEntry:
    if isinstance(value, dict) and set(value) == {"version", "sha256"}:
        version, sha256 = value["version"], value["sha256"]
        if isinstance(version, str) and isinstance(sha256, str) and len(version) <= MAX_VERSION:
            return LockEntry(version, sha256)
    raise ValueError(f"{LOCK}: '{name[:60]}' needs version and sha256, both texts; `waza rubric lock` writes them")


def lock_problem(rubric: Rubric, entries: dict[str, LockEntry]) -> str:
    """Return how a rubric conflicts with the lock, and the remedy; empty if it does not."""
    entry = entries.get(rubric.name)
    if entry is None or entry == LockEntry(rubric.version, rubric.hash):
        return ""
    if entry.hash != rubric.hash and not _is_raised(entry.version, rubric.version):
        return (
            f"the text of rubric '{rubric.name}' differs from that of {entry.version} in {LOCK}, "
            f"and its version is {rubric.version}; raise the version, then run `waza rubric lock`"
        )
    if not _is_raised(entry.version, rubric.version):
        return (
            f"rubric '{rubric.name}' went back from {entry.version} to {rubric.version}; "
            "versions only go up: raise it, then run `waza rubric lock`"
        )
    return f"rubric '{rubric.name}' is {rubric.version} and {LOCK} has {entry.version}; run `waza rubric lock`"


def locked(folder: Path, rubrics: Iterable[Rubric], *, redo: bool = False) -> dict[str, LockEntry]:
    """Return a folder's entries with these rubrics recorded; raise UsageError for a text changed under its version.

    With `redo` the current text is recorded, for a version that has not been used for grading yet.
    """
    entries = read_lock(folder)
    updated: dict[str, LockEntry] = {}
    for rubric in rubrics:
        entry = entries.get(rubric.name)
        changed = entry is not None and entry != LockEntry(rubric.version, rubric.hash)
        if entry is not None and changed and not redo and not _is_raised(entry.version, rubric.version):
            remedy = "raise its version, or give --redo if nothing was graded with that version yet"
            raise UsageError(f"{rubric.source}: the text of {rubric.name} {entry.version} changed; {remedy}")
        if rubric.name in updated:
            raise UsageError(f"{rubric.source}: another rubric in this folder is called {rubric.name}; rename one")
        updated[rubric.name] = LockEntry(rubric.version, rubric.hash)
    return updated


def lock_text(entries: dict[str, LockEntry]) -> str:
    """Return the lock file's text."""
    return _HEAD + "".join(
        f'"{name}":\n  version: "{entry.version}"\n  sha256: "{entry.hash}"\n'
        for name, entry in sorted(entries.items())
    )


def _is_raised(old: str, new: str) -> bool:
    return _order(new) > _order(old)


def _order(version: str) -> tuple[list[int], bool, list[tuple[bool, int, str]]]:
    """Return a sort key of versions: numbers, a release after its previews, previews part by part."""
    plain, _, preview = version.removeprefix("v").partition("+")[0].partition("-")
    numbers = [int(number) for number in _NUMBER.findall(plain)[:3]]
    parts = [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in preview.split(".")]
    return numbers + [0] * (3 - len(numbers)), not preview, parts if preview else []
