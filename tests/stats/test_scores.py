"""Means, spreads and intervals: published numbers, and those of scipy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

from waza.stats.scores import Z95, wilson


def test_wilson_of_65_7_per_cent_of_350():
    interval = wilson(230, 350)
    assert (interval.lower, interval.upper) == pytest.approx((0.6060, 0.7049), abs=5e-5)


@given(st.integers(1, 500).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials))))
def test_wilson_is_scipys(counts):
    successes, trials = counts
    expected = binomtest(successes, trials).proportion_ci(0.95, method="wilson")
    found = wilson(successes, trials)
    assert (found.lower, found.upper) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_the_95_percent_point_of_the_normal_distribution_is_scipys():
    assert pytest.approx(norm.ppf(0.975), abs=1e-12) == Z95
