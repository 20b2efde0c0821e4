"""Activation, benefit and lift of a skill, from counts, in closed form.

Lift is how much more often tasks pass with the skill. Activation is how often the agent uses the skill. Benefit is the
lift of those trials in which it does: a trial in which the skill is not used counts as one without it, so
lift = activation x benefit, and benefit = lift / activation (Wald's estimator; Angrist, Imbens and Rubin 1996). That
is not biased by which trials trigger; comparing those alone would be, where the agent uses the skill when the task is
hard.

Every task counts the same. Intervals are about tasks like these: the spread between tasks counts, with Student's t;
with `these_tasks`, or a single task, only the spread of trials does. Activation: Agresti and Coull's interval at the
effective number of trials (Korn and Graubard 1998). Benefit: Fieller's, which is the whole range (-1 to 1) where the
skill hardly ever triggers. No variance is smaller than pairs of trials support (Bonett and Price 2012): twenty passes
of twenty do not prove certainty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from waza.stats.intervals import student_t
from waza.stats.scores import LEVEL, Z95, mean


class Estimate(Struct, frozen=True, kw_only=True):
    """A number with its 95 % interval."""

    value: float
    lower: float
    upper: float
    confidence_level: float = LEVEL


class TaskArms(NamedTuple):
    """One task with and without the skill, in decided trials."""

    passed_with: int
    trials_with: int
    passed_without: int
    trials_without: int
    gained: int
    """Pairs of trials with the same number that pass only with the skill."""
    lost: int
    """Pairs that pass only without it."""
    pairs: int
    triggered: int = 0
    """Trials with the skill that used it."""
    passed_triggered: int = 0
    """Those of them that passed."""
    gained_triggered: int = 0
    """Of the pairs that pass only with the skill: those that used it."""
    lost_triggered: int = 0
    """Of the pairs that pass only without it: those that used it."""

    @property
    def lift(self) -> float:
        """How much more often it passes with the skill."""
        return self.passed_with / self.trials_with - self.passed_without / self.trials_without

    @property
    def activation(self) -> float:
        """How often the skill is used."""
        return self.triggered / self.trials_with


class Spread(NamedTuple):
    """The variances of mean lift and mean activation, their covariance, and Student's t for them."""

    lift: float
    activation: float
    both: float
    t: float


def lift_of(tasks: Sequence[TaskArms], *, these_tasks: bool = False) -> Estimate | None:
    """Return how much more often tasks pass with the skill; None without tasks."""
    if not tasks:
        return None
    spread = _spread(tasks, these_tasks)
    half = spread.t * math.sqrt(spread.lift)
    return _estimate(_mean([task.lift for task in tasks]), half)


def activation_of(tasks: Sequence[TaskArms], *, these_tasks: bool = False) -> Estimate | None:
    """Return how often the skill is used where it is available; None without tasks."""
    if not tasks:
        return None
    share = _mean([task.activation for task in tasks])
    trials = float(sum(task.trials_with for task in tasks))
    if not these_tasks and len(tasks) > 1:
        between = _between([task.activation for task in tasks], [task.activation for task in tasks])
        trials = min(trials, share * (1 - share) / between) if between else trials
        trials *= (Z95 / student_t(len(tasks) - 1)) ** 2
    low, high = _agresti_coull(share, trials)
    return Estimate(value=share, lower=low, upper=high)


def benefit_of(tasks: Sequence[TaskArms], *, these_tasks: bool = False) -> Estimate | None:
    """Return how much more often tasks pass in the trials that use the skill; None where none of them did."""
    if not any(task.triggered for task in tasks):
        return None
    lift, share = _mean([task.lift for task in tasks]), _mean([task.activation for task in tasks])
    value = min(1.0, max(-1.0, lift / share))
    spread = _spread(tasks, these_tasks)
    square = spread.t**2
    a = share**2 - square * spread.activation
    h = lift * share - square * spread.both
    root = h**2 - a * (lift**2 - square * (spread.lift + _too_little(tasks, spread, value, share)))
    if a <= 0 or root < 0:
        return Estimate(value=value, lower=-1.0, upper=1.0)
    low, high = (h - math.sqrt(root)) / a, (h + math.sqrt(root)) / a
    return Estimate(value=value, lower=min(value, max(-1.0, low)), upper=max(value, min(1.0, high)))


def pair_interval(gained: int, lost: int, pairs: int) -> Estimate | None:
    """Return the difference of two paired shares with Bonett and Price's interval; None without pairs."""
    if not pairs:
        return None
    middle = (gained - lost) / (pairs + 2)
    half = Z95 * math.sqrt(_pair_variance(gained, lost, pairs))
    value = (gained - lost) / pairs
    return Estimate(value=value, lower=max(-1.0, min(middle - half, value)), upper=min(1.0, max(middle + half, value)))


def _spread(tasks: Sequence[TaskArms], these_tasks: bool) -> Spread:
    count, trials = len(tasks), sum(task.trials_with for task in tasks)
    lifts, shares = [task.lift for task in tasks], [task.activation for task in tasks]
    if these_tasks or count == 1:
        lift, activation, both = (math.fsum(parts) / count**2 for parts in zip(*map(_within, tasks), strict=True))
        t = student_t(max(1, trials - count))
    else:
        lift, activation, both = _between(lifts, lifts), _between(shares, shares), _between(lifts, shares)
        t = student_t(count - 1)
    pairs = sum(task.pairs for task in tasks)
    least = _pair_variance(sum(task.gained for task in tasks), sum(task.lost for task in tasks), pairs)
    smoothed = (sum(task.triggered for task in tasks) + 1) / (trials + 2)
    return Spread(max(lift, least), max(activation, smoothed * (1 - smoothed) / (trials + 2)), both, t)


def _too_little(tasks: Sequence[TaskArms], spread: Spread, benefit: float, share: float) -> float:
    """Return how much the variance around the benefit is below what the pairs that used the skill allow for."""
    counts = (
        sum(getattr(task, name) for task in tasks) for name in ("gained_triggered", "lost_triggered", "triggered")
    )
    around = spread.lift - 2 * benefit * spread.both + benefit**2 * spread.activation
    return max(0.0, share**2 * _pair_variance(*counts) - around)


def _between(ones: Sequence[float], others: Sequence[float]) -> float:
    """Return the covariance of two means over tasks, from the spread between tasks."""
    one, other, count = _mean(ones), _mean(others), len(ones)
    return math.fsum((a - one) * (b - other) for a, b in zip(ones, others, strict=True)) / (count * (count - 1))


def _within(task: TaskArms) -> tuple[float, float, float]:
    """Return the variances of a task's lift and activation and their covariance, from the spread of its trials."""
    passing, silent = task.passed_with / task.trials_with, task.passed_without / task.trials_without
    share, trials = task.activation, task.trials_with
    lift = passing * (1 - passing) / trials + silent * (1 - silent) / task.trials_without
    return lift, share * (1 - share) / trials, (task.passed_triggered / trials - passing * share) / trials


def _pair_variance(gained: int, lost: int, pairs: int) -> float:
    total = pairs + 2
    more, less = (gained + 1) / total, (lost + 1) / total
    return (more + less - (more - less) ** 2) / total


def _agresti_coull(share: float, trials: float) -> tuple[float, float]:
    """Return Agresti and Coull's interval, which covers at least 95 % for few trials, where Wilson's may not."""
    total = trials + Z95**2
    centre = (share * trials + Z95**2 / 2) / total
    half = Z95 * math.sqrt(centre * (1 - centre) / total)
    return max(0.0, centre - half), min(1.0, centre + half)


def _estimate(value: float, half: float) -> Estimate:
    return Estimate(value=value, lower=max(-1.0, value - half), upper=min(1.0, value + half))


def _mean(numbers: Sequence[float]) -> float:
    return mean(numbers) or 0.0
