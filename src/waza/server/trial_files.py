"""The files a trial left, and those its task began with, read for their page.

They come from the run's own store, by their hash. A fixture is read where the eval file says, no link followed, and
counts only if it has not changed since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from msgspec import convert

from waza.errors import WazaError
from waza.files.paths import inner_path
from waza.files.snapshot import EMPTY, SnapshotFiles, SnapshotItem, read_manifest, read_object
from waza.files.trial_folder import NOT_COPIED
from waza.files.workspace import Workspace
from waza.model import JSON, InputFile, Result
from waza.reports.html.files import MOST_BYTES, FileContent, FileList
from waza.reports.html.trial import LeftFiles
from waza.reports.html.view import OpenRun
from waza.runs.folder import ARTIFACTS

MOST_GIVEN = 2_000
"""Files of a fixture that are compared."""
Read = Callable[[], bytes]


class FixtureFiles(NamedTuple):
    """The files a task began with."""

    files: dict[str, Read]
    note: str = ""
    """Why some of them are not known."""


def left_files(opened: OpenRun, result: Result) -> LeftFiles | None:
    """Return the names of the files that a trial left; None where its workspace was not stored."""
    if not result.snapshot:
        return None
    if result.snapshot == EMPTY:
        return LeftFiles(is_empty=True)
    try:
        return LeftFiles(list(SnapshotFiles(opened.listed.path / ARTIFACTS, result.snapshot).paths()))
    except OSError as error:
        return LeftFiles(error=error.strerror or str(error))


def file_list(opened: OpenRun, result: Result, turn: str) -> FileList:
    """Return the files of a trial against its fixture, at its end or after a turn."""
    snapshot = result.turn_snapshots.get(turn, result.snapshot) if turn else result.snapshot
    if not snapshot:
        return FileList(error="The workspace was not stored.")
    try:
        items = {item.path: item for item in read_manifest(opened.listed.path / ARTIFACTS, snapshot).items}
    except OSError as error:
        return FileList(error=f"The stored workspace cannot be read: {error.strerror or error}")
    given = given_files(opened, result.task_id)
    paths = {*items, *given.files}
    return FileList(items, {path: _state(items.get(path), given, path) for path in paths}, given.note)


def file_content(opened: OpenRun, task: str, path: str, item: SnapshotItem | None) -> FileContent:
    """Return one file as the fixture has it and as the trial left it, where it can be shown."""
    if item is not None and (item.kind != "file" or item.left_out or item.size > MOST_BYTES):
        return FileContent()
    given = given_files(opened, task)
    try:
        before = given.files[path]() if path in given.files else None
        after = read_object(opened.listed.path / ARTIFACTS, item.sha256) if item is not None else None
    except OSError as error:
        return FileContent(error=error.strerror or str(error))
    return FileContent(before, after)


def given_files(opened: OpenRun, task: str) -> FixtureFiles:
    """Return the files a task began with, as far as they are still what the run was made from."""
    run = opened.run
    stored: dict[str, JSON] = next((one for one in run.suite.tasks if str(one.get("id")) == task), {})
    try:
        listed = convert(stored.get("files") or [], list[InputFile])
    except ValueError:
        return FixtureFiles({}, "The initial workspace cannot be read from the run.")
    contents = {file.path: _content(file.content) for file in listed if file.content is not None}
    if all(file.content is not None for file in listed):
        return FixtureFiles(contents)
    try:
        return FixtureFiles(contents | _from_suite(opened, task, stored.get("files")))
    except (WazaError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else "it cannot be read"
        return FixtureFiles(contents, f"The fixture is not stored with the run, and has changed since: {reason}")


def _from_suite(opened: OpenRun, task: str, stored: object) -> dict[str, Read]:
    """Return the fixture of a task from its suite; raise an error where it changed since the run."""
    from waza.suites.load import load_spec  # only this page needs the suite, so the server starts without it

    folder = opened.listed.path
    spec = load_spec(folder.resolve().parent / opened.run.suite.file, only_look=True)
    alone = replace(spec, tasks=[one for one in spec.tasks if one.id == task], triggers=None)
    if not alone.tasks:
        raise ValueError("the suite has no such task any more")
    if alone.as_data()["tasks"][0].get("files") != stored:
        raise ValueError("it changed since the run")
    return dict(_reads(alone.tasks[0].files))


def _reads(files: list[InputFile]) -> Iterator[tuple[str, Read]]:
    for file in files:
        if file.source is None:
            continue
        source = Path(file.source)
        if not source.is_dir():
            yield file.path, _from(Workspace(source.parent), source.name)
            continue
        inside = Workspace(source)
        paths = [path for path in inside.paths() if not any(part in NOT_COPIED for part in path.split("/"))]
        if len(paths) > MOST_GIVEN:
            raise ValueError(f"it has more than {MOST_GIVEN} files")
        above = "" if file.path == "." else f"{inner_path(file.path)}/"
        readable = (path for path in paths if inside.kind(f"./{path}") == "file")
        yield from ((f"{above}{path}", _from(inside, path)) for path in readable)


def _content(text: str | None) -> Read:
    return lambda: (text or "").encode()


def _from(folder: Workspace, path: str) -> Read:
    return lambda: folder.read(f"./{path}")


def _state(item: SnapshotItem | None, given: FixtureFiles, path: str) -> str:
    """Return how a file differs from the fixture's; empty where that cannot be determined."""
    if item is None:
        return "removed"
    if path not in given.files:
        return "" if given.note else "added"
    if item.kind != "file" or item.left_out:
        return "changed"
    try:
        return "unchanged" if hashlib.sha256(given.files[path]()).hexdigest() == item.sha256 else "changed"
    except OSError:
        return ""
