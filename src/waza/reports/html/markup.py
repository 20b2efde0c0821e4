"""Pages as trees: a plain string is always text. Markup comes from `el` alone, or from the reports' own pieces.

Nothing here knows what a page shows. Addresses are made by `href`, so that no text can become a scheme or a path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple
from urllib.parse import quote, urlencode

from waza.untrusted.text import clipped, visible

MOST_TEXT = 400
"""How much of one text is shown where nobody asked for more."""
_EMPTY = {"meta", "link", "input", "br", "hr", "col", "img"}
_LOCAL = ("href", "src", "action")


class Html(str):
    """Markup that one of our own builders made; anything else is text."""

    __slots__ = ()


class Element(NamedTuple):
    """A tag with its attributes and what stands in it."""

    tag: str
    attributes: dict[str, str]
    children: tuple[Node, ...]


Node = Element | Html | str | None | Sequence["Node"]


def el(tag: str, *children: Node, **attributes: str | int | float | bool | None) -> Element:
    """Return an element; `class_` is `class`, `_` in a name is `-`, None and False leave an attribute out."""
    named: dict[str, str] = {}
    for name, value in attributes.items():
        if value is not None and value is not False:
            named[name.rstrip("_").replace("_", "-")] = "" if value is True else str(value)
    return Element(tag, named, children)


def long_text(words: str, most: int) -> Element:
    """Return any text as a block that keeps its line breaks."""
    return el("pre", Html("\n" + escape(visible(clipped(words, most), lines=True))))


def short(words: str, most: int = MOST_TEXT) -> str:
    """Return a text cut to what one line holds."""
    return clipped(words, most)


def href(*parts: str | int, **query: str | int | Iterable[str] | None) -> str:
    """Return an address of ours: every part and every value is quoted, what is empty is left out."""
    path = "/" + "/".join(quote(str(part).encode("utf-8", "replace"), safe="") for part in parts)
    pairs: list[tuple[str, bytes]] = []
    for name, value in query.items():
        values = [value] if isinstance(value, (str, int)) else value or ()
        pairs += [(name.rstrip("_"), str(one).encode("utf-8", "replace")) for one in values if one != ""]
    return path + (f"?{urlencode(pairs)}" if pairs else "")


def render(node: Node, *, is_export: bool = False) -> str:
    """Return a tree as HTML; in an export only links within the page stay links."""
    out: list[str] = []
    _render(node, out, is_export)
    return "".join(out)


def _render(node: Node, out: list[str], is_export: bool) -> None:
    if node is None:
        return
    if isinstance(node, Html):
        out.append(node)
    elif isinstance(node, str):
        out.append(escape(visible(node)))
    elif isinstance(node, Element):
        out.append(f"<{node.tag}{_attributes(node.attributes, is_export)}>")
        if node.tag not in _EMPTY:
            for child in node.children:
                _render(child, out, is_export)
            out.append(f"</{node.tag}>")
    else:
        for child in node:
            _render(child, out, is_export)


def _attributes(attributes: dict[str, str], is_export: bool) -> str:
    parts = []
    for name, value in attributes.items():
        if name in _LOCAL and (value.startswith(("//", "/\\")) or value[:1] not in "/#?"):
            raise ValueError(f"{name} leads elsewhere: {value[:80]!r}")
        if is_export and name in _LOCAL and not value.startswith("#"):
            continue
        parts.append(f' {name}="{escape(visible(value, lines=True))}"' if value else f" {name}")
    return "".join(parts)


# How much text one page may hold: what agents wrote is cut where the page would grow too large, and that is said.

PAGE = 600_000
"""Bytes of agents' text on one page; the frame around them takes the rest of a megabyte."""
_WIDEST = 6
"""How many bytes one character may take on a page: `&quot;`."""
_LEAST = 40


class TextBudget:
    """What is left of a page's room."""

    def __init__(self, left: int = PAGE) -> None:
        self._left = left

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be put on the page."""
        return self._left < _LEAST * _WIDEST

    def text(self, words: str, most: int) -> Element:
        """Return a text as a block, cut to `most` characters and to what room is left."""
        size = self._size(most)
        made = long_text(words, size)
        self._take(str(made.children[0]))
        if len(words) <= size:
            return made
        return el("div", made, el("p", f"cut: {len(words):,} characters in all", class_="soft cut"))

    def line(self, words: str, most: int) -> str:
        """Return a text for one line, cut the same way."""
        cut = clipped(words, self._size(most))
        self._take(escape(visible(cut)))
        return cut

    def _size(self, most: int) -> int:
        return max(_LEAST, min(most, self._left // _WIDEST))

    def _take(self, made: str) -> None:
        self._left -= len(made.encode("utf-8", "replace"))
