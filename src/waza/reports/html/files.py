"""The page of the files a trial left: added, changed and removed against the fixture; one of them line by line.

What an agent wrote is never sent as a file: contents are text on the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from itertools import groupby
from typing import NamedTuple

from waza.files.snapshot import SnapshotItem
from waza.model import Result
from waza.reports.html.components import grid, head_cell, number, pager, soft, task_address
from waza.reports.html.markup import Element, Node, TextBudget, el, href, short
from waza.reports.html.view import OpenRun, PageRequest, View
from waza.untrusted.text import plural

FILES = 200
"""Files on one page."""
_MARKS = {"added": "+ added", "changed": "~ changed", "removed": "− removed", "unchanged": "unchanged", "": ""}
_ORDER = ("changed", "added", "removed", "", "unchanged")
_KINDS = {"link": "link", "outside": "hard link, not read", "other": "no regular file", "folder": "folder"}


class FileList(NamedTuple):
    """The files of a trial with those it began with."""

    items: Mapping[str, SnapshotItem] = {}
    states: Mapping[str, str] = {}
    """By path: changed, added, removed or unchanged against the fixture; empty where that cannot be determined."""
    note: str = ""
    """Why some files of the fixture are not known."""
    error: str = ""
    """Why there is no list."""


class FileContent(NamedTuple):
    """A file before and after a trial; None where it was not there or is not shown."""

    before: bytes | None = None
    after: bytes | None = None
    error: str = ""
    """Why it cannot be read."""


def files_page(request: PageRequest, opened: OpenRun, result: Result, found: FileList) -> View:
    """Return the files of a trial."""
    crumbs, address = _crumbs(request, opened, result)
    if found.error:
        return View(title="Files", body=[el("h1", "Files"), soft(short(found.error, 400))], crumbs=crumbs[:-1])
    return View(title="Files", body=_list(request, found, address, result), crumbs=crumbs[:-1])


def file_page(request: PageRequest, opened: OpenRun, result: Result, found: FileList, content: FileContent) -> View:
    """Return one file of a trial, the one the address names, and how it changed."""
    path = request.query.get("path")
    return View(title=path, body=[*_one(path, found, content)], crumbs=_crumbs(request, opened, result)[0])


def _crumbs(request: PageRequest, opened: OpenRun, result: Result) -> tuple[list[tuple[str, str]], str]:
    """Return the breadcrumbs of a file's page, and the address of the list of files, which is the last of them."""
    key, task, trial = opened.listed.key, result.task_id, result.trial
    address = href("runs", key, "files", id=task, trial=trial, turn=request.query.get("turn"))
    above = [("Runs", href()), (opened.listed.suite or key, href("runs", key))]
    return [*above, (f"{task}, trial {trial}", task_address(key, task, trial)), ("Files", address)], address


def _list(request: PageRequest, found: FileList, address: str, result: Result) -> list[Node]:
    items = found.items
    known = {path: state for path, state in found.states.items() if not _is_folder(items.get(path))}
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
    body += [el("p", short(found.note, 400), class_="error") if found.note else None]
    return [*body, grid("files", head, rows, class_="rows"), pager(f"{address}&", len(paths), skip, FILES, "files")]


def _is_folder(item: SnapshotItem | None) -> bool:
    return item is not None and item.kind == "folder" and not item.left_out


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


def _one(path: str, found: FileList, content: FileContent) -> Iterator[Node]:
    item, state = found.items.get(path), found.states[path]
    yield el("h1", short(path, 300), " ", el("span", _MARKS[state], class_="badge") if state else None)
    if found.note:
        yield el("p", short(found.note, 400), class_="error")
    if item is not None and (item.kind != "file" or item.left_out):
        target = f": {item.target}" if item.target else ""
        yield soft(short(f"{_KINDS.get(item.kind, 'file')}{target}. {item.left_out or 'Nothing of it was read.'}", 400))
        return
    if item is not None and item.size > MOST_BYTES:
        yield soft(f"{item.size:,} bytes: too large to be shown. waza show --files lays it out.")
        return
    if content.error:
        yield soft(f"It cannot be read: {short(content.error, 300)}")
        return
    yield from _contents(content.before, content.after)


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
AROUND = 3


class DiffLine(NamedTuple):
    """One line of a comparison."""

    kind: str
    """`same`, `less`, `more` or `jump` (lines left out)."""
    text: str


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
