"""The bootstrap interval of a mean over tasks, or over the trials of one task, and Student's t.

Over tasks, whole tasks are drawn, never single trials: trials of one task are alike, and treating them as independent
would make every interval too narrow. The seed is fixed, and the order has no effect. The percentiles are widened as
Student's t is wider than the normal distribution (Hesterberg 2015, "expanded percentile"), since plain percentiles are
too narrow for few tasks. With many tasks nothing is drawn: the percentiles follow from the first three moments (Hall
1992, "The Bootstrap and Edgeworth Expansion"), without loading numpy.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter
from random import Random
from statistics import NormalDist
from typing import Any

from msgspec import Struct

from waza.stats.scores import Z95, mean

LEVEL = 0.95
RESAMPLES = 2_000
MANY = 100
"""With more tasks than this the percentiles are computed, not drawn."""


class Bootstrap(Struct, frozen=True, kw_only=True):
    """The bootstrap interval of a mean."""

    lower: float
    upper: float
    mean: float
    confidence_level: float = LEVEL
    num_bootstraps: int = RESAMPLES
    """0 where none had to be drawn: there are many tasks, or their numbers are all the same."""

    @property
    def tells(self) -> bool:
        """Whether the interval is informative: not where there is one number, or all are the same."""
        return self.lower < self.upper


def bootstrap_mean(values: Sequence[float], seed: int = 0) -> Bootstrap | None:
    """Return the 95 % interval of the mean of one number per task, or per trial of one task; None without any."""
    return _bootstrap(tuple(sorted(values)), seed) if values else None


@lru_cache(maxsize=256)
def _bootstrap(values: tuple[float, ...], seed: int) -> Bootstrap:
    middle = mean(values) or 0.0
    if values[0] == values[-1]:
        return Bootstrap(lower=middle, upper=middle, mean=middle, num_bootstraps=0)
    drawn = len(values) <= MANY
    low, high = _drawn(values, seed) if drawn else _computed(values, middle)
    return Bootstrap(
        lower=min(max(values[0], low), middle),
        upper=max(min(values[-1], high), middle),
        mean=middle,
        num_bootstraps=RESAMPLES if drawn else 0,
    )


def _drawn(values: tuple[float, ...], seed: int) -> tuple[float, float]:
    """Return the percentiles of the means of resamples."""
    count = len(values)
    means: list[float] = []
    for drawn, times in _resamples(count, seed):
        means += [math.fsum(drawn(values)) / count] * times
    means.sort()
    tail = NormalDist().cdf(-_widened(count))
    return _quantile(means, tail), _quantile(means, 1 - tail)


@lru_cache(maxsize=8)
def _resamples(count: int, seed: int) -> list[tuple[itemgetter[Any], int]]:
    """Return the positions each resample draws, and how often: with few numbers many resamples are the same."""
    random = Random(seed)
    drawn = Counter(tuple(sorted(random.choices(range(count), k=count))) for _ in range(RESAMPLES))
    return [(itemgetter(*places), times) for places, times in drawn.items()]


def _computed(values: tuple[float, ...], middle: float) -> tuple[float, float]:
    """Return the percentiles that very many resamples would have, from the numbers' spread and skewness."""
    count = len(values)
    spread = math.sqrt(math.fsum((value - middle) ** 2 for value in values) / count)
    skewness = math.fsum((value - middle) ** 3 for value in values) / count / spread**3
    wide = _widened(count)
    shift = skewness * (wide**2 - 1) / (6 * math.sqrt(count))
    scale = spread / math.sqrt(count)
    return middle + scale * (shift - wide), middle + scale * (shift + wide)


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _widened(count: int) -> float:
    """Return how many standard errors the interval reaches to each side for that many tasks."""
    return math.sqrt(count / (count - 1)) * student_t(count - 1)


def student_t(freedom: int) -> float:
    """Return the two-sided 95 % point of Student's t, from 3 degrees of freedom on by its expansion with error < 0.004.

    The expansion in 1/n is that of Abramowitz and Stegun, 26.7.5; below 3 there are closed forms.
    """
    if freedom == 1:
        return math.tan(math.pi * LEVEL / 2)
    if freedom == 2:
        return LEVEL * math.sqrt(2 / (1 - LEVEL**2))
    z, n = Z95, freedom
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * n**4)
    )
