"""The files a trial left: what was added, changed and removed against the fixture; one of them line by line.

Nothing of an agent's is ever sent as a file: contents are text on the page, or said to be none.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from waza.dashboard.diffs import MOST_BYTES, MOST_LINES, Given, as_text, digest, given_files, lines_of
from waza.dashboard.markup import Element, Node, el, href, short
from waza.dashboard.pages.run import the_run
from waza.dashboard.pages.task import chosen_trial, the_result, the_task
from waza.dashboard.parts import grid, head_cell, number, pager, soft
from waza.dashboard.registry import Ask, NotThere, View
from waza.dashboard.room import Room
from waza.dashboard.store import Store
from waza.model import Result
from waza.reports._text import plural
from waza.results.folder import ARTIFACTS
from waza.sandbox.objects import read_object
from waza.sandbox.snapshot import Item, read_manifest

PATH = "/runs/{run}/files"
FILES = 200
"""Files on one page."""
_MARKS = {"added": "+ added", "changed": "~ changed", "removed": "− removed", "unchanged": "unchanged", "": ""}
_ORDER = ("changed", "added", "removed", "", "unchanged")
_KINDS = {"link": "link", "outside": "hard link, not read", "other": "no regular file", "folder": "folder"}


def page(ask: Ask, store: Store) -> View:
    """Return the files of a trial, or one of them."""
    opened = the_run(ask, store)
    task, outcomes = the_task(ask, opened)
    if not outcomes:
        raise NotThere("No trial of this task has a result yet.")
    result = the_result(opened, task.id, chosen_trial(ask, outcomes).trial)
    key, trial = opened.listed.key, result.trial
    back = href("runs", key, "task", id=task.id, trial=trial)
    crumbs = [("Runs", href()), (opened.listed.suite or key, href("runs", key)), (f"{task.id}, trial {trial}", back)]
    if not result.snapshot:
        return View(title="Files", body=[el("h1", "Files"), soft("The workspace was not kept.")], crumbs=crumbs)
    artifacts = opened.listed.path / ARTIFACTS
    try:
        items = _items(artifacts, result, ask.query.get("turn"))
    except OSError as error:
        told = soft(f"The stored workspace cannot be read: {short(error.strerror or str(error), 300)}")
        return View(title="Files", body=[el("h1", "Files"), told], crumbs=crumbs)
    given = given_files(opened, task.id)
    address = href("runs", key, "files", id=task.id, trial=trial, turn=ask.query.get("turn"))
    path = ask.query.get("path")
    if path:
        body = [*_one(artifacts, items, given, path)]
        return View(title=path, body=body, crumbs=[*crumbs, ("Files", address)])
    return View(title="Files", body=_list(ask, items, given, address, result), crumbs=crumbs)


def _items(artifacts: Path, result: Result, turn: str) -> dict[str, Item]:
    name = result.turn_snapshots.get(turn, result.snapshot) if turn else result.snapshot
    return {item.path: item for item in read_manifest(artifacts, name).items}


def _list(ask: Ask, items: dict[str, Item], given: Given, address: str, result: Result) -> list[Node]:
    known = {
        path: _state(items.get(path), given, path) for path in {*items, *given.files} if not _is_folder(items.get(path))
    }
    order = {state: place for place, state in enumerate(_ORDER)}
    paths = sorted(known, key=lambda path: (order[known[path]], path))
    skip = ask.number("skip", 0)
    counts = {
        state: sum(one == state for one in known.values()) for state in ("changed", "added", "removed", "unchanged")
    }
    told = ", ".join(f"{many} {state}" for state, many in counts.items() if many) or "none"
    rows = [_row(path, items.get(path), known[path], address) for path in paths[skip : skip + FILES]]
    head = [head_cell("against the fixture"), head_cell("file"), head_cell("bytes", is_number=True), head_cell("note")]
    body: list[Node] = [el("h1", "Files"), soft(f"{plural(len(paths), 'file')}: {told}")]
    if result.turn_snapshots:
        links = [
            el("a", f"after prompt {one}", href=f"{address}&turn={one}")
            for one in result.turn_snapshots
            if one.isdigit()
        ]
        body.append(el("p", *links, class_="around"))
    body += [el("p", short(given.note, 400), class_="error") if given.note else None]
    return [*body, grid("files", head, rows, class_="rows"), pager(f"{address}&", len(paths), skip, FILES, "files")]


def _is_folder(item: Item | None) -> bool:
    return item is not None and item.kind == "folder" and not item.left_out


def _state(item: Item | None, given: Given, path: str) -> str:
    """Return how a file stands against the one of the fixture; nothing where that cannot be told."""
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


def _row(path: str, item: Item | None, state: str, address: str) -> Element:
    note = (
        ""
        if item is None
        else item.left_out or (f"→ {item.target}" if item.kind == "link" else _KINDS.get(item.kind, ""))
    )
    size = number("" if item is None or item.kind != "file" else f"{item.size:,}")
    kind = {"added": "passed", "removed": "failed", "changed": "error"}.get(state, "soft")
    link = el("a", short(path, 300), href=f"{address}&{href(path=path)[2:]}")
    return el("tr", el("td", el("span", _MARKS[state], class_=kind)), el("td", link), size, el("td", short(note, 200)))


def _one(artifacts: Path, items: dict[str, Item], given: Given, path: str) -> Iterator[Node]:
    item = items.get(path)
    if item is None and path not in given.files:
        raise NotThere("The workspace had no such file.")
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
    """Yield what a file holds, or how it changed."""
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
        yield Room().text(new, MOST_BYTES)


def _diff(old: str, new: str) -> Element:
    room = Room(300_000)
    marks = {"same": "  ", "less": "− ", "more": "+ ", "jump": "@ "}
    parts: list[Node] = []
    for kind, lines in groupby(lines_of(old, new), key=lambda line: line.kind):
        text = "\n".join(marks[kind] + line.text for line in lines)
        tag = {"less": "del", "more": "ins"}.get(kind, "div")
        parts.append(
            el("div", el(tag, room.text(text, 50_000)) if tag != "div" else room.text(text, 50_000), class_=kind)
        )
    more = (
        soft(f"Only the first {MOST_LINES:,} lines are compared.")
        if max(old.count("\n"), new.count("\n")) > MOST_LINES
        else None
    )
    return el("div", el("h2", "Against the fixture"), el("div", *parts, class_="diff"), more)
