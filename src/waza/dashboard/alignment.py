"""Expected calls beside those that were made, with a line from each to each: drawn, and as a table in words.

A stored run may come from anywhere, so an alignment is read with care: what has not its shape is left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from waza.dashboard.markup import Element, Node, el, short
from waza.dashboard.parts import fold, grid, head_cell, soft
from waza.dashboard.room import Room
from waza.model import JSON, Grade, Trace
from waza.reports._faults import shown_value
from waza.reports._text import plural

ROW = 30
"""The height of a row, in the drawing and in the style."""
MOST = 40
"""Expectations, and calls, that are drawn."""
_NAMED = re.compile(r'name="([^"]*)"(?: args: \[(.*)\])?')
_MARKS = {"matched": "✓", "absent": "✓", "undecided": "?"}


class Entry(NamedTuple):
    """One expectation and what came of it."""

    label: str
    status: str
    calls: list[int]
    found: int | None
    nearest: int | None
    differences: list[tuple[str, str, str]]
    """Path, expected, found."""


class Drawing(NamedTuple):
    """An alignment as it was read."""

    order: str
    entries: list[Entry]
    extra: list[int]
    names: Sequence[str]
    is_calls: bool
    """Whether what was made are tool calls, which have an address on the page."""


def read_alignment(grade: Grade, trace: Trace) -> Drawing | None:
    """Return the alignment a grade holds; None where it has none."""
    told = grade.details.get("alignment")
    if not isinstance(told, dict) or not isinstance(told.get("expectations"), list):
        return None
    names: Sequence[str] = [event.tool_name for event in trace.tool_events or ()]
    is_calls = True
    for key in ("actual_skills", "actual_actions"):
        if isinstance(listed := grade.details.get(key), list):
            names, is_calls = [str(name) for name in listed], key == "actual_actions"
    entries = [_entry(entry) for entry in told["expectations"] if isinstance(entry, dict)]
    extra = [*_places(told.get("extra")), *_places(told.get("out_of_order"))]
    return Drawing(str(told.get("order") or "any"), entries, sorted(extra), names, is_calls)


def _entry(told: dict[str, JSON]) -> Entry:
    nearest = told.get("nearest") if isinstance(told.get("nearest"), dict) else {}
    assert isinstance(nearest, dict)
    found = nearest.get("differences")
    differences = [_difference(one) for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    return Entry(
        label=_label(str(told.get("expected") or "")),
        status=str(told.get("status") or ""),
        calls=_places(told.get("calls")),
        found=next(iter(_places([told.get("found")])), None),
        nearest=next(iter(_places([nearest.get("call")])), None),
        differences=differences,
    )


def _label(text: str) -> str:
    """Return an expectation as people say it: the tool's name, then the arguments that are looked at."""
    found = _NAMED.fullmatch(text)
    return text if found is None else f"{found[1]} ({found[2]})" if found[2] else found[1]


def _difference(told: dict[str, JSON]) -> tuple[str, str, str]:
    actual = "not given" if told.get("missing") else "cannot be told" if told.get("undecided") else None
    shown = actual or shown_value(told.get("actual"), 400) or "nothing"
    return str(told.get("path") or ""), str(told.get("why") or shown_value(told.get("expected"), 400) or ""), shown


def _places(value: JSON) -> list[int]:
    """Return places from 0; anything else is no place."""
    if not isinstance(value, list):
        return []
    return [one for one in value if isinstance(one, int) and not isinstance(one, bool) and 0 <= one < 1_000_000]


def drawn(drawing: Drawing, address: str, room: Room) -> Element:
    """Return an alignment: expected on the left, made on the right, and what is nearest in words."""
    entries = drawing.entries[:MOST]
    used = {call for entry in drawing.entries for call in _linked(entry)}
    wanted = sorted({call for entry in entries for call in _linked(entry)} | set(drawing.extra))
    calls = [call for call in wanted if call < len(drawing.names)][:MOST]
    rows = {call: row for row, call in enumerate(calls)}
    lines = [line for row, entry in enumerate(entries) for line in _lines(row, entry, rows)]
    height = ROW * max(len(entries), len(calls), 1)
    left = el("ol", *(_expected(entry) for entry in entries), class_="expected")
    right = el("ol", *(_made(call, drawing, call in used, address) for call in calls), class_="made")
    picture = el("svg", *lines, height=height, width="100%", aria_hidden="true")
    heads = el(
        "div",
        el("span", "expected", class_="soft"),
        el("span"),
        el("span", "made", class_="soft"),
        class_="align heads",
    )
    more = max(0, len(drawing.entries) - MOST), max(0, len(wanted) - len(calls))
    rest = [f"{count:,} more {noun}" for count, noun in zip(more, ("expected", "made"), strict=True) if count]
    orders = {"any": "in any order", "in_order": "in this order", "exact": "in this order, and no others"}
    return el(
        "div",
        soft(f"{plural(len(drawing.entries), 'expectation')}, {orders.get(drawing.order, drawing.order)}"),
        heads,
        el("div", left, picture, right, class_="align"),
        soft(f"… {' and '.join(rest)}") if rest else None,
        *_nearest(entries, drawing, address, room),
        fold("as a table", _table(drawing)),
        class_="alignment",
    )


def _linked(entry: Entry) -> list[int]:
    return [*entry.calls, *(place for place in (entry.found, entry.nearest) if place is not None)]


def _lines(row: int, entry: Entry, rows: dict[int, int]) -> list[Element]:
    found = [(call, "fits") for call in entry.calls[:MOST]]
    found += [(entry.found, "moved")] if entry.found is not None else []
    found += [(entry.nearest, "near")] if entry.nearest is not None else []
    middle = ROW // 2
    return [
        el("line", x1="0", y1=ROW * row + middle, x2="100%", y2=ROW * rows[call] + middle, class_=f"tie {kind}")
        for call, kind in found
        if call in rows
    ]


def _expected(entry: Entry) -> Element:
    mark = _MARKS.get(entry.status, "✗")
    kind = {"✓": "passed", "?": "error"}.get(mark, "failed")
    told = "" if entry.status == "matched" else f" {entry.status.replace('_', ' ')}"
    words = f"{short(entry.label, 200)}{told}"
    return el("li", el("span", mark, class_=f"mark {kind}"), " ", el("span", words, class_="word", title=words))


def _made(call: int, drawing: Drawing, is_used: bool, address: str) -> Element:
    name = short(drawing.names[call], 80)
    told: Node = (
        el("a", f"{call + 1} {name}", href=f"{address}call={call + 1}#call-{call + 1}")
        if drawing.is_calls
        else f"{call + 1} {name}"
    )
    note = None if is_used else el("span", " not expected", class_="soft")
    return el("li", el("span", told, note, class_="word", title=f"{call + 1} {name}"))


def _nearest(entries: Sequence[Entry], drawing: Drawing, address: str, room: Room) -> list[Node]:
    parts: list[Node] = []
    for entry in entries:
        if entry.nearest is None:
            continue
        link = el("a", f"call {entry.nearest + 1}", href=f"{address}call={entry.nearest + 1}#call-{entry.nearest + 1}")
        rows = [
            el(
                "tr",
                el("td", el("code", short(path, 200))),
                el("td", room.line(wanted, 400)),
                el("td", room.line(found, 400)),
            )
            for path, wanted, found in entry.differences[:20]
        ]
        head = [head_cell("argument"), head_cell("expected"), head_cell("found")]
        parts.append(el("p", "nearest to ", el("b", short(entry.label, 120)), ": ", link))
        parts.append(grid(f"how call {entry.nearest + 1} differs", head, rows))
    return parts


def _table(drawing: Drawing) -> Element:
    rows = [
        el("tr", el("td", short(entry.label, 200)), el("td", entry.status.replace("_", " ")), el("td", _told(entry)))
        for entry in drawing.entries[: 2 * MOST]
    ]
    if drawing.extra:
        listed = ", ".join(str(call + 1) for call in drawing.extra[: 2 * MOST])
        more = "…" if len(drawing.extra) > 2 * MOST else ""
        rows.append(el("tr", el("td", "(nobody expected)"), el("td", "extra"), el("td", f"{listed}{more}")))
    return grid("alignment", [head_cell("expected"), head_cell("came out"), head_cell("calls")], rows)


def _told(entry: Entry) -> str:
    parts = [", ".join(str(call + 1) for call in entry.calls[:20])] if entry.calls else []
    parts += [f"{entry.found + 1}, out of order"] if entry.found is not None else []
    parts += [f"nearest is {entry.nearest + 1}"] if entry.nearest is not None else []
    return "; ".join(parts) or "–"
