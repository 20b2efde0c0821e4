"""Means, spreads and intervals: pure numbers, exact sums, None where there is nothing to count, never NaN.

What nobody can tell is never averaged in. It is counted as undecided and spans `low` (all of it 0) to `high` (all of
it 1), so that low ≤ score ≤ high always holds.
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

_Z95 = 1.959963984540054
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
    """The plain mean."""
    weighted: float | None = None
    """The mean with weights: the composite."""
    low: float | None = None
    """The composite if all that is undecided were 0."""
    high: float | None = None
    """The composite if all that is undecided were 1."""
    undecided: int = 0


UNDECIDED = Score(low=0.0, high=1.0, undecided=1)
"""A trial that could not run, or was not run: it may have been anything."""


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
    """Return the Wilson 95 % interval of a share, or None without trials; of each trial a part may be a success."""
    if trials < 1:
        return None
    share, square = successes / trials, _Z95**2
    centre = (share + square / (2 * trials)) / (1 + square / trials)
    spread = math.sqrt(share * (1 - share) / trials + square / (4 * trials**2))
    half = _Z95 / (1 + square / trials) * spread
    return Interval(lower=max(0.0, centre - half), upper=min(1.0, centre + half), mean=share)


@lru_cache(maxsize=1024, typed=True)
def _shared(value: float | None, weighted: float, low: float, high: float, undecided: int = 0) -> Score:
    """Return the same record for the same numbers: thousands of trials have few that differ."""
    return Score(value=value, weighted=weighted, low=low, high=high, undecided=undecided)


def score_of_grades(grades: Sequence[Scored]) -> Score:
    """Return the score over the grades of a trial; what is no number between 0 and 1 counts as undecided."""
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
    plain = mean([grade.score for grade in decided])
    if not weight:
        if unknown:
            return Score(value=plain, low=0.0, high=1.0, undecided=len(undecided))
        # Specs refuse this, results of other programs may hold it: without any weight all count alike.
        points, weight, unknown = math.fsum(grade.score for grade in decided), len(decided), len(undecided)
    weighted = _clip(points / weight, 0.0, 1.0)
    return _shared(
        plain,
        weighted,
        min(points / (weight + unknown), weighted),
        _clip((points + unknown) / (weight + unknown), weighted, 1.0),
        len(undecided),
    )


def mean_score(scores: Iterable[Score]) -> Score:
    """Return the mean of scores: of trials for a task, of tasks for a run."""
    values, weights, lows, highs = array("d"), array("d"), array("d"), array("d")  # there may be a million
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
    """Return the grade's weight within what can be summed; one that is not a number from 0 on counts as 1."""
    if grade.weight == 0.0:
        return 0.0
    return _clip(grade.weight, 1e-100, 1e100) if 0.0 < grade.weight < math.inf else 1.0


def _clip(number: float, low: float, high: float) -> float:
    """Return the number within its bounds: rounding may push a mean past them."""
    return min(max(number, low), high)


# Intervals one may look at after every trial: right with 95 % confidence at all looks together.
#
# A bettor who spreads a unit of money over all pass rates evenly and bets against a share p holds, after so many
# passed
# and failed trials, the beta-binomial mixture over what p gives them. If p is true, the chance of ever holding 20 is
# at
# most 1 in 20 (Ville 1939). So whatever makes the bettor that rich may be ruled out, whenever one looks.

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


# Whether verdicts stay the same when nothing that matters changes: shares with intervals, and exact tests of them.


class Invariance(Struct, frozen=True, kw_only=True):
    """How often a verdict stayed; what nobody could tell is counted apart."""

    kept: int
    decided: int
    undecided: int = 0
    interval: Interval | None = None
    """The Wilson 95 % interval of the share that stayed; None where nothing was decided."""


def invariance(stayed: Iterable[bool | None]) -> Invariance:
    """Return how often a verdict stayed; None stands for one that nobody can tell."""
    seen = list(stayed)
    kept, undecided = seen.count(True), seen.count(None)
    decided = len(seen) - undecided
    return Invariance(kept=kept, decided=decided, undecided=undecided, interval=wilson(kept, decided))


def more_often(changed: int, trials: int, base_changed: int, base_trials: int) -> float:
    """Return how likely at least so many of all changes fall on these trials by chance: Fisher's exact test."""
    every, changes = trials + base_trials, changed + base_changed
    if not trials or not base_trials or not changes:
        return 1.0
    ways = sum(comb(changes, k) * comb(every - changes, trials - k) for k in range(changed, min(changes, trials) + 1))
    return min(1.0, ways / comb(every, trials))


def one_sided_sign(with_it: int, against: int) -> float:
    """Return how likely at least `with_it` of all would be if each side were as likely: the exact sign test."""
    trials = with_it + against
    return sum(comb(trials, k) for k in range(with_it, trials + 1)) / float(2**trials)
