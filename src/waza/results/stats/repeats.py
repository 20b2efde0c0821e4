"""Several trials of one task: how often at least one of k passes, how often all of them do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import comb

from waza.results.scores import mean

MOST_K = 100
"""Curves end here: nobody reads further."""


@lru_cache(maxsize=1024)
def pass_at_k(passed: int, trials: int, k: int) -> float:
    """Return the chance that at least one of k trials passes, unbiased; 0 where k is not within the trials."""
    if not 1 <= k <= trials:
        return 0.0
    return 1.0 - comb(trials - passed, k) / comb(trials, k)


@lru_cache(maxsize=1024)
def pass_hat_k(passed: int, trials: int, k: int) -> float:
    """Return the chance that all of k trials pass (pass^k), unbiased; 0 where k is not within the trials."""
    if not 1 <= k <= trials:
        return 0.0
    return comb(passed, k) / comb(trials, k)


def pass_hat_curve(tallies: Sequence[tuple[int, int]]) -> list[float]:
    """Return pass^1, pass^2, … over tasks given as (passed, trials), up to the fewest trials of any."""
    return _curve(pass_hat_k, tallies)


def pass_at_curve(tallies: Sequence[tuple[int, int]]) -> list[float]:
    """Return pass@1, pass@2, … over tasks given as (passed, trials), up to the fewest trials of any."""
    return _curve(pass_at_k, tallies)


def _curve(chance: Callable[[int, int, int], float], tallies: Sequence[tuple[int, int]]) -> list[float]:
    fewest = min((trials for _, trials in tallies), default=0)
    ks = range(1, min(fewest, MOST_K) + 1)
    return [mean([chance(passed, trials, k) for passed, trials in tallies]) or 0.0 for k in ks]


def flakiness(passed: int, trials: int) -> float | None:
    """Return the share of trials that say something else than most of them do; None without trials."""
    return min(passed, trials - passed) / trials if trials else None


def normalized_gain(before: float, after: float) -> float:
    """Return how much of the room for improvement was used: (after - before) / (1 - before)."""
    if before >= 1.0 or before == after:
        return 0.0
    return (after - before) / (1.0 - before)
