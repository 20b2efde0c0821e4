"""The smallest difference that tasks and trials can show, and how many would be needed for a given one.

"Would find" means: in four of five such comparisons. The spread of the differences is the one observed; because tasks
with a change may have been missed by chance, three more tasks of n count as changed by one trial (the rule of three).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from waza.stats.paired import Tally
from waza.stats.scores import Z95, mean

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
