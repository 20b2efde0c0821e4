"""95 % intervals of shares and of means of bounded numbers, that contain the truth in 95 % of cases with few tasks too.

A share (`exact_share`): the interval of Clopper and Pearson (1934), whose coverage is never below 95 %. Wilson's is
narrower, but covers 86 % of five tasks at a pass rate of 97 %.

A mean of scores from 0 to 1, or of differences from -1 to 1 (`bounded_mean`): Gaffke's bounds (Gaffke 2005; Learned-
Miller and Thomas 2020). The lower end adds one task with the lowest possible score, because a rare failure may not have
occurred yet, and takes the 2.5 % point of the mean under random weights (Rubin's Bayesian bootstrap); the upper end
does the same with the highest score. For scores of 0 and 1 this is Clopper and Pearson's interval. Nothing is drawn.
Tasks are the units, never trials: trials of one task are alike.

Numbers without a bound (`mean_difference`): Student's t, for differences of two runs, which are about symmetric. For
the mean of one run's times, tokens or costs there is none: no interval covers the mean of skewed numbers without bound
(log-normal, sigma 1: 81 % with five tasks, 92 % with a hundred).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from statistics import NormalDist

from msgspec import Struct

from waza.stats.scores import LEVEL, Z95, Bootstrap, Interval, mean

TAIL = (1 - LEVEL) / 2
MANY = 100
"""With more different tasks than this the chance is approximated, with an error far below the chance itself."""
FINEST = 200
"""With more different numbers than this, those in the same of as many equal steps count as their mean."""
FEWEST = 5
"""Fewer tasks than this give no interval of unbounded numbers."""


def exact_share(successes: float, trials: int) -> Interval | None:
    """Return Clopper and Pearson's 95 % interval of a share, or None without trials; a tie may count as half."""
    return _exact_share(float(successes), trials) if trials > 0 else None


@lru_cache(maxsize=1024)
def _exact_share(successes: float, trials: int) -> Interval:
    lower, upper = share_bounds(successes, trials)
    return Interval(lower=lower, upper=upper, mean=successes / trials)


def share_bounds(successes: float, trials: float, tail: float = TAIL) -> tuple[float, float]:
    """Return the bounds of a share of `trials`, which need not be a whole number, with `tail` outside each of them."""
    failures = max(0.0, trials - successes)
    lower = beta_quantile(successes, failures + 1, tail) if successes > 0 else 0.0
    upper = 1 - beta_quantile(failures, successes + 1, tail) if failures > 0 else 1.0
    return min(lower, successes / trials), max(upper, min(1.0, successes / trials))


def bounded_mean(values: Sequence[float], low: float = 0.0, high: float = 1.0) -> Bootstrap | None:
    """Return the 95 % interval of the mean of one number per task, or per trial of one task; None without any.

    No number can be below `low` or above `high`: -1 and 1 for differences of scores.
    """
    if not values:
        return None
    counts = Counter(values)
    points = tuple(sorted(counts.items()))
    # Many different numbers are quickly computed with, and a cache would keep them in memory.
    lower, upper = (_cached if len(points) <= MANY else _bounds)(
        points, min(low, points[0][0]), max(high, points[-1][0])
    )
    middle = mean(values) or 0.0
    return Bootstrap(lower=min(lower, middle), upper=max(upper, middle), mean=middle)


Points = tuple[tuple[float, int], ...]
"""Numbers in order, each with how many tasks have it."""


def _bounds(points: Points, low: float, high: float) -> tuple[float, float]:
    if all(value in (low, high) for value, _ in points):  # passed or failed: this is a share
        trials = sum(count for _, count in points)
        lower, upper = share_bounds(dict(points).get(high, 0), trials)
        return low + (high - low) * lower, low + (high - low) * upper
    if len(points) > FINEST:
        points = _grouped(points, (high - low) / FINEST)
    mirrored = tuple((-value, count) for value, count in reversed(points))
    return _lower(points, low), -_lower(mirrored, -high)


_cached = lru_cache(maxsize=256)(_bounds)


def _grouped(points: Points, step: float) -> Points:
    """Return the means of the numbers in each step."""
    groups = [list(group) for _, group in groupby(points, lambda point: math.floor(point[0] / step))]
    totals = [(math.fsum(value * n for value, n in group), sum(n for _, n in group)) for group in groups]
    return tuple((total / count, count) for total, count in totals)


def _added(points: Iterable[tuple[float, int]]) -> dict[float, int]:
    total: Counter[float] = Counter()
    for value, count in points:
        total[value] += count
    return total


def _lower(points: Points, low: float) -> float:
    """Return the number below which the mean is with a chance of 2.5 %, with one task more at `low`."""
    count = sum(times for _, times in points)
    middle = math.fsum(value * times for value, times in points) / count
    every = ((low, 1), *points)
    return _edge(lambda edge: [(value - edge, times) for value, times in every], low, middle)


Parts = list[tuple[float, int]]
"""How far numbers are from a limit, each with how many tasks have it."""


def _edge(parts: Callable[[float], Parts], low: float, high: float) -> float:
    """Return the limit at which the sum of randomly weighted parts is negative with a chance of 2.5 %."""
    if high <= low:
        return low
    if sum(times for _, times in parts(low)) <= MANY + 1:
        return _root(lambda edge: _exact_score(parts(edge)) + Z95, low, high)
    return _root(lambda edge: _approximate_score(parts(edge)) + Z95, low, high, 1e-7)


def _exact_score(parts: Parts) -> float:
    """Return the chance that the randomly weighted sum is negative, as a point of the normal distribution.

    The weights are independent exponential times. Of a positive part and a negative one, the one whose time lasts
    longer in proportion remains, and its remaining time is again exponential: the chances of all pairs follow from one
    another.
    """
    above = [part for part, times in parts if part > 0 for _ in range(times)]
    below = [-part for part, times in parts if part < 0 for _ in range(times)]
    chances = [0.0] + [1.0] * len(below)
    for more in above:
        chance = 0.0
        for place, less in enumerate(below, 1):
            chance = chances[place] = (more * chance + less * chances[place]) / (more + less)
    return NormalDist().inv_cdf(min(max(chances[-1], 1e-300), 1 - 1e-16))


def _approximate_score(parts: Parts) -> float:
    """Return the same for many numbers by the saddlepoint approximation (Barndorff-Nielsen 1986)."""
    parts = [(part, times) for part, times in parts if part]
    least, most = 1 / min(parts)[0], 1 / max(parts)[0]

    def slope(tilt: float) -> float:
        return math.fsum(times * part / (1 - tilt * part) for part, times in parts)

    margin = 1e-12 * (most - least)
    tilt = _root(slope, least + margin, most - margin, 1e-9)
    root = math.copysign(math.sqrt(2 * max(0.0, math.fsum(n * math.log1p(-tilt * part) for part, n in parts))), tilt)
    scaled = tilt * math.sqrt(math.fsum(n * (part / (1 - tilt * part)) ** 2 for part, n in parts))
    return root + math.log(scaled / root) / root if abs(root) > 1e-4 else root


def _root(function: Callable[[float], float], low: float, high: float, precision: float = 1e-12) -> float:
    """Return where an increasing function is 0, by the secant method within bounds (Illinois)."""
    width = (high - low) * precision
    below, above = function(low + width), function(high - width)
    if below >= 0 or above <= 0:
        return low if below >= 0 else high
    last = 0
    for _ in range(200):
        middle = (low * above - high * below) / (above - below)
        if not low < middle < high:
            middle = (low + high) / 2
        found = function(middle)
        if abs(found) < precision or high - low <= width:
            return middle
        if found < 0:
            low, below, above = middle, found, above / 2 if last < 0 else above
        else:
            high, above, below = middle, found, below / 2 if last > 0 else below
        last = -1 if found < 0 else 1
    return (low + high) / 2


def clustered_share(tasks: Iterable[tuple[float, int]]) -> Interval | None:
    """Return the 95 % interval of a share of outputs that belong to tasks; None without outputs.

    Each task has how many of its outputs count, of how many. Outputs of one task are alike, so tasks are the units: one
    task more, as large as the largest, in which none counts (all, for the upper end). A single task's outputs are
    the units.
    """
    groups = Counter((part, whole) for part, whole in tasks if whole)
    parts, total = (math.fsum(group[place] * times for group, times in groups.items()) for place in (0, 1))
    if not total or groups.total() == 1 or all(whole == 1 for _, whole in groups):
        return exact_share(parts, int(total))
    most, share = max(whole for _, whole in groups), parts / total

    def lower(mirrored: bool) -> float:
        every = [((whole - part if mirrored else part), whole, n) for (part, whole), n in groups.items()]
        every.append((0.0, most, 1))
        middle = 1 - share if mirrored else share
        return _edge(lambda edge: [(part - edge * whole, n) for part, whole, n in every], 0.0, middle)

    return Interval(lower=lower(False), upper=1 - lower(True), mean=share)


class HalfWins(Struct, frozen=True, kw_only=True):
    """A win rate with ties as half a win: the mean over tasks."""

    win_rate: float
    standard_error: float | None
    """Of the mean over tasks; None for a single task."""
    interval: Bootstrap
    tasks: int


def half_wins(tasks: Iterable[tuple[int, int, int]]) -> HalfWins | None:
    """Return the win rate with ties as half, from each task's wins, ties and losses; None without any."""
    rates = [(wins + ties / 2) / (wins + ties + losses) for wins, ties, losses in tasks if wins + ties + losses]
    interval = bounded_mean(rates)
    if interval is None:
        return None
    error = standard_error(rates)
    return HalfWins(win_rate=interval.mean, standard_error=error, interval=interval, tasks=len(rates))


def standard_error(numbers: Sequence[float]) -> float | None:
    """Return the standard error of the mean; None for fewer than two numbers."""
    count, middle = len(numbers), mean(numbers)
    if middle is None or count < 2:
        return None
    return math.sqrt(math.fsum((one - middle) ** 2 for one in numbers) / (count - 1) / count)


def mean_difference(differences: Sequence[float]) -> Bootstrap | None:
    """Return Student's 95 % interval of the mean of unbounded differences, one per task; None for fewer than five."""
    count, middle, error = len(differences), mean(differences), standard_error(differences)
    if middle is None or error is None or count < FEWEST:
        return None
    reach = student_t(count - 1) * error
    return Bootstrap(lower=middle - reach, upper=middle + reach, mean=middle)


@lru_cache(maxsize=1024)
def student_t(freedom: int) -> float:
    """Return the two-sided 95 % point of Student's t."""
    share = beta_quantile(freedom / 2, 0.5, 1 - LEVEL)
    return math.sqrt(freedom * (1 - share) / share)


@lru_cache(maxsize=4096)
def beta_quantile(a: float, b: float, chance: float) -> float:
    """Return the number that a beta-distributed one is below with this chance."""
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if beta_below(a, b, middle) < chance else (low, middle)
    return middle


def beta_below(a: float, b: float, share: float) -> float:
    """Return the chance that a beta-distributed number is below `share`: the regularised incomplete beta function."""
    if share <= 0.0 or share >= 1.0:
        return float(share > 0.5)
    if share > (a + 1) / (a + b + 2):  # where the fraction would converge slowly
        return 1 - beta_below(b, a, 1 - share)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(share) + b * math.log1p(-share)
    return math.exp(scale) / a / _fraction(a, b, share)


def _fraction(a: float, b: float, share: float) -> float:
    """Return the continued fraction of the incomplete beta function, by Lentz's algorithm (DLMF 8.17.22)."""
    tiny = 1e-300
    value, upper, lower = 1.0, 1.0, 0.0
    for step in range(1, 100_000):
        half = step // 2
        if step % 2:
            term = -(a + half) * (a + b + half) * share / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            term = half * (b - half) * share / ((a + 2 * half - 1) * (a + 2 * half))
        lower = 1 / (1 + term * lower or tiny)
        upper = 1 + term / upper or tiny
        value *= upper * lower
        if abs(upper * lower - 1) < 1e-15:
            break
    return value


class Invariance(Struct, frozen=True, kw_only=True):
    """How often a verdict stayed the same; undecided ones are counted separately."""

    kept: int
    decided: int
    undecided: int = 0
    interval: Interval | None = None
    """The exact 95 % interval of the share that stayed; None where nothing was decided."""


def invariance(stayed: Iterable[bool | None]) -> Invariance:
    """Return how often a verdict stayed the same; None is an undecided one."""
    verdicts = list(stayed)
    kept, undecided = verdicts.count(True), verdicts.count(None)
    decided = len(verdicts) - undecided
    return Invariance(kept=kept, decided=decided, undecided=undecided, interval=exact_share(kept, decided))
