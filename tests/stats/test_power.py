"""How often a drop would be found: what is simulated agrees with the exact tests on runs with that drop."""

import numpy as np
import pytest

from waza.stats.paired import Tally, fell_within_tasks, sign_flip
from waza.stats.power import FEWEST, Question, simulation, variance

GATE, COMPARE = Question(these_tasks=True, one_sided=True), Question()


def runs(random, rates, later, trials):
    before, after = random.binomial(trials, rates), random.binomial(trials, later)
    return [Tally(int(one), trials, int(other), trials) for one, other in zip(before, after, strict=True)]


def broken(random, rates, drop):
    """Rates of which some are 0, in random order, so that the mean falls by `drop`."""
    later, left = rates.copy(), drop * len(rates)
    for place in random.permutation(len(rates)):
        later[place] -= min(rates[place], left)
        left = max(0.0, left - rates[place])
    return later


def test_too_few_tasks_can_show_nothing():
    few = [Tally(1, 1, 1, 1)] * (FEWEST - 1)
    assert simulation(few, COMPARE).power(1.0) == 0.0
    assert simulation(few, COMPARE).smallest_drop() is None
    assert simulation([], COMPARE).power(0.1) is None
    assert sign_flip([1.0] * (FEWEST - 1)) > 0.05 >= sign_flip([1.0] * FEWEST)


@pytest.mark.parametrize("question", [GATE, COMPARE], ids=["these tasks", "tasks like these"])
@pytest.mark.parametrize(("tasks", "trials"), [(20, 5), (60, 1)])
def test_the_printed_power_is_the_power(question, tasks, trials):
    """In the mean over suites, printed from runs without a drop, against how often the exact test finds one."""
    printed, found = [], []
    for seed in range(60):
        random = np.random.default_rng(seed)
        rates = random.beta(4, 1, tasks)
        printed.append(simulation(runs(random, rates, rates, trials), question).power(0.2, runs=100))
        changed = runs(random, rates, broken(random, rates, 0.2), trials)
        p_value = fell_within_tasks(changed) if question is GATE else sign_flip([t.difference for t in changed])
        found.append(p_value < 0.05)
    assert np.mean(printed) == pytest.approx(np.mean(found), abs=0.17)


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
