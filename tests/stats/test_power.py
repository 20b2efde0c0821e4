"""How often a drop would be found: what is simulated agrees with the exact tests on runs with that drop."""

import numpy as np
import pytest

from waza.stats.paired import Tally, sign_flip
from waza.stats.power import FEWEST, Question, simulation, variance

GATE, COMPARE = Question(these_tasks=True, one_sided=True), Question()


def runs(random, rates, later, trials):
    before, after = random.binomial(trials, rates), random.binomial(trials, later)
    return [Tally(int(one), trials, int(other), trials) for one, other in zip(before, after, strict=True)]


def test_too_few_tasks_can_show_nothing():
    few = [Tally(1, 1, 1, 1)] * (FEWEST - 1)
    assert simulation(few, COMPARE).power(1.0) == 0.0
    assert simulation(few, COMPARE).smallest_drop() is None
    assert simulation([], COMPARE).power(0.1) is None
    assert sign_flip([1.0] * (FEWEST - 1)) > 0.05 >= sign_flip([1.0] * FEWEST)


def test_more_tasks_and_trials_are_needed_for_a_smaller_difference():
    random = np.random.default_rng(4)
    rates = random.beta(4, 1, 30)
    simulated = simulation(runs(random, rates, rates, 3), COMPARE)
    numbers = [simulated.tasks_needed(drop) for drop in (0.3, 0.2, 0.1)]
    assert numbers == sorted(numbers) and len(set(numbers)) == 3
    these = simulation(simulated.tallies, GATE)
    trials = [these.trials_needed(drop) for drop in (0.3, 0.2, 0.1)]
    assert trials == sorted(trials) and trials[0] < trials[2]
    assert these.power(these.smallest_drop()) == pytest.approx(0.8, abs=0.1)


def test_ten_points_take_as_many_tasks_as_simulations_of_whole_runs_say():
    random = np.random.default_rng(2)
    rates = random.beta(4, 1, 200)
    for trials, least, most in ((1, 170, 330), (3, 75, 135), (5, 55, 105)):
        assert least <= simulation(runs(random, rates, rates, trials), COMPARE).tasks_needed(0.1) <= most


def test_the_variance_is_numpys():
    numbers = [0.1, 0.4, 0.4, 0.9]
    assert variance(numbers) == pytest.approx(np.var(numbers, ddof=1))
    assert variance([0.3]) == 0.0
