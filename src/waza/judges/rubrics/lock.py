"""`rubrics.lock`: which text each version of a local rubric stands for.

The file lies beside the rubrics of one folder. A rubric whose text changed under the same version would make old and
new verdicts look comparable; reading the lock tells, and only `waza rubric lock` writes it.
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
    """What the lock says about one rubric."""

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
        found = read_yaml(raw, LOCK, may_be_empty=True)
    except SpecError as error:
        raise ValueError(f"{error}; mend it, or remove it and run `waza rubric lock`") from None
    return {name: _entry(name, value) for name, value in _mapping(found).items()}


def _mapping(found: Any) -> dict[str, Any]:
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ValueError(f"{LOCK}: a mapping of rubric names is needed; remove the file and run `waza rubric lock`")
    return found


def _entry(name: str, value: Any) -> LockEntry:
    if isinstance(value, dict) and set(value) == {"version", "sha256"}:
        version, sha256 = value["version"], value["sha256"]
        if isinstance(version, str) and isinstance(sha256, str) and len(version) <= MAX_VERSION:
            return LockEntry(version, sha256)
    raise ValueError(f"{LOCK}: '{name[:60]}' needs version and sha256, both texts; `waza rubric lock` writes them")


def lock_problem(rubric: Rubric, entries: dict[str, LockEntry]) -> str:
    """Return what the lock has against a rubric, as a sentence with its remedy, or nothing."""
    entry = entries.get(rubric.name)
    if entry is None or entry == LockEntry(rubric.version, rubric.hash):
        return ""
    if entry.hash != rubric.hash and not _is_raised(entry.version, rubric.version):
        return (
            f"rubric '{rubric.name}' says something else than the {entry.version} in {LOCK}, "
            f"and its version is {rubric.version}; raise the version, then run `waza rubric lock`"
        )
    if not _is_raised(entry.version, rubric.version):
        return (
            f"rubric '{rubric.name}' went back from {entry.version} to {rubric.version}; "
            "a version that was given out stays: raise it, then run `waza rubric lock`"
        )
    return f"rubric '{rubric.name}' is {rubric.version} and {LOCK} knows {entry.version}; run `waza rubric lock`"


def locked(folder: Path, rubrics: Iterable[Rubric], *, redo: bool = False) -> dict[str, LockEntry]:
    """Return a folder's entries with these rubrics recorded; raise UsageError for a text changed under its version.

    With `redo` the text is recorded as it is, for a version that nothing was graded with yet.
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
    """Return what versions are compared by: numbers, a release after its previews, previews part by part."""
    plain, _, preview = version.removeprefix("v").partition("+")[0].partition("-")
    numbers = [int(number) for number in _NUMBER.findall(plain)[:3]]
    parts = [(not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in preview.split(".")]
    return numbers + [0] * (3 - len(numbers)), not preview, parts if preview else []
