"""The order in which runs were started in a folder, independent of the clock.

The results folder and each run folder have a small file `.start`. A new run gets the next number of its results folder,
taken under a lock, and a time that is later than that of every run before it. The rule, oldest first:

1. runs that were not started here (pulled, copied in, made before there were numbers), by the time in their names;
2. runs that were started here, by number.

A run that is copied in keeps the mark of the folder it was started in, so it never becomes the latest one by accident.
A deleted run leaves a hole. Where the folder's own file is lost, the mark that most run folders carry is taken for it.
"""

from __future__ import annotations

import os
import secrets
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from waza.files.disk import DISK, Disk, open_regular, write_all, write_atomically

START = ".start"
_LOCK_WAIT_S = 10.0
_STEP_S = 0.001
_MOST_BYTES = 4096


class Start(Struct, frozen=True):
    """Where, as the how many-th and when a run was started; of a results folder: its last run."""

    folder: str
    """The mark of the results folder."""
    number: int
    at: float
    """Seconds since 1970, later than those of every run before it even where the clock was set back."""


_DECODER = msgspec.json.Decoder(Start)


def read_start(folder: Path) -> Start | None:
    """Return the number in `.start` of a run folder or a results folder; None where it is missing or damaged."""
    try:
        with open_regular(folder / START) as file:
            return _DECODER.decode(file.read(_MOST_BYTES))
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def next_start(parent: Path, disk: Disk = DISK) -> Start:
    """Return the next number of a results folder, which no other run gets. Raises OSError when it cannot be written."""
    fd = disk.open(parent / START, os.O_RDWR | os.O_CREAT)
    try:
        if hasattr(os, "fchmod"):
            os.fchmod(fd, 0o600)  # whatever the umask
        _wait_for_lock(fd, disk)
        starts = [(folder, read_start(folder)) for folder in parent.iterdir() if folder.is_dir()]
        known = [start for _, start in starts if start is not None]
        last = read_start(parent)
        mark = last.folder if last else _common_mark(known) or secrets.token_hex(8)
        before = [*([last] if last else []), *(start for start in known if start.folder == mark)]
        times = [*(start.at for start in before), *(time_in_name(folder) for folder, start in starts if start is None)]
        number = 1 + max((start.number for start in before), default=0)
        start = Start(mark, number, max(time.time(), max(times, default=0.0) + _STEP_S))
        disk.truncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
        write_all(disk, fd, msgspec.json.encode(start))
        return start
    finally:
        os.close(fd)


def note_start(folder: Path, start: Start, disk: Disk = DISK) -> None:
    """Write a run's number into its folder."""
    write_atomically(folder / START, msgspec.json.encode(start), disk, lasts=False)


def _wait_for_lock(fd: int, disk: Disk) -> None:
    """Wait for other runs that are being started; two that cannot wait for each other may share a number."""
    until = time.monotonic() + _LOCK_WAIT_S
    while time.monotonic() < until:
        with suppress(BlockingIOError):
            disk.lock(fd)
            return
        time.sleep(0.01)


def in_start_order(folders: Iterable[Path]) -> list[Path]:
    """Return run folders, those started first in front; those of several results folders by their times."""
    by_parent: dict[Path, list[Path]] = {}
    for folder in folders:
        by_parent.setdefault(folder.parent, []).append(folder)
    placed: list[tuple[float, int, int, Path]] = []
    for group, (parent, runs) in enumerate(by_parent.items()):
        latest = 0.0
        for place, (folder, at) in enumerate(_of_one_folder(parent, runs)):
            latest = max(latest, at)
            placed.append((latest, group, place, folder))
    return [folder for *_, folder in sorted(placed)]


def _of_one_folder(parent: Path, runs: list[Path]) -> list[tuple[Path, float]]:
    starts = {folder: read_start(folder) for folder in runs}
    own = read_start(parent)
    mark = own.folder if own else _common_mark([start for start in starts.values() if start is not None])
    here = {folder: start for folder, start in starts.items() if start is not None and start.folder == mark}
    others = sorted((folder for folder in runs if folder not in here), key=lambda folder: folder.name)
    numbered = sorted(here, key=lambda folder: (here[folder].number, folder.name))
    return [*((folder, time_in_name(folder)) for folder in others), *((folder, here[folder].at) for folder in numbered)]


def _common_mark(starts: list[Start]) -> str:
    """Return the mark that most runs carry; of two, that of the run with the higher number."""
    counts = Counter(start.folder for start in starts)
    return max(starts, key=lambda start: (counts[start.folder], start.number)).folder if starts else ""


def time_in_name(folder: Path) -> float:
    """Return the time in a run folder's name, in seconds since 1970; 0 where it has none."""
    try:
        return datetime.strptime(folder.name[:15], "%Y%m%d-%H%M%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0
