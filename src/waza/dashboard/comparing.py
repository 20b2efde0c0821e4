"""Runs compared as they were graded, and kept for a while: the same two are asked for again and again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from msgspec.structs import replace

from waza.dashboard.store import Opened
from waza.reports._text import clipped
from waza.results.canaries import drift
from waza.results.graded_by import graded_alike
from waza.results.stats.changes import Comparison
from waza.results.stats.comparison import among, compare
from waza.results.stats.pairs import paired

KEPT = 12
_kept: OrderedDict[tuple[str, ...], Comparison] = OrderedDict()
_turn = threading.Lock()


def comparisons(runs: Sequence[Opened]) -> list[Comparison]:
    """Return what changed from the first run to each of the others; of several, adjusted for how many there are."""
    found = [_comparison(runs[0], other) for other in runs[1:]]
    return among(found) if len(found) > 1 else found


def _comparison(before: Opened, after: Opened) -> Comparison:
    key = tuple(part for one in (before, after) for part in (one.listed.folder, one.listed.stamp))
    with _turn:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    found = compare(before.run, after.run)
    found = replace(found, warnings=[*_warnings(before, after), *drift(before.run, after.run)])
    with _turn:
        _kept[key] = found
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
    return found


def _warnings(before: Opened, after: Opened) -> list[str]:
    told = [
        f"run {one.listed.key} is not complete: trials are missing"
        for one in (before, after)
        if not one.listed.is_complete
    ]
    told += [f"run {one.listed.key} is {one.run.integrity}" for one in (before, after) if one.run.integrity]
    otherwise = [
        pair.before.id
        for pair in paired(before.run, after.run).pairs
        if not graded_alike(before.run.spec, after.run.spec, pair.before.id)
    ]
    if otherwise:
        some = clipped(", ".join(otherwise[:5]), 200) + (
            f" and {len(otherwise) - 5} more" if len(otherwise) > 5 else ""
        )
        told.append(
            f"the graders of {some} differ between the runs: part of the change may be theirs; "
            f"waza compare {before.run.id} {after.run.id} grades both by the same"
        )
    return told
