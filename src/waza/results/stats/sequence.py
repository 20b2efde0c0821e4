"""Intervals one may look at after every trial: right with 95 % confidence at all looks together.

A bettor who spreads a unit of money over all pass rates evenly and bets against a share p holds, after so many passed
and failed trials, the beta-binomial mixture over what p gives them. If p is true, the chance of ever holding 20 is at
most 1 in 20 (Ville 1939). So whatever makes the bettor that rich may be ruled out, whenever one looks.
"""

from __future__ import annotations

import math
from typing import Literal

ALPHA = 0.05


def wealth(passed: int, failed: int, share: float) -> float:
    """Return the logarithm of what the bettor against `share` holds."""
    if (share <= 0.0 and passed) or (share >= 1.0 and failed):
        return math.inf
    mixture = math.lgamma(passed + 1) + math.lgamma(failed + 1) - math.lgamma(passed + failed + 2)
    expected = (passed * math.log(share) if passed else 0.0) + (failed * math.log1p(-share) if failed else 0.0)
    return mixture - expected


def settled(passed: int, failed: int, share: float, alpha: float = ALPHA) -> Literal["above", "below", ""]:
    """Return on which side of `share` the pass rate is, or nothing where that is not settled yet."""
    if wealth(passed, failed, share) < -math.log(alpha):
        return ""
    return "above" if passed > share * (passed + failed) else "below"


def bounds(passed: int, failed: int, alpha: float = ALPHA) -> tuple[float, float]:
    """Return the pass rates that are not ruled out, the lowest and the highest."""
    middle = passed / (passed + failed) if passed + failed else 0.5
    return _edge(passed, failed, 0.0, middle, alpha), _edge(passed, failed, 1.0, middle, alpha)


def _edge(passed: int, failed: int, outside: float, inside: float, alpha: float) -> float:
    """Return where, between a share that may be ruled out and one that is not, ruling out ends."""
    if not settled(passed, failed, outside, alpha):
        return outside
    for _ in range(50):
        between = (outside + inside) / 2
        outside, inside = (between, inside) if settled(passed, failed, between, alpha) else (outside, between)
    return inside
