"""Files that an agent left, against those it was given: what was added, changed, removed; line by line where asked.

Contents come from the run's own store, by their hash; a fixture is read where the eval file says, no link followed, and
counts only as long as it is still what the run was made from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

from msgspec import convert

from waza.dashboard.store import Opened
from waza.errors import WazaError
from waza.model import JSON, InputFile
from waza.sandbox.folders import inner_path
from waza.sandbox.room import NOT_COPIED
from waza.sandbox.workspace import Workspace

MOST_BYTES = 400_000
"""How large a file is shown and compared line by line."""
MOST_LINES = 4_000
MOST_GIVEN = 2_000
"""Files of a fixture that are looked at."""
AROUND = 3
Read = Callable[[], bytes]


class Given(NamedTuple):
    """The files a task began with."""

    files: dict[str, Read]
    note: str = ""
    """Why some of them are not known."""


class Line(NamedTuple):
    """One line of a comparison."""

    kind: str
    """`same`, `less`, `more` or `jump` (lines left out)."""
    text: str


def given_files(opened: Opened, task: str) -> Given:
    """Return the files a task began with, as far as they are still what the run was made from."""
    run = opened.run
    tasks: list[dict[str, JSON]] = run.spec.get("tasks") or []
    stored = next((one for one in tasks if str(one.get("id")) == task), {})
    try:
        listed = convert(stored.get("files") or [], list[InputFile])
    except ValueError:
        return Given({}, "What the workspace held at first cannot be read from the run.")
    found = {file.path: _content(file.content) for file in listed if file.content is not None}
    if all(file.content is not None for file in listed):
        return Given(found)
    try:
        return Given(found | _from_suite(opened, task, stored.get("files")))
    except (WazaError, OSError, ValueError) as error:
        told = str(error).splitlines()[0] if str(error) else "it cannot be read"
        return Given(found, f"The fixture is not stored with the run, and is not there as it was: {told}")


def _from_suite(opened: Opened, task: str, stored: object) -> dict[str, Read]:
    """Return the fixture of a task from its suite; raise an error where it is not what it was."""
    from waza.spec.load import load_spec  # only this page needs the suite, so the server starts without it

    folder = opened.listed.path
    spec = load_spec(folder.resolve().parent / str(opened.run.spec.get("file", "")), only_look=True)
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


def digest(content: bytes) -> str:
    """Return the name under which a content lies in a store."""
    return hashlib.sha256(content).hexdigest()


def as_text(content: bytes) -> str | None:
    """Return a content as text; None where it is not."""
    if b"\0" in content[:8_000]:
        return None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def lines_of(before: str, after: str) -> Iterator[Line]:
    """Yield how one text became another, with a few lines around each change."""
    old, new = before.splitlines()[:MOST_LINES], after.splitlines()[:MOST_LINES]
    for index, group in enumerate(SequenceMatcher(a=old, b=new, autojunk=True).get_grouped_opcodes(AROUND)):
        if index or group[0][1]:
            yield Line("jump", f"line {group[0][3] + 1}")
        for tag, i, j, k, m in group:
            if tag == "equal":
                yield from (Line("same", line) for line in old[i:j])
            else:
                yield from (Line("less", line) for line in old[i:j])
                yield from (Line("more", line) for line in new[k:m])
