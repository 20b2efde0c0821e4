"""Stored runs as a collection: marks people put on them, which ones to remove, taking some elsewhere."""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from waza.errors import StoreError, UsageError
from waza.files.disk import DISK, NO_WAIT, is_special, open_regular, why, write_atomically
from waza.runs.folder import JOURNAL
from waza.runs.start_order import START
from waza.runs.store import StoredRun, newest_first

TAGS = "tags.json"
MOST_TAG = 60


def tags_of(folder: str | Path) -> list[str]:
    """Return the tags people put on a run; none where the file is not there or not readable."""
    try:
        with open_regular(Path(folder) / TAGS) as file:
            return read_tags(file.read())
    except OSError:
        return []


def read_tags(content: bytes) -> list[str]:
    """Return the tags in a file's content; none where it is something else."""
    try:
        return msgspec.json.decode(content, type=list[str])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []


def write_tags(folder: Path, tags: Sequence[str]) -> None:
    """Write the tags of a run, in place of those it had."""
    write_atomically(folder / TAGS, msgspec.json.encode(tags) + b"\n")


def tag_run(folder: Path, add: Sequence[str] = (), remove: Sequence[str] = ()) -> list[str]:
    """Put tags on a run or take them off, and return those it has now; raise UsageError for one that is no tag."""
    for tag in add:
        if not is_tag(tag):
            raise UsageError(f"a tag is a printable text of at most {MOST_TAG} characters, found {tag!r}")
    tags = sorted({*tags_of(folder), *add} - {*remove})
    write_tags(folder, tags)
    return tags


def is_tag(text: str) -> bool:
    """Return whether a text may be a tag."""
    return bool(text.strip()) and len(text) <= MOST_TAG and text.isprintable()


def is_running(folder: str | Path) -> bool:
    """Return whether a process is writing the run at this moment."""
    try:
        with locked(folder):
            return False
    except UsageError:
        return True


@contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """Keep a run from being resumed meanwhile, where its journal can be locked; raise UsageError if it is running."""
    try:
        fd = DISK.open(Path(folder) / JOURNAL, os.O_RDWR | NO_WAIT)
    except OSError:
        yield
        return
    try:
        try:
            if not is_special(fd):
                DISK.lock(fd)
        except BlockingIOError:
            raise UsageError(f"{Path(folder).name}: is still running; wait until it has ended") from None
        yield
    finally:
        os.close(fd)


def to_prune(
    runs: Sequence[StoredRun],
    *,
    keep: int | None = None,
    older_than_days: float | None = None,
    with_tagged: bool = False,
) -> list[StoredRun]:
    """Return the runs to remove, the oldest first: beyond the newest `keep` of each suite and model, or too old.

    Runs with a tag are kept unless `with_tagged`; running ones always are.
    """
    limit = None if older_than_days is None else datetime.now(UTC) - timedelta(days=older_than_days)
    newest: dict[tuple[str, str], int] = {}
    found: list[StoredRun] = []
    for stored in newest_first(runs):
        kind = (stored.run.name, stored.run.model)
        newest[kind] = newest.get(kind, 0) + 1
        is_surplus = keep is None or newest[kind] > keep
        is_old = limit is None or started(stored) < limit
        if is_surplus and is_old and (with_tagged or not tags_of(stored.folder)) and not is_running(stored.folder):
            found.append(stored)
    return found[::-1]


def started(stored: StoredRun) -> datetime:
    """Return when a run began; by its folder's age where it has no time."""
    try:
        found = datetime.fromisoformat(stored.run.started_at)
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    except ValueError:
        return datetime.fromtimestamp(Path(stored.folder).stat().st_mtime, UTC)


def export_runs(folders: Sequence[Path], target: Path) -> int:
    """Write runs into a new zip file, each in its own folder, and return the number of files."""
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        raise UsageError("two of these runs have the same name; export them one by one")
    try:
        with zipfile.ZipFile(target, "x", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
            count = 0
            for folder, name in zip(folders, names, strict=True):
                for file in _files(folder):
                    archive.write(file, f"{name}/{file.relative_to(folder).as_posix()}")
                    count += 1
            return count
    except FileExistsError:
        raise UsageError(f"{target} is there already; name a new file") from None
    except OSError as error:
        raise StoreError(f"{target}: cannot be written: {why(error)}") from error


def _files(folder: Path) -> Iterator[Path]:
    """Yield the regular files of a run folder, sorted; links are left out, and its place among the runs here."""
    for path in sorted(folder.rglob("*")):
        if stat.S_ISREG(path.lstat().st_mode) and path.name != START:
            yield path
