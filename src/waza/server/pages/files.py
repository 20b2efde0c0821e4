"""The page of the files a trial left: added, changed and removed against the fixture; one of them line by line.

What an agent wrote is never sent as a file: contents are text on the page. They come from the run's own store, by
their hash. A fixture is read where the eval file says, no link followed, and counts only if it has not changed since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from msgspec import convert

from waza.errors import WazaError
from waza.files.paths import inner_path
from waza.files.snapshot import SnapshotItem, read_manifest, read_object
from waza.files.trial_folder import NOT_COPIED
from waza.files.workspace import Workspace
from waza.model import JSON, InputFile, Result
from waza.reports.html.components import grid, head_cell, number, pager, soft
from waza.reports.html.markup import Element, Node, TextBudget, el, href, short
from waza.runs.folder import ARTIFACTS
from waza.server.pages.run import the_run
from waza.server.pages.task import chosen_trial, the_result, the_task
from waza.server.store import OpenRun, RunReader
from waza.server.views import NotFound, PageRequest, View
from waza.untrusted.text import plural

PATH = "/runs/{run}/files"
FILES = 200
"""Files on one page."""
_MARKS = {"added": "+ added", "changed": "~ changed", "removed": "− removed", "unchanged": "unchanged", "": ""}
_ORDER = ("changed", "added", "removed", "", "unchanged")
_KINDS = {"link": "link", "outside": "hard link, not read", "other": "no regular file", "folder": "folder"}


def page(request: PageRequest, store: RunReader) -> View:
    """Return the files of a trial, or one of them."""
    opened = the_run(request, store)
    task, outcomes = the_task(request, opened)
    if not outcomes:
        raise NotFound("No trial of this task has a result yet.")
    result = the_result(opened, task.id, chosen_trial(request, outcomes).trial)
    key, trial = opened.listed.key, result.trial
    back = href("runs", key, "task", id=task.id, trial=trial)
    crumbs = [("Runs", href()), (opened.listed.suite or key, href("runs", key)), (f"{task.id}, trial {trial}", back)]
    if not result.snapshot:
        return View(title="Files", body=[el("h1", "Files"), soft("The workspace was not stored.")], crumbs=crumbs)
    artifacts = opened.listed.path / ARTIFACTS
    try:
        items = _items(artifacts, result, request.query.get("turn"))
    except OSError as error:
        reason = soft(f"The stored workspace cannot be read: {short(error.strerror or str(error), 300)}")
        return View(title="Files", body=[el("h1", "Files"), reason], crumbs=crumbs)
    given = given_files(opened, task.id)
    address = href("runs", key, "files", id=task.id, trial=trial, turn=request.query.get("turn"))
    path = request.query.get("path")
    if path:
        body = [*_one(artifacts, items, given, path)]
        return View(title=path, body=body, crumbs=[*crumbs, ("Files", address)])
    return View(title="Files", body=_list(request, items, given, address, result), crumbs=crumbs)


def _items(artifacts: Path, result: Result, turn: str) -> dict[str, SnapshotItem]:
    name = result.turn_snapshots.get(turn, result.snapshot) if turn else result.snapshot
    return {item.path: item for item in read_manifest(artifacts, name).items}


def _list(
    request: PageRequest, items: dict[str, SnapshotItem], given: FixtureFiles, address: str, result: Result
) -> list[Node]:
    known = {
        path: _state(items.get(path), given, path) for path in {*items, *given.files} if not _is_folder(items.get(path))
    }
    order = {state: place for place, state in enumerate(_ORDER)}
    paths = sorted(known, key=lambda path: (order[known[path]], path))
    skip = request.number("skip", 0)
    counts = {
        state: sum(one == state for one in known.values()) for state in ("changed", "added", "removed", "unchanged")
    }
    summary = ", ".join(f"{many} {state}" for state, many in counts.items() if many) or "none"
    rows = [_row(path, items.get(path), known[path], address) for path in paths[skip : skip + FILES]]
    head = [head_cell("against the fixture"), head_cell("file"), head_cell("bytes", is_number=True), head_cell("note")]
    body: list[Node] = [el("h1", "Files"), soft(f"{plural(len(paths), 'file')}: {summary}")]
    if result.turn_snapshots:
        links = [
            el("a", f"after prompt {one}", href=f"{address}&turn={one}")
            for one in result.turn_snapshots
            if one.isdigit()
        ]
        body.append(el("p", *links, class_="around"))
    body += [el("p", short(given.note, 400), class_="error") if given.note else None]
    return [*body, grid("files", head, rows, class_="rows"), pager(f"{address}&", len(paths), skip, FILES, "files")]


def _is_folder(item: SnapshotItem | None) -> bool:
    return item is not None and item.kind == "folder" and not item.left_out


def _state(item: SnapshotItem | None, given: FixtureFiles, path: str) -> str:
    """Return how a file differs from the fixture's; empty where that cannot be determined."""
    if item is None:
        return "removed"
    if path not in given.files:
        return "" if given.note else "added"
    if item.kind != "file" or item.left_out:
        return "changed"
    try:
        return "unchanged" if digest(given.files[path]()) == item.sha256 else "changed"
    except OSError:
        return ""


def _row(path: str, item: SnapshotItem | None, state: str, address: str) -> Element:
    note = (
        ""
        if item is None
        else item.left_out or (f"→ {item.target}" if item.kind == "link" else _KINDS.get(item.kind, ""))
    )
    size = number("" if item is None or item.kind != "file" else f"{item.size:,}")
    kind = {"added": "passed", "removed": "failed", "changed": "error"}.get(state, "soft")
    link = el("a", short(path, 300), href=f"{address}&{href(path=path)[2:]}")
    return el("tr", el("td", el("span", _MARKS[state], class_=kind)), el("td", link), size, el("td", short(note, 200)))


def _one(artifacts: Path, items: dict[str, SnapshotItem], given: FixtureFiles, path: str) -> Iterator[Node]:
    item = items.get(path)
    if item is None and path not in given.files:
        raise NotFound("The workspace had no such file.")
    state = _state(item, given, path)
    yield el("h1", short(path, 300), " ", el("span", _MARKS[state], class_="badge") if state else None)
    if given.note:
        yield el("p", short(given.note, 400), class_="error")
    if item is not None and (item.kind != "file" or item.left_out):
        target = f": {item.target}" if item.target else ""
        yield soft(short(f"{_KINDS.get(item.kind, 'file')}{target}. {item.left_out or 'Nothing of it was read.'}", 400))
        return
    if item is not None and item.size > MOST_BYTES:
        yield soft(f"{item.size:,} bytes: too large to be shown. waza show --files lays it out.")
        return
    try:
        before = given.files[path]() if path in given.files else None
        after = read_object(artifacts, item.sha256) if item is not None else None
    except OSError as error:
        yield soft(f"It cannot be read: {short(error.strerror or str(error), 300)}")
        return
    yield from _contents(before, after)


def _contents(before: bytes | None, after: bytes | None) -> Iterator[Node]:
    """Yield the content of a file, or how it changed."""
    texts = [None if one is None else as_text(one) for one in (before, after)]
    sizes = [len(one) for one in (before, after) if one is not None]
    if any(one is not None and text is None for one, text in zip((before, after), texts, strict=True)):
        yield soft(f"Not text: {' → '.join(f'{size:,} bytes' for size in sizes)}.")
        return
    if max(sizes, default=0) > MOST_BYTES:
        yield soft(f"{max(sizes):,} bytes: too large to be shown.")
        return
    old, new = texts[0] or "", texts[1] or ""
    if before is not None and after is not None and before == after:
        yield soft("Unchanged.")
    if before is not None and before != after:
        yield _diff(old, new)
    if after is not None and before != after and before is not None:
        yield el("h2", "As it was left")
    if after is not None:
        yield TextBudget().text(new, MOST_BYTES)


def _diff(old: str, new: str) -> Element:
    budget = TextBudget(300_000)
    marks = {"same": "  ", "less": "− ", "more": "+ ", "jump": "@ "}
    parts: list[Node] = []
    for kind, lines in groupby(lines_of(old, new), key=lambda line: line.kind):
        text = "\n".join(marks[kind] + line.text for line in lines)
        tag = {"less": "del", "more": "ins"}.get(kind, "div")
        parts.append(
            el("div", el(tag, budget.text(text, 50_000)) if tag != "div" else budget.text(text, 50_000), class_=kind)
        )
    more = (
        soft(f"Only the first {MOST_LINES:,} lines are compared.")
        if max(old.count("\n"), new.count("\n")) > MOST_LINES
        else None
    )
    return el("div", el("h2", "Against the fixture"), el("div", *parts, class_="diff"), more)


MOST_BYTES = 400_000
"""Size up to which a file is shown and compared line by line."""
MOST_LINES = 4_000
MOST_GIVEN = 2_000
"""Files of a fixture that are compared."""
AROUND = 3
Read = Callable[[], bytes]


class FixtureFiles(NamedTuple):
    """The files a task began with."""

    files: dict[str, Read]
    note: str = ""
    """Why some of them are not known."""


class DiffLine(NamedTuple):
    """One line of a comparison."""

    kind: str
    """`same`, `less`, `more` or `jump` (lines left out)."""
    text: str


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


def digest(content: bytes) -> str:
    """Return the name of a content in the store."""
    return hashlib.sha256(content).hexdigest()


def as_text(content: bytes) -> str | None:
    """Return a content as text; None where it is not."""
    if b"\0" in content[:8_000]:
        return None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def lines_of(before: str, after: str) -> Iterator[DiffLine]:
    """Yield how one text became another, with a few lines around each change."""
    old, new = before.splitlines()[:MOST_LINES], after.splitlines()[:MOST_LINES]
    for index, group in enumerate(SequenceMatcher(a=old, b=new, autojunk=True).get_grouped_opcodes(AROUND)):
        if index or group[0][1]:
            yield DiffLine("jump", f"line {group[0][3] + 1}")
        for tag, i, j, k, m in group:
            if tag == "equal":
                yield from (DiffLine("same", line) for line in old[i:j])
            else:
                yield from (DiffLine("less", line) for line in old[i:j])
                yield from (DiffLine("more", line) for line in new[k:m])
