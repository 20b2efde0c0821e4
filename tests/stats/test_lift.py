"""Activation, benefit and lift: what is true lies in their intervals as often as they promise."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthetic_agents import DESIGNS, synthetic
from waza.stats.lift import TaskArms, activation_of, benefit_of, lift_of, pair_interval

SEEDS = range(1000)
PROMISED = 0.93


@pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS)
def test_the_known_trigger_rate_and_benefit_lie_in_their_intervals(design):
    rate, benefit = design[2], design[3]
    covered = np.zeros(3)
    for seed in SEEDS:
        tasks = synthetic(seed, *design)
        truths = ((activation_of(tasks), rate), (benefit_of(tasks), benefit), (lift_of(tasks), rate * benefit))
        covered += [found is not None and found.lower - 1e-9 <= truth <= found.upper + 1e-9 for found, truth in truths]
    assert (covered / len(SEEDS) >= PROMISED).all(), dict(zip(("activation", "benefit", "lift"), covered, strict=True))


@pytest.mark.parametrize("design", [(4, 10, 0.6, 0.4, 0.3, 0), (20, 3, 0.9, 0.6, 0.1, 0)])
def test_about_these_tasks_alone_the_intervals_hold_too(design):
    covered = np.zeros(2)
    for seed in SEEDS:
        tasks = synthetic(seed, *design)
        found = activation_of(tasks, these_tasks=True), benefit_of(tasks, these_tasks=True)
        covered += [one.lower <= truth <= one.upper for one, truth in zip(found, design[2:4], strict=True)]
    assert (covered / len(SEEDS) >= PROMISED).all(), covered


def test_the_simulation_can_tell_a_wrong_estimate_from_a_right_one():
    """The naive benefit (triggered trials against untriggered ones of the same run) fails where difficulty triggers."""
    misses = 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        hard = random.random((12, 20)) < 0.5
        used = hard  # the agent reaches for the skill when the trial is hard
        passes = random.random((12, 20)) < np.where(hard, 0.2 + 0.4, 0.8)
        control = random.random((12, 20)) < np.where(random.random((12, 20)) < 0.5, 0.2, 0.8)
        naive = passes[used].mean() - passes[~used].mean()
        tasks = [
            TaskArms(int(p.sum()), 20, int(c.sum()), 20, int((p & ~c).sum()), int((c & ~p).sum()), 20, int(u.sum()))
            for p, c, u in zip(passes, control, used, strict=True)
        ]
        found = benefit_of(tasks)
        misses += not found.lower <= 0.4 <= found.upper
        assert naive < 0.2
    assert misses <= 12


counts = st.builds(
    lambda n, a, b, c: TaskArms(
        min(a, n), n, min(b, n), n, max(min(a, n) - min(b, n), 0), max(min(b, n) - min(a, n), 0), n, min(c, n)
    ),
    st.integers(1, 12),
    st.integers(0, 12),
    st.integers(0, 12),
    st.integers(0, 12),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(counts, min_size=1, max_size=8), st.booleans())
def test_an_estimate_lies_in_its_interval_and_the_interval_in_what_is_possible(tasks, these_tasks):
    for of, low, high in ((lift_of, -1, 1), (activation_of, 0, 1), (benefit_of, -1, 1)):
        found = of(tasks, these_tasks=these_tasks)
        if found is not None:
            assert low <= found.lower <= found.value + 1e-9
            assert found.value - 1e-9 <= found.upper <= high


@settings(max_examples=200, deadline=None)
@given(st.lists(counts, min_size=1, max_size=8))
def test_lift_is_activation_times_benefit(tasks):
    lift, activation, benefit = lift_of(tasks), activation_of(tasks), benefit_of(tasks)
    if benefit is not None and abs(benefit.value) < 1:
        assert math.isclose(lift.value, activation.value * benefit.value, abs_tol=1e-9)


def test_a_skill_that_hardly_ever_triggers_says_nothing_about_its_benefit():
    tasks = [TaskArms(3, 5, 2, 5, 1, 0, 5, 1 if place == 0 else 0, 1 if place == 0 else 0) for place in range(8)]
    assert (benefit_of(tasks).lower, benefit_of(tasks).upper) == (-1, 1)
    assert benefit_of([TaskArms(3, 5, 2, 5, 1, 0, 5)] * 8) is None


def test_twenty_of_twenty_is_no_certainty():
    tasks = [TaskArms(1, 1, 0, 1, 1, 0, 1, 1, 1, 1)] * 20
    assert activation_of(tasks).lower < 0.9
    assert lift_of(tasks).lower < 0.95
    assert benefit_of(tasks).lower < 0.95
    some_silent = [*tasks, *[TaskArms(0, 1, 0, 1, 0, 0, 1)] * 10]
    assert benefit_of(some_silent).lower < 0.95


def test_a_tasks_own_interval_is_that_of_bonett_and_price():
    found = pair_interval(8, 1, 43)
    middle, more, less = 7 / 45, 9 / 45, 2 / 45
    half = 1.959963984540054 * math.sqrt((more + less - (more - less) ** 2) / 45)
    assert (found.lower, found.upper) == pytest.approx((middle - half, middle + half))
    assert pair_interval(0, 0, 0) is None
