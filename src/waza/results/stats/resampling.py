"""The bootstrap: where a mean over tasks lies, whatever the distribution of its numbers.

Whole tasks are drawn, never single trials: trials of one task are alike, and counting them as independent would make
every interval too narrow. The seed is fixed, and the order of tasks has no effect. The percentiles are widened as
Student's t is wider than the normal distribution (Hesterberg 2015, "expanded percentile"): plain ones are too narrow
for few tasks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Any

from msgspec import Struct

from waza.results.scores import mean

LEVEL = 0.95
RESAMPLES = 10_000
MOST_DRAWS = 10_000_000
"""Numbers drawn in all: with very many tasks fewer resamples do."""
MANY = 1_000
"""With more tasks than this Student's t is the normal distribution, to the third digit."""
FEW_VALUES = 64
"""With so few different values, counting how often each is drawn is faster than drawing."""


class Bootstrap(Struct, frozen=True, kw_only=True):
    """Where a mean lies, by resampling."""

    lower: float
    upper: float
    mean: float
    confidence_level: float = LEVEL
    num_bootstraps: int = RESAMPLES
    """0 where the numbers are all the same, or only one: such an interval says nothing."""


def bootstrap_mean(values: Sequence[float], seed: int = 0) -> Bootstrap | None:
    """Return the 95 % interval of the mean of one number per task; None without any."""
    return _bootstrap(tuple(sorted(values)), seed) if values else None


@lru_cache(maxsize=256)
def _bootstrap(values: tuple[float, ...], seed: int) -> Bootstrap:
    middle = mean(values) or 0.0
    if values[0] == values[-1]:
        return Bootstrap(lower=middle, upper=middle, mean=middle, num_bootstraps=0)
    import numpy as np  # only where something varies: loading it costs more than most summaries

    resamples = max(1_000, min(RESAMPLES, MOST_DRAWS // len(values)))
    tail = _widened_tail(len(values))
    low, high = np.quantile(_means(np.asarray(values), resamples, np.random.default_rng(seed)), [tail, 1 - tail])
    bounds = (max(values[0], float(low)), min(values[-1], float(high)))
    return Bootstrap(lower=min(bounds[0], middle), upper=max(bounds[1], middle), mean=middle, num_bootstraps=resamples)


def _means(values: Any, resamples: int, random: Any) -> Any:
    """Return the mean of each resample."""
    import numpy as np  # as above

    different, counts = np.unique(values, return_counts=True)
    if len(different) <= FEW_VALUES:
        return random.multinomial(len(values), counts / len(values), size=resamples) @ different / len(values)
    step = max(1, 1_000_000 // len(values))
    sizes = [(min(step, resamples - start), len(values)) for start in range(0, resamples, step)]
    return np.concatenate([values[random.integers(len(values), size=size)].mean(axis=1) for size in sizes])


def _widened_tail(count: int) -> float:
    """Return which percentile of the resamples is the lower end for so many tasks."""
    if count > MANY:
        return (1 - LEVEL) / 2
    from scipy.special import stdtrit  # as above

    widened = math.sqrt(count / (count - 1)) * float(stdtrit(count - 1, (1 + LEVEL) / 2))
    return NormalDist().cdf(-widened)
