"""Exact tests of a difference between two runs of the same tasks, two-sided.

By task (`sign_flip`): if nothing changed, each task's difference could have had either sign. With one trial
a task that is McNemar's exact test; with several it weighs each task by its change. It is valid for any number of
trials a task got, and also when both runs stopped trials early by the same rule.

Within these tasks (`shuffled_trials`): if nothing changed, each trial could have come from either run. It
does not generalise to other tasks. For one task it is Fisher's exact test, for one trial a task McNemar's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

MAX_STEPS = 50_000
"""The longest grid on which differences are summed; finer ones are rounded to it, and the test is exact for those."""
_FINEST = 10_000


class Tally(NamedTuple):
    """One task in two runs: how many trials passed of how many that were decided."""

    passed_before: int
    trials_before: int
    passed_after: int
    trials_after: int

    @property
    def difference(self) -> float:
        """How much more often it passes after than before."""
        return self.passed_after / self.trials_after - self.passed_before / self.trials_before


def mcnemar(gained: int, lost: int) -> float:
    """Return the exact p-value of `gained` tasks that only pass after and `lost` ones that only passed before."""
    return _sign_flip(((1, gained + lost),), gained - lost) if gained + lost else 1.0


def sign_flip(differences: Sequence[float]) -> float:
    """Return the exact p-value of one difference per task."""
    steps = _steps(differences)
    weights = Counter(abs(step) for step in steps if step)
    return _sign_flip(tuple(sorted(weights.items())), sum(steps)) if weights else 1.0


@lru_cache(maxsize=4096)
def _sign_flip(weights: tuple[tuple[int, int], ...], observed: int) -> float:
    """Return the probability that random signs make the sum at least as far from 0 as observed.

    `weights` are sizes of differences and how many tasks have them. Each task's sign has the characteristic function
    cos(w t), so their sum has the product; the inverse transform gives the probability of every sum.
    """
    import numpy as np  # only where two runs are compared

    reach = sum(weight * count for weight, count in weights)
    size = 1 << (2 * reach + 1).bit_length()
    angles = 2 * np.pi * np.arange(size // 2 + 1) / size
    product = np.ones_like(angles)
    for weight, count in weights:
        product *= np.cos(weight * angles) ** count
    return _two_sided(np.fft.irfft(product, size), observed, reach)


def shuffled_trials(tallies: Sequence[Tally]) -> float:
    """Return the exact p-value of the mean difference when trials are permuted between both runs within each task."""
    shares = [Fraction(1, tally.trials_before) + Fraction(1, tally.trials_after) for tally in tallies]
    most = math.fsum(share * tally.trials_after for share, tally in zip(shares, tallies, strict=True))
    scale = _scale(shares, min(_FINEST, MAX_STEPS / most))
    slopes = [max(1, round(float(share) * scale)) for share in shares]
    strata = Counter(
        (tally.trials_before, tally.trials_after, tally.passed_before + tally.passed_after, slope)
        for tally, slope in zip(tallies, slopes, strict=True)
    )
    observed = sum(tally.passed_after * slope for tally, slope in zip(tallies, slopes, strict=True))
    return _shuffled(tuple(sorted(strata.items())), observed)


@lru_cache(maxsize=4096)
def _shuffled(strata: tuple[tuple[tuple[int, int, int, int], int], ...], observed: int) -> float:
    """Return the probability that permuted trials make the sum at least as extreme as observed.

    Each stratum is (trials before, trials after, passed in both, steps that one of them weighs) and how many there are.
    """
    import numpy as np  # only where two runs are compared

    reach = sum(after * slope * count for (_, after, _, slope), count in strata)
    size = 1 << (reach + 1).bit_length()
    angles = 2 * np.pi * np.arange(size // 2 + 1) / size
    product = np.ones_like(angles, dtype=complex)
    for (before, after, passed, slope), count in strata:
        chances = _hypergeometric(before, after, passed)
        product *= sum(chance * np.exp(-1j * slope * got * angles) for got, chance in chances.items()) ** count
    sums = np.fft.irfft(product, size)
    return _doubled(float(sums[: observed + 1].sum()), float(sums[observed : reach + 1].sum()))


def _hypergeometric(before: int, after: int, passed: int) -> dict[int, float]:
    """Return the probability of each number of passed trials in the later run."""
    ways = math.comb(before + after, passed)
    possible = range(max(0, passed - before), min(after, passed) + 1)
    return {got: math.comb(after, got) * math.comb(before, passed - got) / ways for got in possible}


def _two_sided(sums: Any, observed: int, reach: int) -> float:
    """Return the probability of a sum at least as far from 0; `sums` are those of 0, 1, …, then of negatives."""
    tail = float(sums[abs(observed) : reach + 1].sum())
    return _doubled(tail, 1.0)


def _doubled(one: float, other: float) -> float:
    """Return the two-sided p-value, rounded, as the transform loses the last digits."""
    return min(1.0, max(0.0, round(2 * min(one, other), 12)))


def _steps(differences: Sequence[float]) -> list[int]:
    """Return differences as whole steps of one grid."""
    sizes = [abs(difference) for difference in differences]
    finest = min(_FINEST / max(sizes, default=0.0), MAX_STEPS / math.fsum(sizes)) if any(sizes) else 1.0
    fractions = [Fraction(difference).limit_denominator(1_000) for difference in differences]
    is_exact = all(abs(d - fraction) < 1e-9 for d, fraction in zip(differences, fractions, strict=True))
    scale = _scale(fractions, finest) if is_exact else finest
    return [round(difference * scale) for difference in differences]


def _scale(fractions: Sequence[Fraction], finest: float) -> float:
    """Return how many steps make one whole: such that all fractions are whole steps, where the grid is fine enough."""
    common = 1
    for fraction in fractions:
        common = math.lcm(common, fraction.denominator)
        if common > finest:
            return finest
    return float(common)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for how many there are (Holm's step-down), in the order given."""
    adjusted = [1.0] * len(p_values)
    least = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = least
    return adjusted
