"""Means, spreads and Wilson's interval: pure numbers, exact sums, None where there is nothing to count, never NaN.

Undecided trials are never part of a mean. They are counted and span `low` (all of them 0) to `high` (all of them 1), so
that low ≤ score ≤ high is always true.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import comb
from typing import Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

Z95 = 1.959963984540054
"""The two-sided 95 % point of the normal distribution."""


class Scored(Protocol):
    """A grade as far as scores need it: a stored one, or the part of it that summaries read."""

    @property
    def status(self) -> str:
        """Passed, failed or error."""

    @property
    def score(self) -> float:
        """From 0 to 1."""

    @property
    def weight(self) -> float:
        """How much it counts."""


class Interval(Struct, frozen=True, kw_only=True):
    """Where a share lies with 95 % confidence."""

    lower: float
    upper: float
    mean: float
    confidence_level: float = 0.95


class Score(Struct, frozen=True, kw_only=True, gc=False):
    """A score over what was decided, with its worst and best case over what was not."""

    value: float | None = None
    """The unweighted mean."""
    weighted: float | None = None
    """The mean with weights: the composite."""
    low: float | None = None
    """The composite if all that is undecided were 0."""
    high: float | None = None
    """The composite if all that is undecided were 1."""
    undecided: int = 0


UNDECIDED = Score(low=0.0, high=1.0, undecided=1)
"""The score of a trial that could not run, or was not run."""


def mean(numbers: Sequence[float]) -> float | None:
    """Return the mean, or None of nothing."""
    if len(numbers) < 2:
        return numbers[0] if numbers else None
    return _clip(math.fsum(numbers) / len(numbers), min(numbers), max(numbers))


def std_dev(numbers: Sequence[float]) -> float | None:
    """Return the standard deviation of a whole population, or None of nothing."""
    middle = mean(numbers)
    if middle is None or len(numbers) == 1:
        return None if middle is None else 0.0
    return math.sqrt(math.fsum((number - middle) ** 2 for number in numbers) / len(numbers))


@lru_cache(maxsize=1024)
def wilson(successes: float, trials: int) -> Interval | None:
    """Return the Wilson 95 % interval of a share, or None without trials; a trial may count as part of a success."""
    if trials < 1:
        return None
    lower, upper = wilson_bounds(successes / trials, trials, Z95)
    return Interval(lower=lower, upper=upper, mean=successes / trials)


def wilson_bounds(share: float, n: float, z: float) -> tuple[float, float]:
    """Return Wilson's interval (1927) of a share of `n` observations, which need not be a whole number.

    `z` is how many standard errors it reaches: that of the normal distribution, or Student's t.
    """
    square = z * z / n
    centre = (share + square / 2) / (1 + square)
    half = z / (1 + square) * math.sqrt(share * (1 - share) / n + square / (4 * n))
    return _clip(min(centre - half, share), 0.0, 1.0), _clip(max(centre + half, share), 0.0, 1.0)


@lru_cache(maxsize=1024, typed=True)
def _shared(value: float | None, weighted: float, low: float, high: float, undecided: int = 0) -> Score:
    """Return the same record for the same numbers: thousands of trials have few that differ."""
    return Score(value=value, weighted=weighted, low=low, high=high, undecided=undecided)


def score_of_grades(grades: Sequence[Scored]) -> Score:
    """Return the score over the grades of a trial; a score that is not a number from 0 to 1 counts as undecided."""
    if len(grades) == 1 and grades[0].status != "error" and 0.0 <= grades[0].score <= 1.0:
        only = grades[0].score
        return _shared(only, only, only, only)
    decided: list[Scored] = []
    undecided: list[Scored] = []
    for grade in grades:
        (decided if grade.status != "error" and 0.0 <= grade.score <= 1.0 else undecided).append(grade)
    if not decided:
        return replace(UNDECIDED, undecided=max(1, len(undecided)))
    points = math.fsum([grade.score * _weight(grade) for grade in decided])
    weight = math.fsum(map(_weight, decided))
    unknown = math.fsum(map(_weight, undecided))
    unweighted = mean([grade.score for grade in decided])
    if not weight:
        if unknown:
            return Score(value=unweighted, low=0.0, high=1.0, undecided=len(undecided))
        # Specs refuse this, but results of other programs may have it: without any weight all count the same.
        points, weight, unknown = math.fsum(grade.score for grade in decided), len(decided), len(undecided)
    weighted = _clip(points / weight, 0.0, 1.0)
    return _shared(
        unweighted,
        weighted,
        min(points / (weight + unknown), weighted),
        _clip((points + unknown) / (weight + unknown), weighted, 1.0),
        len(undecided),
    )


def mean_score(scores: Iterable[Score]) -> Score:
    """Return the mean of scores: of trials for a task, of tasks for a run."""
    values, weights, lows, highs = array("d"), array("d"), array("d"), array("d")  # compact, there may be a million
    undecided, only = 0, Score()
    for only in scores:
        if only.value is not None:
            values.append(only.value)
        if only.weighted is not None:
            weights.append(only.weighted)
        lows.append(only.low or 0.0)
        highs.append(only.high or 0.0)
        undecided += only.undecided
    if len(lows) < 2:
        return only
    weighted, low, high = mean(weights), math.fsum(lows) / len(lows), math.fsum(highs) / len(highs)
    return Score(
        value=mean(values),
        weighted=weighted,
        low=low if weighted is None else min(low, weighted),
        high=high if weighted is None else _clip(high, weighted, 1.0),
        undecided=undecided,
    )


def _weight(grade: Scored) -> float:
    """Return the grade's weight within limits that can be summed; one that is negative or not a number counts as 1."""
    if grade.weight == 0.0:
        return 0.0
    return _clip(grade.weight, 1e-100, 1e100) if 0.0 < grade.weight < math.inf else 1.0


def _clip(number: float, low: float, high: float) -> float:
    """Return the number within its bounds: rounding may push a mean past them."""
    return min(max(number, low), high)


# Confidence sequences: intervals that may be checked after every trial and are right with 95 % confidence at all checks
# together. The ratio of the beta-binomial mixture over all pass rates (uniform prior) to the likelihood under a share p
# is a martingale if p is true, so the chance that it ever reaches 20 is at most 1 in 20 (Ville 1939): a share for which
# it does can be ruled out, whenever one checks.

ALPHA = 0.05


def log_evidence(passed: int, failed: int, share: float) -> float:
    """Return the logarithm of the likelihood ratio of the mixture against `share`."""
    if (share <= 0.0 and passed) or (share >= 1.0 and failed):
        return math.inf
    mixture = math.lgamma(passed + 1) + math.lgamma(failed + 1) - math.lgamma(passed + failed + 2)
    expected = (passed * math.log(share) if passed else 0.0) + (failed * math.log1p(-share) if failed else 0.0)
    return mixture - expected


def settled(passed: int, failed: int, share: float, alpha: float = ALPHA) -> Literal["above", "below", ""]:
    """Return on which side of `share` the pass rate is, or an empty text where that is still open."""
    if log_evidence(passed, failed, share) < -math.log(alpha):
        return ""
    return "above" if passed > share * (passed + failed) else "below"


@lru_cache(maxsize=256)
def fewest_to_settle(share: float) -> int:
    """Return after how many trials a pass rate may be settled at the earliest: when all of them passed, or none."""
    trials = 1
    while not (settled(trials, 0, share) or settled(0, trials, share)):
        trials += 1
    return trials


def bounds(passed: int, failed: int, alpha: float = ALPHA) -> tuple[float, float]:
    """Return the pass rates that are not ruled out, the lowest and the highest."""
    middle = passed / (passed + failed) if passed + failed else 0.5
    return _edge(passed, failed, 0.0, middle, alpha), _edge(passed, failed, 1.0, middle, alpha)


def _edge(passed: int, failed: int, outside: float, inside: float, alpha: float) -> float:
    """Return the limit, between a share that may be ruled out and one that is not, of those that are."""
    if not settled(passed, failed, outside, alpha):
        return outside
    for _ in range(50):
        between = (outside + inside) / 2
        outside, inside = (between, inside) if settled(passed, failed, between, alpha) else (outside, between)
    return inside


def more_often(changed: int, trials: int, base_changed: int, base_trials: int) -> float:
    """Return the one-sided p-value of Fisher's exact test: at least `changed` of all changes are in these trials."""
    every, changes = trials + base_trials, changed + base_changed
    if not trials or not base_trials or not changes:
        return 1.0
    ways = sum(comb(changes, k) * comb(every - changes, trials - k) for k in range(changed, min(changes, trials) + 1))
    return min(1.0, ways / comb(every, trials))


def one_sided_sign(with_it: int, against: int) -> float:
    """Return the one-sided p-value of the exact sign test: at least `with_it` of all, if both sides were as likely."""
    trials = with_it + against
    return sum(comb(trials, k) for k in range(with_it, trials + 1)) / float(2**trials)


LEVEL = 0.95


class Bootstrap(Struct, frozen=True, kw_only=True):
    """The 95 % interval of a mean, with the field names of the original's bootstrap interval."""

    lower: float
    upper: float
    mean: float
    confidence_level: float = LEVEL
    num_bootstraps: int = 0
    """How many resamples were drawn: the interval is computed, so none."""

    @property
    def tells(self) -> bool:
        """Whether the interval has a width."""
        return self.lower < self.upper
