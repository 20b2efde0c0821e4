"""How much text one page may hold: what agents wrote is cut where the page would grow too large, and that is said."""

from __future__ import annotations

from html import escape

from waza.dashboard.markup import Element, el, long_text
from waza.reports._text import clipped, visible

PAGE = 600_000
"""Bytes of agents' text on one page; the frame around them takes the rest of a megabyte."""
_WIDEST = 6
"""How many bytes one character may take on a page: `&quot;`."""
_LEAST = 40


class Room:
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
