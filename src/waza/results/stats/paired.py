"""Exact tests of a difference between two runs of the same tasks, two-sided.

By task (`sign_flip`): if nothing changed, each task's difference might as well have had the other sign. With one trial
a task that is McNemar's exact test; with several it weighs each task by how far it moved. It holds however many trials
a task got, and also when both runs stopped trials early by the same rule.

Within these tasks (`shuffled_trials`): if nothing changed, each trial might as well have come from the other run. It
says nothing about other tasks. For one task it is Fisher's exact test, for one trial a task McNemar's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

MOST_STEPS = 50_000
"""The grid on which differences are summed. Finer ones are rounded to it: the test is then exact for what is rounded."""
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
    """Return the exact p-value of so many tasks that only pass after, and so many that only passed before."""
    return _sign_flip(((1, gained + lost),), gained - lost) if gained + lost else 1.0


def sign_flip(differences: Sequence[float]) -> float:
    """Return the exact p-value of one difference per task."""
    steps = _steps(differences)
    weights = Counter(abs(step) for step in steps if step)
    return _sign_flip(tuple(sorted(weights.items())), sum(steps)) if weights else 1.0


@lru_cache(maxsize=4096)
def _sign_flip(weights: tuple[tuple[int, int], ...], observed: int) -> float:
    """Return the chance that signs thrown by a coin make the sum as far from 0 as it is.

    `weights` are sizes of differences and how many tasks have them. Each task's sum has the characteristic function
    cos(w t), so all of them have the product; the inverse transform gives the chance of every sum.
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
    """Return the exact p-value of the mean difference when trials are dealt anew to both runs within each task."""
    scale = _scale([tally.difference for tally in tallies])
    groups = Counter(_dealt(tally, scale) for tally in tallies)
    observed = sum(round((tally.passed_after - _expected(tally)) * _slope(tally, scale)) for tally in tallies)
    return _shuffled(tuple(sorted(groups.items())), observed)


class _Dealt(NamedTuple):
    """What chance may make of one task: its trials, how many of them pass, how many go to each run, what one weighs."""

    before: int
    after: int
    passed: int
    slope: int


def _dealt(tally: Tally, scale: int) -> _Dealt:
    passed = tally.passed_before + tally.passed_after
    return _Dealt(tally.trials_before, tally.trials_after, passed, _slope(tally, scale))


def _expected(tally: Tally) -> Fraction:
    whole = tally.trials_before + tally.trials_after
    return Fraction((tally.passed_before + tally.passed_after) * tally.trials_after, whole)


def _slope(tally: Tally, scale: int) -> int:
    """Return by how many steps of the grid the difference grows when one more of the passed trials is the later run's."""
    return max(1, round(scale * (1 / tally.trials_before + 1 / tally.trials_after)))
