"""Garbage collection made rare while thousands of records are created."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the collector run rarely: records have no cycles, and scanning all of them costs more than it frees."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 1_000)
    try:
        yield
    finally:
        gc.set_threshold(*before)
