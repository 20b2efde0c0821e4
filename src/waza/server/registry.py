"""The registry of pages (each file in `pages/` is one), and the request and view types they share.

A page's module has `PATH` (as routes write it) and `page(request, store)`. For the navigation it has `NAV` (its label),
`PLACE` (its order there) and `KEY` (the key to press after `g`). A page that can be written to has
`accept(request, store, form)`, which returns the next address; it exists only with `--review`, and its forms send
`PageRequest.form_key` as `form_key`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from msgspec import Struct, field

from waza.reports.html.markup import Node
from waza.server import pages
from waza.server.store import RunReader


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


class Page(NamedTuple):
    """One file in `pages/`."""

    name: str
    path: str
    show: Callable[[PageRequest, RunReader], View]
    nav: str = ""
    place: int = 0
    key: str = ""
    accept: Callable[[PageRequest, RunReader, Query], str] | None = None


@cache
def all_pages() -> list[Page]:
    """Return every page there is."""
    names = sorted(found.name for found in pkgutil.iter_modules(pages.__path__) if not found.name.startswith("_"))
    return [_page(name) for name in names]


def _page(name: str) -> Page:
    module = importlib.import_module(f"{pages.__name__}.{name}")
    nav, place, key = (getattr(module, name, "") for name in ("NAV", "PLACE", "KEY"))
    return Page(name, module.PATH, module.page, nav, int(place or 0), key, getattr(module, "accept", None))
