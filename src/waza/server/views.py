"""What pages get and return: the request, its query, the view, and the error for what does not exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from waza.reports.html.markup import Node


class NotFound(Exception):
    """No run has what was requested; the message is for people."""


class Query(NamedTuple):
    """The query of an address."""

    pairs: Sequence[tuple[str, str]] = ()

    def get(self, key: str) -> str:
        """Return the first value of a key; nothing where there is none."""
        return next((value for name, value in self.pairs if name == key), "")

    def every(self, key: str) -> list[str]:
        """Return all values of a key."""
        return [value for name, value in self.pairs if name == key]


class PageRequest(NamedTuple):
    """A browser's request for a page."""

    parts: Mapping[str, str]
    """The named parts of the path, such as `run`."""
    query: Query
    address: str
    """The path with its query, without `export`: the address of this page."""
    is_export: bool = False
    can_review: bool = False
    form_key: str = ""
    """The key that a form must send."""

    def number(self, key: str, default: int, most: int = 1_000_000_000) -> int:
        """Return a number of the query within 0 and `most`; the default where it is none."""
        word = self.query.get(key)
        return min(int(word), most) if word.isascii() and word.isdigit() and len(word) < 12 else default


class View(Struct, frozen=True, kw_only=True):
    """A page without its frame."""

    title: str
    body: Sequence[Node]
    crumbs: list[tuple[str, str]] = field(default_factory=list)
    """The pages above this one, as names with addresses, outermost first."""
    scripts: tuple[str, ...] = ()
    """Files under `static/` the page needs besides those of every page."""
    status: int = 200
