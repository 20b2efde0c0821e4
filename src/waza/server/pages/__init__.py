"""The pages of the dashboard: each file here is one.

A page's module has `PATH` (as routes write it) and `page(request, store)`. For the navigation it has `NAV` (its label),
`PLACE` (its order there) and `KEY` (the key to press after `g`). A page that can be written to has
`accept(request, store, form)`, which returns the next address; it exists only with `--review`, and its forms send
`PageRequest.form_key` as `form_key`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from waza.server.store import RunReader
from waza.server.views import PageRequest, Query, View


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
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
    return [_page(name) for name in names]


def _page(name: str) -> Page:
    module = importlib.import_module(f"{__name__}.{name}")
    nav, place, key = (getattr(module, name, "") for name in ("NAV", "PLACE", "KEY"))
    return Page(name, module.PATH, module.page, nav, int(place or 0), key, getattr(module, "accept", None))
