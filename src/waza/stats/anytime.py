"""A test and an interval of a difference that stay valid however often one looks while runs grow.

Each pair of trials, one of each run, is a bet at even odds that the later run is worse, or better: if no task changed,
neither gains in the mean, whatever happened before. Many stakes are bet at once, and the mean of their capitals is a
martingale, so the chance that it ever grows twentyfold is at most 1 in 20 (Ville 1939; Waudby-Smith and Ramdas 2024,
"Estimating means of bounded random variables by betting"). 1 / the largest capital so far is a p-value at every look.

The price is power: a difference takes about twice as many trials to show as in one look that was planned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

STAKES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
"""What share of its capital each player bets, one for and one against the later run."""
_TUNED = 25.0
"""After how many pairs the interval is as narrow as it can be, relative to others (Robbins' normal mixture)."""
LEVEL = 0.95


class AlwaysValid(Struct, frozen=True, kw_only=True):
    """A difference, with a p-value and an interval for looking at any time."""

    pairs: int
    """Pairs of trials, one of each run."""
    difference: float
    """The mean over pairs of after minus before."""
    p_value: float
    lower: float
    upper: float
    confidence_level: float = LEVEL


def always_valid(differences: Sequence[float]) -> AlwaysValid | None:
    """Return the test of differences between -1 and 1 in order of arrival, one per pair of trials; None without any."""
    if not differences:
        return None
    players = [sign * stake for stake in STAKES for sign in (1, -1)]
    capitals = [0.0] * len(players)  # logarithms
    highest = 0.0
    for difference in differences:
        if difference:
            capitals = [c + math.log1p(stake * difference) for c, stake in zip(capitals, players, strict=True)]
            highest = max(highest, _mean_of_logs(capitals))
    middle, half = math.fsum(differences) / len(differences), _half_width(len(differences))
    return AlwaysValid(
        pairs=len(differences),
        difference=middle,
        p_value=min(1.0, math.exp(-highest)),
        lower=max(-1.0, middle - half),
        upper=min(1.0, middle + half),
    )


def _mean_of_logs(logs: Sequence[float]) -> float:
    most = max(logs)
    return most + math.log(math.fsum(math.exp(one - most) for one in logs) / len(logs))


def _half_width(pairs: int) -> float:
    """Return how far the mean may be from the truth at any look: a sum of numbers between -1 and 1 is sub-Gaussian.

    It covers the mean of the tasks' own differences, which need not be the same in all of them.
    """
    inside = (pairs + _TUNED) * math.log((pairs + _TUNED) / (_TUNED * (1 - LEVEL) ** 2))
    return math.sqrt(inside) / pairs
