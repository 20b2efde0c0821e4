"""Whether verdicts stay the same when nothing that matters changes: shares with intervals, and exact tests of them."""

from __future__ import annotations

from collections.abc import Iterable
from math import comb

from msgspec import Struct

from waza.results.scores import Interval, wilson


class Invariance(Struct, frozen=True, kw_only=True):
    """How often a verdict stayed; what nobody could tell is counted apart."""

    kept: int
    decided: int
    undecided: int = 0
    interval: Interval | None = None
    """The Wilson 95 % interval of the share that stayed; None where nothing was decided."""


def invariance(stayed: Iterable[bool | None]) -> Invariance:
    """Return how often a verdict stayed; None stands for one that nobody can tell."""
    seen = list(stayed)
    kept, undecided = seen.count(True), seen.count(None)
    decided = len(seen) - undecided
    return Invariance(kept=kept, decided=decided, undecided=undecided, interval=wilson(kept, decided))


def more_often(changed: int, trials: int, base_changed: int, base_trials: int) -> float:
    """Return how likely at least so many of all changes fall on these trials by chance: Fisher's exact test."""
    every, changes = trials + base_trials, changed + base_changed
    if not trials or not base_trials or not changes:
        return 1.0
    ways = sum(comb(changes, k) * comb(every - changes, trials - k) for k in range(changed, min(changes, trials) + 1))
    return min(1.0, ways / comb(every, trials))


def one_sided_sign(with_it: int, against: int) -> float:
    """Return how likely at least `with_it` of all would be if each side were as likely: the exact sign test."""
    trials = with_it + against
    return sum(comb(trials, k) for k in range(with_it, trials + 1)) / float(2**trials)
