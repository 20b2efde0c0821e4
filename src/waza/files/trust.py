"""The user's own folders, and which project folders the user trusts: only their Python is imported into waza.

Trust is given by `waza trust` and kept in the user's configuration, never in a project: a repository cannot consent for
itself. It covers the folder and everything below it. The importable files of the folder are hashed when trust is given,
so that later changes can be reported; they do not take trust away.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import NamedTuple

import msgspec

from waza.errors import StoreError, UsageError
from waza.untrusted.text import well_formed

FILE = "trust.json"
VERSION = 1
MAX_FILES = 20_000
"""How many importable files are hashed; in a folder with more, changes are not tracked."""
_SUFFIXES = tuple(all_suffixes())
_LEFT_OUT = frozenset(("__pycache__", "node_modules", "site-packages"))


class TrustRecord(msgspec.Struct, forbid_unknown_fields=True):
    """One trusted folder."""

    trusted_at: str = ""
    files: dict[str, str] | None = None
    """The SHA-256 of each importable file by its path below the folder; None where there were too many."""


class TrustRecords(msgspec.Struct):
    """The contents of the user's file: the trusted folders by their resolved paths."""

    version: int = VERSION
    folders: dict[str, TrustRecord] = {}


class Changes(NamedTuple):
    """What is different in a trusted folder since trust was given."""

    changed: list[str]
    added: list[str]
    removed: list[str]


def trust_file() -> Path:
    """Return where the trusted folders are recorded."""
    return config_folder() / FILE


def read_records() -> dict[Path, TrustRecord]:
    """Return the trusted folders; raise StoreError when the file cannot be relied on."""
    file = trust_file()
    try:
        fd = os.open(file, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise StoreError(f"{file} cannot be read: {error.strerror}; no folder is trusted until it can") from None
    with os.fdopen(fd, "rb") as opened:
        _refuse_foreign(file, os.fstat(fd))
        try:
            found = msgspec.json.decode(opened.read(), type=TrustRecords)
        except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
            raise StoreError(f"{file} is damaged ({error}), so no folder is trusted; {_ANEW}") from None
    if found.version != VERSION:
        raise StoreError(f"{file} was written by another version of waza, so no folder is trusted; {_ANEW}")
    return {Path(path): record for path, record in found.folders.items()}


_ANEW = "`waza trust` starts a new one and keeps this one next to it"


def _refuse_foreign(file: Path, found: os.stat_result) -> None:
    """Raise StoreError for a file that another user could have written."""
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"{file} is not a regular file, so no folder is trusted; remove it")
    if sys.platform == "win32":
        return
    if found.st_uid not in (os.getuid(), 0) or found.st_mode & 0o022:
        raise StoreError(f"others can write to {file}, so no folder is trusted; check it, then: chmod 600 {file}")


def covering(folder: Path, records: dict[Path, TrustRecord]) -> Path | None:
    """Return the trusted folder nearest to `folder`: itself or one above it; None where there is none."""
    return next((place for place in (folder, *folder.parents) if place in records), None)


def is_trusted(folder: Path) -> bool:
    """Return whether the user trusts a folder, given by its resolved path; a damaged record trusts nothing."""
    try:
        return covering(folder, read_records()) is not None
    except StoreError:
        return False


def not_trusted(folder: Path) -> str:
    """Return why a folder is not trusted and what the user can do, as the end of a sentence."""
    try:
        read_records()
    except StoreError as error:
        return str(error)
    return f"the folder {folder} is not trusted; check its code, then: {command_for(folder)} (or give --trust once)"


def command_for(folder: Path) -> str:
    """Return the command that trusts a folder, for the command line."""
    return shlex.join(["waza", "trust", str(folder)])


def trust(folder: Path) -> TrustRecord:
    """Record that the user trusts a folder and return what was recorded; a damaged file is kept next to the new one."""
    folder = folder.resolve()
    if folder == Path(folder.anchor):
        raise UsageError(f"{folder} contains every folder; name the folder of a project")
    if well_formed(str(folder)) != str(folder):
        raise UsageError(f"{folder}: the name is not UTF-8 and cannot be recorded; rename it, or give --trust")
    files = fingerprints(folder)
    record = TrustRecord(datetime.now(UTC).isoformat(timespec="seconds"), files)
    with _locked():
        try:
            records = read_records()
        except StoreError:
            records = {}
            damaged = trust_file().with_suffix(f".damaged-{datetime.now(UTC):%Y%m%d%H%M%S}.json")
            trust_file().replace(damaged)
        _write(records | {folder: record})
    return record


def forget(folder: Path) -> None:
    """Remove a folder from the trusted ones; raise UsageError when it is not one of them."""
    with _locked():
        records = read_records()
        if folder not in records:
            above = covering(folder, records)
            hint = f"it is trusted as a part of {above}: remove that one" if above else "`waza trust --list` names them"
            raise UsageError(f"{folder} is not one of the trusted folders; {hint}")
        del records[folder]
        _write(records)


class _locked:
    """Let one process at a time change the record, where the system has locks for that."""

    def __enter__(self) -> None:
        folder = config_folder()
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._fd = os.open(folder / f"{FILE}.lock", os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        except OSError as error:
            raise StoreError(f"{folder} cannot be written to: {error.strerror}") from None
        if sys.platform != "win32":
            import fcntl  # not on Windows

            fcntl.flock(self._fd, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _write(records: dict[Path, TrustRecord]) -> None:
    """Write the record as a whole, readable by its owner alone."""
    file = trust_file()
    text = msgspec.json.encode(TrustRecords(folders={str(path): record for path, record in sorted(records.items())}))
    temporary = file.with_name(f".{FILE}.{os.getpid()}")
    try:
        temporary.unlink(missing_ok=True)
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
        with os.fdopen(fd, "wb") as opened:
            opened.write(msgspec.json.format(text))
            opened.flush()
            os.fsync(fd)
        temporary.replace(file)
    except OSError as error:
        raise StoreError(f"{file} cannot be written: {error.strerror}") from None


def importable_files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder that Python could import, sorted.

    Skipped: hidden folders, `__pycache__`, `node_modules`, `site-packages`, virtual environments, links.
    """
    for place, folders, files in os.walk(folder):
        if place != str(folder) and "pyvenv.cfg" in files:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT and not name.startswith("."))
        yield from (Path(place, name) for name in sorted(files) if name.endswith(_SUFFIXES))


def fingerprints(folder: Path) -> dict[str, str] | None:
    """Return the SHA-256 of each importable file by its path below a folder; None where there are too many."""
    found: dict[str, str] = {}
    for file in importable_files(folder):
        if len(found) == MAX_FILES:
            return None
        found[_name(file, folder)] = _digest(file)
    return found


def changes_in(folder: Path) -> Changes | None:
    """Return what changed below a folder since its trust was given; None where that is not tracked."""
    try:
        records = read_records()
    except StoreError:
        return None
    place = covering(folder, records)
    known = records[place].files if place else None
    if place is None or known is None:
        return None
    above = folder.relative_to(place).as_posix()
    above = "" if above == "." else f"{above}/"
    before = {name.removeprefix(above): digest for name, digest in known.items() if name.startswith(above)}
    now = fingerprints(folder)
    if now is None:
        return None
    return Changes(
        [name for name in now if name in before and now[name] != before[name]],
        [name for name in now if name not in before],
        [name for name in before if name not in now],
    )


def _name(file: Path, folder: Path) -> str:
    return file.relative_to(folder).as_posix().encode("utf-8", "backslashreplace").decode()


def _digest(file: Path) -> str:
    try:
        if not file.is_file():
            return "not a regular file"
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return "not readable"


@cache
def config_folder() -> Path:
    """Return the folder of the user's configuration of waza.

    It is decided once in a process: a library that reads a project's `.env` later (litellm does) cannot change it. A
    relative XDG_CONFIG_HOME is ignored, as its specification requires; it would lead into the project.
    """
    named = os.environ.get("APPDATA" if sys.platform == "win32" else "XDG_CONFIG_HOME", "")
    if named and Path(named).is_absolute():
        return Path(named) / "waza"
    try:
        return Path.home() / ".config" / "waza"
    except RuntimeError:
        raise StoreError("you have no home folder, so there is no configuration; set XDG_CONFIG_HOME") from None


def cache_folder() -> Path:
    """Return the folder of waza's cache for the user; never one inside a project.

    Raises StoreError where the user has no home folder.
    """
    named = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or ""
    if named and Path(named).is_absolute():
        return Path(named) / "waza"
    try:
        return Path.home() / ".cache" / "waza"
    except RuntimeError:
        raise StoreError("you have no home folder, so there is no cache; set XDG_CACHE_HOME") from None
