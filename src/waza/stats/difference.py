"""The difference between two runs of the same tasks: the verdict, exact tests, and what the tasks and trials can show.

By task (`sign_flip`): if nothing changed, each task's difference could have had either sign. With one trial
a task that is McNemar's exact test; with several it weighs each task by its change. It is valid for any number of
trials a task got, and also when both runs stopped trials early by the same rule.

Within these tasks (`shuffled_trials`): if nothing changed, each trial could have come from either run. It
does not generalise to other tasks. For one task it is Fisher's exact test, for one trial a task McNemar's.

The smallest difference that "would be found" is the one found in four of five such comparisons. The spread of the
differences is the one observed; because tasks with a change may have been missed by chance, three more tasks of n
count as changed by one trial (the rule of three).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from waza.stats.scores import Z95, Bootstrap, bootstrap_mean, mean

Word = Literal["better", "worse", "no difference shown", "too little evidence"]
MARGIN = 0.1
"""A difference smaller than this need not be shown: ten points."""


UNIT = 0.25
"""The smallest step of a task's score, where it is not known."""


class DifferenceVerdict(Struct, frozen=True, kw_only=True):
    """The verdict on the difference between two runs, with its numbers."""

    word: Word
    difference: float | None
    """The mean over tasks of after minus before."""
    interval: Bootstrap | None
    p_value: float
    tasks: int
    """Tasks the verdict rests on."""
    smallest: float | None
    """The smallest difference these tasks and trials would show in four of five cases; None if they can show none."""
    tasks_needed: int | None
    """How many tasks would show a difference of `margin`; None where that cannot be estimated."""
    trials_needed: int | None
    """How many trials of each of these tasks would; None where no number would."""
    margin: float = MARGIN


def verdict_on_passing(
    tallies: Sequence[Tally], *, margin: float = MARGIN, these_tasks: bool = False
) -> DifferenceVerdict:
    """Return the verdict on pass rates; with `these_tasks` about these tasks only, not about tasks like them."""
    differences = [tally.difference for tally in tallies]
    if these_tasks and tallies:
        trials = trials_within(tallies, margin)
        return _verdict(differences, shuffled_trials(tallies), smallest_within(tallies), None, trials, margin)
    unit = 1 / (mean([min(tally.trials_before, tally.trials_after) for tally in tallies]) or 1)
    smallest, tasks = smallest_difference(differences, unit), tasks_needed(differences, unit, margin)
    return _verdict(differences, sign_flip(differences), smallest, tasks, trials_needed(tallies, margin), margin)


def verdict_on_scores(differences: Sequence[float], *, margin: float = MARGIN) -> DifferenceVerdict:
    """Return the verdict on differences of scores, one per task."""
    smallest, tasks = smallest_difference(differences, UNIT), tasks_needed(differences, UNIT, margin)
    return _verdict(differences, sign_flip(differences), smallest, tasks, None, margin)


def with_p_value(verdict: DifferenceVerdict, p_value: float) -> DifferenceVerdict:
    """Return the verdict if its p-value were this one."""
    word = _word(verdict.difference, p_value, verdict.smallest, verdict.margin)
    return replace(verdict, p_value=p_value, word=word)


def _verdict(
    differences: Sequence[float],
    p_value: float,
    smallest: float | None,
    tasks: int | None,
    trials: int | None,
    margin: float,
) -> DifferenceVerdict:
    difference = mean(differences)
    return DifferenceVerdict(
        word=_word(difference, p_value, smallest, margin),
        difference=difference,
        interval=bootstrap_mean(differences),
        p_value=p_value,
        tasks=len(differences),
        smallest=smallest,
        tasks_needed=tasks,
        trials_needed=trials,
        margin=margin,
    )


def _word(difference: float | None, p_value: float, smallest: float | None, margin: float) -> Word:
    if difference and p_value < ALPHA:
        return "better" if difference > 0 else "worse"
    return "no difference shown" if smallest is not None and smallest <= margin else "too little evidence"


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


ALPHA = 0.05
FEWEST = 6
"""Fewer tasks than this can never show anything: 2 x 0.5^5 is more than 5 %."""
_REACH = Z95 + 0.8416212335729143
"""How many standard errors a difference needs to be found in four of five cases at 5 %."""


def smallest_difference(differences: Sequence[float], unit: float) -> float | None:
    """Return the smallest mean difference that this number of tasks would show; None where they could show none.

    `unit` is the smallest change of a task: one trial.
    """
    count = len(differences)
    if count < FEWEST:
        return None
    return max(_REACH * math.sqrt(spread(differences, unit) / count), FEWEST * unit / count)


def tasks_needed(differences: Sequence[float], unit: float, wanted: float) -> int | None:
    """Return how many tasks of this kind would show a mean difference of `wanted`."""
    if len(differences) < 2:
        return None
    # n tasks must satisfy n * step >= observed + 3 * unit**2 / n, the spread that n tasks would have.
    step, observed = (wanted / _REACH) ** 2, variance(differences)
    enough = (observed + math.sqrt(observed**2 + 12 * unit**2 * step)) / (2 * step)
    return max(FEWEST, math.ceil(FEWEST * unit / wanted), math.ceil(enough))


def trials_needed(tallies: Sequence[Tally], wanted: float) -> int | None:
    """Return how many trials of each of these tasks would show it; None where no number would, or that is unknown."""
    differences = [tally.difference for tally in tallies]
    trials = mean([min(tally.trials_before, tally.trials_after) for tally in tallies])
    if len(tallies) < FEWEST or trials is None:
        return None
    whole = spread(differences, 1 / trials)
    within = min(whole, _within(tallies)) if trials > 1 else whole
    allowed = len(tallies) * (wanted / _REACH) ** 2 - (whole - within)
    fewest = math.ceil(FEWEST / (len(tallies) * wanted))
    return max(fewest, math.ceil(within * trials / allowed)) if allowed > 0 else None


def smallest_within(tallies: Sequence[Tally]) -> float:
    """Return the smallest mean difference these trials would show about these very tasks."""
    variances = [_pooled(tally) * (1 / tally.trials_before + 1 / tally.trials_after) for tally in tallies]
    return _REACH * math.sqrt(math.fsum(variances)) / len(tallies)


def trials_within(tallies: Sequence[Tally], wanted: float) -> int:
    """Return how many trials of each task would show `wanted` about these very tasks."""
    trials = mean([min(tally.trials_before, tally.trials_after) for tally in tallies]) or 1
    return math.ceil(trials * (smallest_within(tallies) / wanted) ** 2)


def _pooled(tally: Tally) -> float:
    """Return the variance of one trial of a task, both runs together; never 0, as another trial might have failed."""
    share = (tally.passed_before + tally.passed_after + 0.5) / (tally.trials_before + tally.trials_after + 1)
    return share * (1 - share)


def spread(differences: Sequence[float], unit: float) -> float:
    """Return the variance of the differences over tasks, never quite 0."""
    return variance(differences) + 3 * unit**2 / max(1, len(differences))


def variance(numbers: Sequence[float]) -> float:
    """Return the variance of a sample; 0 of fewer than two."""
    middle = mean(numbers) or 0.0
    return math.fsum((number - middle) ** 2 for number in numbers) / max(1, len(numbers) - 1)


def _within(tallies: Sequence[Tally]) -> float:
    """Return the part of that variance within tasks, as the mean over tasks."""
    before = [_noise(tally.passed_before, tally.trials_before) for tally in tallies]
    after = [_noise(tally.passed_after, tally.trials_after) for tally in tallies]
    return (mean(before) or 0.0) + (mean(after) or 0.0)


def _noise(passed: int, trials: int) -> float:
    """Return the variance of a pass rate over that many trials."""
    return (passed / trials) * (1 - passed / trials) / (trials - 1) if trials > 1 else 0.25
