"""How many tasks and trials a difference needs: simulated comparisons find it about as often as promised."""

import numpy as np
import pytest

from waza.stats.difference import FEWEST, Tally, sign_flip, smallest_difference, tasks_needed, trials_needed, variance


def test_too_few_tasks_can_show_nothing():
    assert smallest_difference([0.5] * (FEWEST - 1), 0.25) is None
    assert sign_flip([1.0] * (FEWEST - 1)) > 0.05 >= sign_flip([1.0] * FEWEST)


@pytest.mark.parametrize("tasks", [20, 60])
def test_the_smallest_difference_is_found_in_about_four_of_five_comparisons(tasks):
    random = np.random.default_rng(3)
    spread = random.normal(0, 0.2, tasks)
    smallest = smallest_difference(list(spread - spread.mean()), 0.01)
    found = sum(sign_flip(list(random.normal(smallest, 0.2, tasks))) < 0.05 for _ in range(200))
    assert 0.65 <= found / 200 <= 0.95


def test_more_tasks_are_needed_for_a_smaller_difference():
    differences = [0.0, 0.25, -0.25, 0.5, 0.0, -0.25, 0.25, 0.0]
    numbers = [tasks_needed(differences, 0.25, wanted) for wanted in (0.4, 0.2, 0.1, 0.05)]
    assert numbers == sorted(numbers) and len(set(numbers)) == 4
    assert tasks_needed(differences[:1], 0.25, 0.1) is None


def test_no_number_of_trials_helps_where_tasks_differ_too_much():
    steady = [Tally(0, 100, 100, 100), Tally(100, 100, 0, 100)] * 4
    assert trials_needed(steady, 0.05) is None
    noisy = [Tally(5, 10, 5, 10)] * 30
    assert trials_needed(noisy, 0.1) > trials_needed(noisy, 0.3)


def test_the_variance_is_numpys():
    numbers = [0.1, 0.4, 0.4, 0.9]
    assert variance(numbers) == pytest.approx(np.var(numbers, ddof=1))
    assert variance([0.3]) == 0.0
