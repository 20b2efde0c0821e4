"""How often a drop would be found by the tests of `paired.py`, by simulation, and how many tasks or trials find it.

The simulated runs have the trials of the real ones. Each task's pass rate is drawn from what both runs together say
about it, shrunken towards the other tasks (a beta-binomial model, fitted by maximum likelihood): a task that passed all
of its six trials need not always pass. In the later run the mean falls by the drop in question, in two ways: tasks
break, one after the other, until it does, or every task falls by as much. The power is the smaller of the two.

The tests themselves are exact; here the same statistics are compared with their normal approximation, which agrees
with the exact test in the share of runs it finds within two points (the tests simulate that). The seed is fixed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Any, NamedTuple

from waza.stats.paired import Tally, change_values
from waza.stats.scores import mean

ALPHA = 0.05
ENOUGH = 0.8
"""The power from which on a difference that was not found is called not shown."""
FEWEST = 6
"""Fewer tasks than this can never show a difference over tasks: 2 x 0.5^5 is more than 5 %."""
RUNS = 400
"""Simulated pairs of runs."""
SEARCHED = 200
"""The same where a number of tasks or trials is searched for."""
MOST_TASKS = 5_000
MOST_SIMULATED = 1_000
"""Tasks that are simulated; of more tasks the result is scaled."""
MOST_DRAWS = 100_000
"""Simulated trials of one power, to keep it cheap for large suites, whose power varies little."""
_TRIALS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100)
_PRECISIONS = [0.25 * 1.35**step for step in range(32)]
"""How alike tasks may be: sums of the two parameters of the beta distribution, from 0.25 to 2,700."""


class Question(NamedTuple):
    """The test whose power is asked for."""

    these_tasks: bool = False
    """Trials are permuted within these tasks; otherwise the signs of tasks like them."""
    one_sided: bool = False
    """Whether only a drop counts."""
    allowed: float = 0.0
    """The drop that is not to be found."""


class _Kinds(NamedTuple):
    """The numbers of each task: passed in both runs together, trials in both, before and after."""

    passed: Any
    both: Any
    before: Any
    after: Any


class Simulation(NamedTuple):
    """Pairs of runs like the real ones, and the test whose power is asked for."""

    question: Question
    tallies: tuple[Tally, ...] = ()
    differences: tuple[float, ...] = ()
    """Where scores are compared: one difference per task."""

    def power(
        self, drop: float, *, tasks: int | None = None, trials: int | None = None, runs: int = RUNS
    ) -> float | None:
        """Return in what share of such runs a drop of the mean by `drop` would be found; None without tasks."""
        if self.differences:
            return _score_power(self.differences, drop, self.question, tasks, runs)
        return _power(self.tallies, drop, self.question, tasks, trials, runs) if self.tallies else None

    def smallest_drop(self) -> float | None:
        """Return the smallest drop that would be found in four of five such runs; None where none would."""
        size = 0.1
        for _ in range(6):
            found = self.power(size, runs=SEARCHED)
            if found is None or (size == 1.0 and found < ENOUGH):
                return None
            size = min(1.0, size * min(3.0, max(0.34, _stretch(found, self.question))))
        return size

    def tasks_needed(self, drop: float) -> int | None:
        """Return how many tasks like these, with as many trials, would show the drop; None where that is not known."""
        count = float(max(len(self.tallies), len(self.differences), FEWEST))
        for _ in range(6):
            found = self.power(drop, tasks=math.ceil(count), runs=SEARCHED)
            if found is None or count > MOST_TASKS:
                return None
            count = max(float(FEWEST), count * min(9.0, max(1 / 9, _stretch(found, self.question) ** 2)))
        return math.ceil(count)

    def trials_needed(self, drop: float) -> int | None:
        """Return how many trials of each of these tasks would show the drop; None where a hundred would not."""
        low, high = 0, len(_TRIALS) if self.tallies else 0
        while low < high:
            middle = (low + high) // 2
            found = self.power(drop, trials=_TRIALS[middle], runs=SEARCHED) or 0.0
            low, high = (low, middle) if found >= ENOUGH else (middle + 1, high)
        return _TRIALS[low] if self.tallies and low < len(_TRIALS) else None


def simulation(tallies: Sequence[Tally], question: Question) -> Simulation:
    """Return simulated runs with the trials of these tasks."""
    return Simulation(question, tuple(sorted(tallies)))


def score_simulation(differences: Sequence[float]) -> Simulation:
    """Return simulated comparisons of scores, from one difference per task."""
    return Simulation(Question(), (), tuple(sorted(differences)))


def _stretch(found: float, question: Question) -> float:
    """Return by what factor the difference should be more standard errors than it is, to be found in four of five."""
    critical = _critical(question)
    within = min(0.995, max(0.005, found))
    reach = critical + NormalDist().inv_cdf(within)
    return (critical + NormalDist().inv_cdf(ENOUGH)) / max(reach, 0.3)


def _critical(question: Question) -> float:
    return NormalDist().inv_cdf(1 - (ALPHA if question.one_sided else ALPHA / 2))


@lru_cache(maxsize=256)
def _power(
    tallies: tuple[Tally, ...], drop: float, question: Question, tasks: int | None, trials: int | None, runs: int
) -> float:
    import numpy as np  # only where two runs are compared

    kinds = _kinds(tallies, question, trials)
    counts = Counter(zip(kinds.passed.tolist(), kinds.both.tolist(), strict=True))
    alpha, beta = _prior(tuple(sorted(counts.items())))
    wanted = tasks or len(tallies)
    count = min(wanted, MOST_SIMULATED)
    shape = max(60, min(runs, MOST_DRAWS // count)), count
    found = []
    for way in (_broken, _evenly):
        random = np.random.default_rng(20)
        if count == len(tallies) and question.these_tasks:
            places = np.broadcast_to(np.arange(count), shape)
        else:
            places = random.integers(0, len(tallies), shape)
        rates = random.beta((alpha + kinds.passed)[places], (beta + kinds.both - kinds.passed)[places])
        before, after = kinds.before[places], kinds.after[places]
        passed = random.binomial(before, rates), random.binomial(after, way(rates, drop, random))
        z = (_within if question.these_tasks else _over)(passed, before, after, question)
        found.append(_found(z, wanted / count, question))
    return min(found)


@lru_cache(maxsize=256)
def _score_power(
    differences: tuple[float, ...], drop: float, question: Question, tasks: int | None, runs: int
) -> float:
    """Return the power over tasks, from differences drawn from those around their mean.

    As tasks with a change may have been missed by chance, three more tasks of n count as changed by a quarter (the
    rule of three).
    """
    import numpy as np  # only where two runs are compared

    wanted, known = tasks or len(differences), np.array(differences)
    count = min(wanted, MOST_SIMULATED)
    random = np.random.default_rng(20)
    shape = max(60, min(runs, MOST_DRAWS // count)), count
    changes = (known - known.mean())[random.integers(0, len(known), shape)]
    changes = changes + random.normal(0.0, 0.25 * math.sqrt(3 / len(known)), shape)
    ways = (changes - drop, changes - (random.random(shape) < drop))
    return min(_found(_z(some), wanted / count, question) for some in ways)


def _found(z: Any, times: float, question: Question) -> float:
    """Return the share of simulated runs that show the drop; with `times` as many tasks it is further from 0."""
    return float((z + (math.sqrt(times) - 1) * z.mean() <= -_critical(question)).mean())


def _z(changes: Any) -> Any:
    import numpy as np  # only where two runs are compared

    return changes.sum(axis=1) / np.maximum(np.sqrt((changes**2).sum(axis=1)), 1e-12)


def _kinds(tallies: Sequence[Tally], question: Question, trials: int | None) -> _Kinds:
    import numpy as np  # only where two runs are compared

    numbers = np.array(tallies)
    passed, both = numbers[:, 0] + numbers[:, 2], numbers[:, 1] + numbers[:, 3]
    if not question.one_sided and passed.sum() * 2 < both.sum():
        # A suite that seldom passes can hardly fall: what is simulated then is a rise, which is the same upside down.
        passed = both - passed
    before, after = (numbers[:, 1], numbers[:, 3]) if trials is None else (np.full(len(numbers), trials),) * 2
    return _Kinds(passed, both, before, after)


@lru_cache(maxsize=256)
def _prior(counts: tuple[tuple[tuple[int, int], int], ...]) -> tuple[float, float]:
    """Return the beta distribution of pass rates under which these counts (passed, trials) are the most likely."""
    passed, both = (sum(pair[place] * number for pair, number in counts) for place in (0, 1))
    share = (passed + 0.5) / (both + 1)

    def likelihood(precision: float) -> float:
        alpha, beta = share * precision, (1 - share) * precision
        fixed = math.lgamma(alpha) + math.lgamma(beta) - math.lgamma(precision)
        return math.fsum(
            number * (math.lgamma(alpha + x) + math.lgamma(beta + m - x) - math.lgamma(precision + m) - fixed)
            for (x, m), number in counts
        )

    best = max(_PRECISIONS, key=likelihood)
    return share * best, (1 - share) * best


def _broken(rates: Any, drop: float, random: Any) -> Any:
    """Return rates of which some, in random order, are 0, such that their mean falls by `drop`."""
    import numpy as np  # only where two runs are compared

    order = random.permuted(np.broadcast_to(np.arange(rates.shape[1]), rates.shape), axis=1)
    mixed = np.take_along_axis(rates, order, axis=1)
    lost = np.clip(drop * rates.shape[1] - (np.cumsum(mixed, axis=1) - mixed), 0.0, mixed)
    later = np.empty_like(rates)
    np.put_along_axis(later, order, mixed - lost, axis=1)
    return later


def _evenly(rates: Any, drop: float, _: Any) -> Any:
    """Return rates that are all smaller by as much, though not below 0, such that their mean falls by `drop`."""
    import numpy as np  # only where two runs are compared

    low, high = np.zeros((len(rates), 1)), np.ones((len(rates), 1))
    for _ in range(12):
        step = (low + high) / 2
        is_short = np.minimum(rates, step).mean(axis=1, keepdims=True) < drop
        low, high = np.where(is_short, step, low), np.where(is_short, high, step)
    return np.maximum(rates - high, 0.0)


def _over(passed: tuple[Any, Any], before: Any, after: Any, question: Question) -> Any:
    """Return how many standard errors the mean over tasks is above 0, if each task's sign were random."""
    import numpy as np  # only where two runs are compared

    changes = passed[1] / after - passed[0] / before + question.allowed
    spread = np.sqrt((changes**2).sum(axis=1))
    is_equal = before.min() == before.max() == after.min() == after.max()
    half_step = 1 / before.max() if is_equal and not question.allowed else 0.0
    return (changes.sum(axis=1) + half_step) / np.maximum(spread, 1e-12)


def _within(passed: tuple[Any, Any], before: Any, after: Any, question: Question) -> Any:
    """Return how many standard errors the sum of changes is above its mean, if trials were permuted within tasks."""
    import numpy as np  # only where two runs are compared

    most = int(max(before.max(), after.max()))
    is_curved = not question.allowed and most > 1
    sums, middles, variances = (np.zeros(len(before)) for _ in range(3))
    pairs = before.astype(np.int64) * (most + 1) + after
    for pair in np.unique(pairs):
        one, other = divmod(int(pair), most + 1)
        values, centre, variance = _table(one, other, is_curved)
        is_kind, both = pairs == pair, passed[0] + passed[1]
        both, later = np.where(is_kind, both, 0), np.where(is_kind, passed[1], 0)
        sums += np.where(is_kind, values[both, later], 0.0).sum(axis=1)
        middles += np.where(is_kind, centre[both], 0.0).sum(axis=1)
        variances += np.where(is_kind, variance[both], 0.0).sum(axis=1)
    half_step = (0.5 if is_curved else 1.0) / most  # between two values that the sum may have; measured where curved
    shift = question.allowed * before.shape[1]
    return (sums - middles + shift + half_step) / np.sqrt(np.maximum(variances, 1e-12))


@lru_cache(maxsize=512)
def _table(before: int, after: int, is_curved: bool) -> tuple[Any, Any, Any]:
    """Return for each number of passed trials: the change by those after, its mean, and its variance."""
    import numpy as np  # only where two runs are compared

    values = np.zeros((before + after + 1, after + 1))
    centre, variance = np.zeros(before + after + 1), np.zeros(before + after + 1)
    for both in range(before + after + 1):
        known = change_values(before, after, both, is_curved)
        for got, (value, _) in known.items():
            values[both, got] = value
        centre[both] = math.fsum(value * chance for value, chance in known.values())
        variance[both] = math.fsum((value - centre[both]) ** 2 * chance for value, chance in known.values())
    return values, centre, variance


def variance(numbers: Sequence[float]) -> float:
    """Return the variance of a sample; 0 of fewer than two."""
    middle = mean(numbers) or 0.0
    return math.fsum((number - middle) ** 2 for number in numbers) / max(1, len(numbers) - 1)
