"""Detect changes of a project's files after the first agent started, so that no agent changes what grades it.

A folder is tracked by each file's size, times, inode and, up to a limit, content. The time of the last change of an
inode cannot be set by a program, so that a file that was changed and restored is noticed as well.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

MAX_FILES = 20_000
"""A folder with more files is not tracked."""
MAX_BYTES = 32 * 1024**2
"""How much content is hashed; of other files any change of size or times counts."""
_LEFT_OUT = frozenset(("__pycache__", "node_modules", "site-packages"))

Stamp = tuple[int, ...]


class _FileState(NamedTuple):
    stamp: Stamp
    digest: bytes | None


class PinnedFiles:
    """The recorded state of the files of some folders. Skipped: hidden folders, `__pycache__`, `node_modules`,
    `site-packages`, virtual environments, and the folders in `without`, where runs are written.
    """

    def __init__(self, without: Iterable[Path] = ()) -> None:
        self._without = {path.resolve() for path in without}
        self._folders: dict[Path, dict[str, _FileState] | None] = {}
        self._trials = self._agents = self._started = 0

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Count a trial while it runs."""
        self._trials, self._started = self._trials + 1, self._started + 1
        try:
            yield
        finally:
            self._trials -= 1

    @contextmanager
    def agent(self) -> Iterator[None]:
        """Count an agent while it works."""
        self._agents += 1
        try:
            yield
        finally:
            self._agents -= 1

    @contextmanager
    def own_changes(self) -> Iterator[None]:
        """Accept changes meanwhile as made by programs of the suite, if no agent can have made them."""
        before = {folder: self.scan(folder) for folder, recorded in self._folders.items() if recorded is not None}
        quiet = self.quiet()
        yield
        if quiet is not None and quiet == self.quiet():
            for folder, found in before.items():
                self.accept(folder, found, self.scan(folder))

    def quiet(self) -> int | None:
        """Return a number that changes with each trial; None while an agent works or several trials run."""
        return self._started if self._trials <= 1 and not self._agents else None

    def accept(self, folder: Path, before: dict[str, Stamp] | None, after: dict[str, Stamp] | None) -> None:
        """Record what changed between two scans of a folder, unless it had differed from the record already."""
        recorded = self._folders.get(folder)
        if recorded is None or before is None or after is None:
            return
        for name in differing(before, after):
            known = recorded.pop(name, None)
            if (known.stamp if known else None) != before.get(name):
                recorded |= {name: known} if known else {}
                continue
            if name in after:
                recorded[name] = _FileState(after[name], _digest(folder / name, MAX_BYTES // 16))

    def pin(self, folder: Path) -> bool:
        """Record the files of a folder as they are, once; return whether they can be tracked."""
        if folder not in self._folders:
            found = self.scan(folder)
            left = MAX_BYTES
            recorded: dict[str, _FileState] = {}
            for name, stamp in (found or {}).items():
                digest = _digest(folder / name, left) if _size(stamp) <= left else None
                left -= _size(stamp) if digest is not None else 0
                recorded[name] = _FileState(stamp, digest)
            self._folders[folder] = None if found is None else recorded
        return self._folders[folder] is not None

    def changed(self, folder: Path, now: dict[str, Stamp] | None) -> list[str]:
        """Return the files of a folder that differ from the record; `now` is the result of `scan`."""
        recorded = self._folders.get(folder)
        if recorded is None:
            return []
        if now is None:
            return [f"more than {MAX_FILES} files"]
        return [
            name for name in sorted({*recorded, *now}) if not _is_same(folder / name, recorded.get(name), now.get(name))
        ]

    def changed_below(self, path: Path) -> list[str]:
        """Return the changed files at or below a path in a recorded folder."""
        for folder, recorded in self._folders.items():
            if recorded is None or not path.is_relative_to(folder):
                continue
            inside = path.relative_to(folder).as_posix()
            known = {name: one for name, one in recorded.items() if _is_below(name, inside)} if path.is_dir() else {}
            if inside in recorded:
                known = {inside: recorded[inside]}
            elif not known and not path.is_dir():
                continue  # in a folder that is skipped
            now = {name: stamp for name, stamp in self._found(folder, path) if _is_below(name, inside)}
            every = sorted({*known, *now})
            return [name for name in every if not _is_same(folder / name, known.get(name), now.get(name))]
        return []

    def _found(self, folder: Path, path: Path) -> Iterator[tuple[str, Stamp]]:
        above = path.relative_to(folder).as_posix()
        if not path.is_dir():
            stamp = _stamp(path)
            yield from [(above, stamp)] if stamp is not None else []
            return
        for name, stamp in (self.scan(path) or {}).items():
            yield (name if above == "." else f"{above}/{name}"), stamp

    def scan(self, folder: Path) -> dict[str, Stamp] | None:
        """Return the stamp of each file in a folder by its path there; None where there are too many."""
        found: dict[str, Stamp] = {}
        visited: set[tuple[int, int]] = set()
        waiting = [("", folder)]
        while waiting:
            above, place = waiting.pop()
            for name, path, is_folder in _entries(place, visited):
                inside = f"{above}{name}"
                if is_folder:
                    if not self._is_left_out(name, path):
                        waiting.append((f"{inside}/", path))
                elif (stamp := _stamp(path)) is not None:
                    found[inside] = stamp
                    if len(found) > MAX_FILES:
                        return None
        return found

    def _is_left_out(self, name: str, path: Path) -> bool:
        if name in _LEFT_OUT or name.startswith(".") or (path / "pyvenv.cfg").exists():
            return True
        return path.resolve() in self._without


def differing(before: dict[str, Stamp] | None, after: dict[str, Stamp] | None) -> list[str]:
    """Return the files that were changed between two scans of a folder, even if their content is the same again."""
    one, other = before or {}, after or {}
    return [name for name in sorted({*one, *other}) if one.get(name) != other.get(name)]


def unless_allowed(names: Sequence[str], may_change: Sequence[str]) -> list[str]:
    """Return the names that match none of the globs; a folder's name matches everything in it."""
    globs = [glob.rstrip("/").replace("[", "[[]") for glob in may_change]  # brackets are literal, as in all our globs
    return [name for name in names if not any(fnmatchcase(name, one) or fnmatchcase(name, f"{one}/*") for one in globs)]


def _entries(place: Path, visited: set[tuple[int, int]]) -> list[tuple[str, Path, bool]]:
    """Return the entries of a folder and whether each is a folder, links followed; empty if it was visited before."""
    try:
        info = place.stat()
        if (info.st_dev, info.st_ino) in visited:
            return []
        visited.add((info.st_dev, info.st_ino))
        with os.scandir(place) as entries:
            return [(entry.name, Path(entry.path), entry.is_dir()) for entry in entries]
    except OSError:
        return []


def _stamp(path: Path) -> Stamp | None:
    """Return what changes with a file, and with the target of a link; None where it does not exist."""
    try:
        info = path.lstat()
        stamp = _numbers(info)
        return stamp + _numbers(path.stat()) if stat.S_ISLNK(info.st_mode) else stamp
    except OSError:
        return None


def _numbers(info: os.stat_result) -> Stamp:
    return info.st_size, stat.S_IFMT(info.st_mode), info.st_ino, info.st_mtime_ns, info.st_ctime_ns


def _size(stamp: Stamp) -> int:
    return stamp[-5]


def _is_same(path: Path, before: _FileState | None, now: Stamp | None) -> bool:
    if before is None or now is None:
        return before is None and now is None
    if before.stamp == now:
        return True
    if before.digest is None or _size(before.stamp) != _size(now):
        return False
    return _digest(path, _size(now)) == before.digest


def _digest(path: Path, most: int) -> bytes | None:
    """Return the hash of a regular file's content; None where it cannot be read, or has more than `most` bytes."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            content = file.read(most + 1)
        return blake2b(content, digest_size=16).digest() if len(content) <= most else None
    except OSError:
        return None


def _is_below(name: str, folder: str) -> bool:
    return folder == "." or name == folder or name.startswith(f"{folder}/")
