"""Looking at any time: the p-value never grows with more pairs, and a difference is shown in the end."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waza.stats.anytime import always_valid

DIFFERENCES = st.lists(st.sampled_from([-1.0, -0.3, 0.0, 0.5, 1.0]), min_size=1, max_size=60)


@given(DIFFERENCES, DIFFERENCES)
@settings(max_examples=60, deadline=None)
def test_more_pairs_never_take_evidence_back_and_the_interval_contains_the_mean(first, more):
    early, late = always_valid(first), always_valid(first + more)
    assert 0.0 <= late.p_value <= early.p_value <= 1.0
    assert -1.0 <= late.lower <= late.difference <= late.upper <= 1.0
    assert (late.pairs, late.difference) == (len(first + more), pytest.approx(np.mean(first + more)))
    assert always_valid([-one for one in first]).p_value == pytest.approx(early.p_value)


def test_a_difference_is_shown_in_the_end_and_nothing_is_shown_by_nothing():
    assert always_valid([]) is None
    assert always_valid([0.0] * 500).p_value == 1.0
    assert always_valid([-1.0] * 12).p_value < 0.05
    random = np.random.default_rng(3)
    worse = (random.random(800) < 0.7).astype(float) - (random.random(800) < 0.85)
    found = always_valid(worse.tolist())
    assert found.p_value < 0.01 and found.upper < 0


def test_the_interval_covers_the_truth_at_all_looks_together():
    random = np.random.default_rng(5)
    missed = 0
    for _ in range(60):
        some = (random.random(150) < 0.7).astype(float) - (random.random(150) < 0.9)
        intervals = [always_valid(some[:n].tolist()) for n in range(5, 151, 15)]
        missed += any(not one.lower <= -0.2 <= one.upper for one in intervals)
    assert missed / 60 <= 0.05
