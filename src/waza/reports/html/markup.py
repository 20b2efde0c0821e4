"""HTML as trees of `el` elements: a plain string is always text, so nothing an agent wrote can become markup.

Addresses are built by `href`, so that no text can become a scheme or a path. `page_head` starts a page that opens from
disk under a strict policy. What a page shows is not decided here.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import NamedTuple
from urllib.parse import quote, urlencode

from waza.untrusted.text import clipped, visible

MOST_TEXT = 400
"""Characters of one text that `short` keeps by default."""
_EMPTY = {"meta", "link", "input", "br", "hr", "col", "img"}
_LOCAL = ("href", "src", "action")


class Html(str):
    """Markup made by our own code; any other string is text and is escaped."""

    __slots__ = ()


class Element(NamedTuple):
    """A tag with its attributes and children."""

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
    """Return a local address: every part and value is quoted, empty values are left out."""
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


def sha256_source(content: str) -> str:
    """Return the source expression of a content security policy that allows exactly this inline style or script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def head_of_file(title: str, style: str, script: str = "") -> Element:
    """Return the head of a page that opens from disk: it loads nothing and runs no script but `script`."""
    policy = f"default-src 'none'; style-src {sha256_source(style)}; base-uri 'none'; form-action 'none'"
    policy += f"; script-src {sha256_source(script)}; require-trusted-types-for 'script'" if script else ""
    return el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        *meta(title),
        el("style", Html(style)),
    )


def meta(title: str) -> list[Element]:
    """Return what every page has in its head: viewport, referrer policy, title."""
    return [
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", short(title, 300)),
    ]


def page_head(title: str) -> str:
    """Return the start of a report's page, up to the opened body."""
    style = files("waza.reports.html").joinpath("report.css").read_text(encoding="utf-8")
    return f'<!DOCTYPE html>\n<html lang="en">{render(head_of_file(title, style))}\n<body>\n'


PAGE_END = "</body>\n</html>\n"

PAGE = 600_000
"""Bytes of agents' text on one page; the frame around them takes the rest of a megabyte."""
_WIDEST = 6
"""Bytes one character can take on a page: `&quot;`."""
_LEAST = 40


class TextBudget:
    """How much more of the agents' text fits on a page; a text that is cut says so."""

    def __init__(self, left: int = PAGE) -> None:
        self._left = left

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be put on the page."""
        return self._left < _LEAST * _WIDEST

    def text(self, words: str, most: int) -> Element:
        """Return a text as a block, cut to `most` characters and to the rest of the budget."""
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
