"""Reads a run as lists show it: from its journal's last record if it has ended; with the reason if unreadable."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from waza.errors import StoreError
from waza.model import Run
from waza.reports.html.view import NOT_TEXT, RunRow
from waza.runs.folder import JOURNAL, RUN, read_run_json
from waza.runs.journal import read_end
from waza.runs.retention import TAGS, is_running, started, tags_of
from waza.runs.start_order import read_start
from waza.runs.store import StoredRun, run_folders
from waza.runs.summary import summarize
from waza.untrusted.text import well_formed


def folder_text(folder: Path) -> str:
    """Return a folder's path as text that can be stored, whatever bytes its names are made of."""
    text = str(folder)
    return text if well_formed(text) == text else NOT_TEXT + os.fsencode(folder).hex()


def listed_run(known: RunRow, fill: Callable[[RunRow, Run], Run]) -> RunRow:
    """Return what a list shows of a run of which key, folder and stamp are known; `fill` gives it its results."""
    start = read_start(known.path)
    known = replace(known, started=_started(known), place=start.at if start else 0.0)
    if odd := _odd(known.path):
        return replace(known, problem=well_formed(odd))
    known = replace(known, tags=[well_formed(tag) for tag in tags_of(known.path)])
    try:
        return _read(known, fill)
    except StoreError as error:
        return replace(known, problem=well_formed(str(error)))
    except Exception as error:  # noqa: BLE001  one broken run must not hide all the others
        return replace(known, problem=well_formed(f"{known.path}: cannot be read: {type(error).__name__}: {error}"))


def _odd(folder: Path) -> str:
    """Return the file that is a link, a pipe, a device or a socket, which is not read. Nothing where none is."""
    for path in (folder / name for name in (RUN, JOURNAL, TAGS)):
        with suppress(OSError):  # reading it says why not
            kind = path.lstat().st_mode
            if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
                return f"{path}: is not a regular file; remove it"
    return ""


def _read(known: RunRow, fill: Callable[[RunRow, Run], Run]) -> RunRow:
    folder = known.path
    run = read_run_json(folder)
    ended = read_end(folder / JOURNAL)
    end, integrity = ended or (None, "")
    # A writer takes the lock before it changes the file, so probing the lock after a change disturbs no writer.
    is_live = not (end and end.complete) and bool(size_of(folder / JOURNAL)) and is_running(folder)
    done = None
    if end is None or is_live or not end.summary.is_current:
        filled = fill(known, run)
        summary, integrity = summarize(filled), filled.integrity
        done = len(filled.results) + len(filled.triggers) if end is None or is_live else None
    else:
        summary = end.summary
    return replace(
        known,
        suite=well_formed(run.name),
        engine=well_formed(run.engine),
        model=well_formed(run.model),
        skill=well_formed(run.skill),
        started_at=well_formed(run.started_at),
        started=_started(known, run),
        place=known.place or _started(known, run),
        verdict="running" if is_live else {0: "passed", 1: "failed"}.get(summary.exit_code, "error"),
        is_live=is_live,
        is_complete=bool(end and end.complete and not is_live),
        done=done,
        planned=_planned(run),
        integrity=well_formed(integrity),
        summary=summary,
    )


def _planned(run: Run) -> int | None:
    """Return how many trials are planned; None where that is decided during the run."""
    suite = run.suite
    tasks = len(suite.tasks) + len(suite.trigger_tasks)
    return None if suite.auto_trials is not None else tasks * suite.config.trials


def _started(known: RunRow, run: Run | None = None) -> float:
    """Return when a run began; by its folder's age where it does not say, 0 where that is gone too."""
    unknown = Run(id="", name="", started_at="", engine="")
    try:
        return started(StoredRun(folder=str(known.path), run=run or unknown)).timestamp()
    except (OSError, OverflowError, ValueError):
        return 0.0


def folders_in(parent: Path) -> list[Path]:
    """Return the run folders of a parent; links are left out, wherever they lead."""
    try:
        return [folder for folder in run_folders(parent) if not folder.is_symlink()]
    except StoreError:
        return []


def stamp_of(folder: Path) -> str:
    """Return a text that changes with a run's files; the journal's size is first."""
    return " ".join(file_stamp(folder / name) for name in (JOURNAL, RUN, TAGS))


def file_stamp(path: Path) -> str:
    """Return a file's size and time; a dash where it is not there."""
    try:
        status = path.lstat()
    except OSError:
        return "-"
    return f"{status.st_size}.{status.st_mtime_ns}"


def size_of(path: Path) -> int:
    """Return a file's size; 0 where it is not there."""
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def inode_of(path: Path) -> int:
    """Return the inode of a path; 0 where there is none."""
    try:
        return path.lstat().st_ino
    except OSError:
        return 0
