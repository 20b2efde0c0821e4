"""The reports' short documents as parts of a page: their words are ours to keep, text of others stays text."""

from __future__ import annotations

from collections.abc import Iterable

from waza.dashboard.markup import Element, Node, el, short
from waza.dashboard.parts import grid, head_cell
from waza.reports._document import MOST, Grid, Line, Theirs, Tone, Words

_CLASSES: dict[Tone, str | None] = {"": None, "good": "passed", "bad": "failed", "open": "error", "soft": "soft"}


def words(some: Words) -> list[Node]:
    """Return a line's words; text of others is cut to what a line holds."""
    return [short(word.text, MOST) if isinstance(word, Theirs) else word for word in some]


def line(one: Line, *, class_: str = "") -> Element:
    """Return a sentence."""
    tone = _CLASSES[one.tone]
    return el("p", *words(one.words), class_=" ".join(part for part in (class_, tone) if part) or None)


def items(lines: Iterable[Line]) -> Element:
    """Return sentences as a list."""
    return el("ul", *(el("li", *words(one.words), class_=_CLASSES[one.tone]) for one in lines))


def table(label: str, one: Grid) -> Element:
    """Return a table."""
    heads = [head_cell(word, is_number=place not in one.texts) for place, word in enumerate(one.columns)]
    rows = [
        el(
            "tr",
            *(
                el("td", *words(cell), class_=None if place in one.texts else "number")
                for place, cell in enumerate(row)
            ),
        )
        for row in one.rows
    ]
    return grid(label, heads, rows)
