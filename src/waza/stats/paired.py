"""Exact tests of a difference between two runs of the same tasks: whether there is one, or whether it is a drop.

By task (`sign_flip`, `fell_over_tasks`): if nothing changed, each task's difference could have had either sign. With
one trial a task that is McNemar's exact test; with several it weighs each task by its change. It needs as many trials
of a task in both runs, or both runs to have stopped trials early by the same rule.

Within these tasks (`shuffled_trials`, `fell_within_tasks`): if nothing changed, each trial could have come from either
run. It does not generalise to other tasks, and needs no equal numbers of trials. For one task it is Fisher's exact
test, for one trial a task McNemar's. A change d of a task counts as d + d|d|/4, in both directions: a task that breaks
counts more than as many failures spread over many tasks. That makes the test finer than the plain sum, which takes few
values, and it finds broken tasks more often.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from typing import Any, NamedTuple

MAX_STEPS = 50_000
"""The longest grid on which differences are summed; finer ones are rounded to it, and the test is exact for those."""
_FINEST = 10_000
_CURVE = 4
DRAWS = 9_999
"""How often trials with scores between 0 and 1 are permuted at random."""
_MOST_WAYS = 1_000
"""Up to so many ways to permute the trials of one task are listed."""


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


class _Stratum(NamedTuple):
    """A kind of task: its trials in both runs, how many passed in both together, and how much it counts."""

    before: int
    after: int
    passed: int
    weight: float

    def changes(self) -> dict[int, float]:
        """Return the change for each number of trials that may have passed in the later run."""
        possible = range(max(0, self.passed - self.before), min(self.after, self.passed) + 1)
        return {got: self.weight * (got / self.after - (self.passed - got) / self.before) for got in possible}

    def chance(self, got: int) -> float:
        """Return the probability that so many of the passed trials are the later run's (hypergeometric)."""
        ways = math.comb(self.after, got) * math.comb(self.before, self.passed - got)
        return ways / math.comb(self.before + self.after, self.passed)


Strata = tuple[tuple[_Stratum, int], ...]


def mcnemar(gained: int, lost: int) -> float:
    """Return the exact p-value of `gained` tasks that only pass after and `lost` ones that only passed before."""
    return min(1.0, 2 * _at_most(((1, gained + lost),), -abs(gained - lost))) if gained + lost else 1.0


def sign_flip(differences: Sequence[float]) -> float:
    """Return the exact p-value of one difference per task."""
    steps = _steps(differences)
    weights = Counter(abs(step) for step in steps if step)
    return min(1.0, 2 * _at_most(tuple(sorted(weights.items())), -abs(sum(steps)))) if weights else 1.0


def fell_over_tasks(differences: Sequence[float], *, allowed: float = 0.0) -> float:
    """Return the one-sided p-value of a drop by more than `allowed`, from one difference per task."""
    steps = _steps([difference + allowed for difference in differences])
    weights = Counter(abs(step) for step in steps if step)
    return _at_most(tuple(sorted(weights.items())), sum(steps)) if weights else 1.0


@lru_cache(maxsize=4096)
def _at_most(weights: tuple[tuple[int, int], ...], observed: int) -> float:
    """Return the probability that random signs make the sum as small as observed, or smaller.

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
    sums = np.fft.irfft(product, size)  # of 0, 1, …, then of negatives; both tails are the same
    tail = float(sums[abs(observed) : reach + 1].sum())
    return _share(tail if observed <= 0 else 1.0 - tail + float(sums[observed]))


def shuffled_trials(tallies: Sequence[Tally]) -> float:
    """Return the exact p-value of the difference when trials are permuted between both runs within each task."""
    lower, upper = _tails_within(tallies, None, 0.0)
    return min(1.0, 2 * min(lower, upper))


def fell_within_tasks(
    tallies: Sequence[Tally], *, allowed: float = 0.0, weights: Sequence[float] | None = None
) -> float:
    """Return the one-sided p-value of a drop by more than `allowed` in these very tasks.

    Without an allowed drop it is exact. With one, the distribution of the plain mean is moved by it: trials of both
    runs together vary more than those of either run, so that it is conservative.
    """
    return _tails_within(tallies, weights, allowed)[0]


def _tails_within(tallies: Sequence[Tally], weights: Sequence[float] | None, allowed: float) -> tuple[float, float]:
    strata = [
        _Stratum(tally.trials_before, tally.trials_after, tally.passed_before + tally.passed_after, weight)
        for tally, weight in zip(tallies, weights or [1.0] * len(tallies), strict=True)
    ]
    is_curved = not allowed and len(strata) > 1 and any(max(one.before, one.after) > 1 for one in strata)
    scale = _scale_within(strata, is_curved)
    observed = sum(
        _stepped(stratum, is_curved, scale)[tally.passed_after] for tally, stratum in zip(tallies, strata, strict=True)
    )
    total = math.fsum(stratum.weight for stratum in strata)
    observed += math.floor(allowed * total * scale + 1e-6)
    return _tails(tuple(sorted(Counter(strata).items())), is_curved, scale, observed)


def _scale_within(strata: Sequence[_Stratum], is_curved: bool) -> float:
    """Return how many steps make one whole: all changes are whole steps where the grid is long enough."""
    kinds = Counter(strata)
    reach = math.fsum(
        count * (max(values) - min(values)) for one, count in kinds.items() if (values := _values(one, is_curved))
    )
    finest = MAX_STEPS / max(reach, 1e-9)
    common = 1
    for one in kinds:
        base = math.lcm(one.before, one.after)
        weight = Fraction(one.weight).limit_denominator(100).denominator
        common = math.lcm(common, weight * base if not is_curved else _CURVE * (weight * base) ** 2)
        if common > finest:
            return finest
    return float(common)


def change_values(before: int, after: int, passed: int, is_curved: bool) -> dict[int, tuple[float, float]]:
    """Return by number of passed trials after: how the change counts, and its probability if trials are permuted."""
    stratum = _Stratum(before, after, passed, 1.0)
    values = _values(stratum, is_curved)
    return {got: (value, stratum.chance(got)) for got, value in zip(stratum.changes(), values, strict=True)}


def _curved(change: float) -> float:
    return change + change * abs(change) / _CURVE


def _values(stratum: _Stratum, is_curved: bool) -> list[float]:
    changes = stratum.changes().values()
    return [_curved(change) for change in changes] if is_curved else list(changes)


@lru_cache(maxsize=4096)
def _stepped(stratum: _Stratum, is_curved: bool, scale: float) -> dict[int, int]:
    """Return the whole steps that each number of passed trials is above the smallest possible one."""
    values = _values(stratum, is_curved)
    return {got: round((value - values[0]) * scale) for got, value in zip(stratum.changes(), values, strict=True)}


@lru_cache(maxsize=4096)
def _tails(strata: Strata, is_curved: bool, scale: float, observed: int) -> tuple[float, float]:
    """Return the probabilities that permuted trials make the sum at most, and at least, as large as observed."""
    import numpy as np  # only where two runs are compared

    steps = [(stratum, _stepped(stratum, is_curved, scale), count) for stratum, count in strata]
    reach = sum(max(some.values()) * count for _, some, count in steps)
    size = 1 << (reach + 1).bit_length()
    angles = 2 * np.pi * np.arange(size // 2 + 1) / size
    product = np.ones_like(angles, dtype=complex)
    for stratum, some, count in steps:
        if len(some) > 1:
            product *= sum(stratum.chance(got) * np.exp(-1j * step * angles) for got, step in some.items()) ** count
    sums = np.fft.irfft(product, size)
    return _share(float(sums[: observed + 1].sum())), _share(float(sums[observed : reach + 1].sum()))


def shuffled_scores(tasks: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float:
    """Return the two-sided p-value of the difference of scores in these very tasks."""
    swapped = [(after, before) for before, after in tasks]
    return min(1.0, 2 * min(scores_fell_within_tasks(tasks), scores_fell_within_tasks(swapped)))


def scores_fell_within_tasks(
    tasks: Sequence[tuple[Sequence[float], Sequence[float]]], *, allowed: float = 0.0
) -> float:
    """Return the one-sided p-value of a drop of scores in these very tasks; each has its trials before and after.

    Trials are permuted at random within each task, the same way every time: the p-value is (1 + hits) / (1 + draws),
    which is at most as often below 5 % as it should be, for any number of draws.
    """
    import numpy as np  # only where two runs are compared

    random = np.random.default_rng(0)
    sums = np.zeros(DRAWS)
    observed = allowed * len(tasks)
    for before, after in tasks:
        change = math.fsum(after) / len(after) - math.fsum(before) / len(before)
        observed += change if allowed else _curved(change)
        both = np.array([*before, *after])
        if both.min() < both.max():
            changes = _permuted(both, len(after), random)
            sums += changes if allowed else changes + changes * np.abs(changes) / _CURVE
    # A sum that differs from the observed one by rounding alone is a hit.
    return (1 + int((sums <= observed + 1e-9).sum())) / (1 + DRAWS)


def _permuted(both: Any, after: int, random: Any) -> Any:
    """Return the change of a task for each draw; where there are few ways to permute its trials they are listed."""
    import numpy as np  # only where two runs are compared

    before = len(both) - after
    if math.comb(len(both), after) <= _MOST_WAYS:
        ways = np.array([both[list(chosen)].sum() for chosen in combinations(range(len(both)), after)])
        later = ways[random.integers(0, len(ways), DRAWS)]
    else:
        later = random.permuted(np.broadcast_to(both, (DRAWS, len(both))), axis=1)[:, :after].sum(axis=1)
    return later / after - (both.sum() - later) / before


def _share(probability: float) -> float:
    """Return a probability, rounded, as the transform loses the last digits."""
    return min(1.0, max(0.0, round(probability, 12)))


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
