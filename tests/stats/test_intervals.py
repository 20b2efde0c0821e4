"""Intervals of few numbers: exact where a distribution is known, and right often enough in simulations."""

import json
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betainc, stdtrit
from scipy.stats import binomtest, sem, ttest_1samp

from campaign import count, size
from results_made import a_grade, a_result, a_run
from waza.reports.html import HtmlReport
from waza.reports.json import JsonReport
from waza.runs.tasks import summarize_tasks
from waza.stats.intervals import (
    MANY,
    _approximate_score,
    _exact_score,
    beta_below,
    bounded_mean,
    clustered_share,
    exact_share,
    half_wins,
    mean_difference,
    student_t,
)

SCORES = st.lists(st.floats(0, 1), min_size=2, max_size=6)


def run_of(scores, **more):
    """A run with one task whose trials have these scores; None is an undecided trial."""
    results = [
        a_result(
            trial=number,
            status="error" if score is None else "failed",
            grades=[] if score is None else [a_grade(score)],
        )
        for number, score in enumerate(scores, 1)
    ]
    return a_run(results, tasks=["t"], config={"trials_per_task": len(scores)}, **more)


def interval_of(scores):
    (task,) = summarize_tasks(run_of(scores))
    return task.score_ci


def stats_of(run):
    return json.loads(JsonReport().text(run))["tasks"][0]["stats"]


@given(SCORES)
def test_the_interval_contains_the_mean_whatever_the_order(scores):
    found = interval_of(scores)
    assert 0.0 <= found.lower <= found.mean <= found.upper <= 1.0
    assert found.tells
    assert found == interval_of(scores[::-1])


def test_a_single_score_has_no_interval():
    assert interval_of([0.5]) is None
    assert interval_of([0.5, None]) is None
    assert "bootstrap_ci" not in stats_of(run_of([0.5]))


def test_undecided_trials_are_left_out():
    assert interval_of([0.2, None, 0.9]) == interval_of([0.2, 0.9])


def test_the_results_file_and_the_page_show_it():
    stats, found = stats_of(run_of([0.2, 0.9])), bounded_mean([0.2, 0.9])
    assert stats["bootstrap_ci"] == {
        "lower": found.lower,
        "upper": found.upper,
        "mean": 0.55,
        "confidence_level": 0.95,
        "num_bootstraps": 0,
    }
    assert (stats["ci95_lo"], stats["ci95_hi"]) == (found.lower, found.upper)
    page = b"".join(HtmlReport().render(run_of([0.2, 0.9]))).decode()
    assert f'0.55 <span class="soft">({found.lower:.2f}–{found.upper:.2f})</span>' in page


@given(st.integers(1, 400), st.data())
def test_the_interval_of_a_share_is_scipys(trials, data):
    passed = data.draw(st.integers(0, trials))
    known = binomtest(passed, trials).proportion_ci(0.95, "exact")
    found = exact_share(passed, trials)
    assert (found.lower, found.upper) == pytest.approx((known.low, known.high), abs=1e-9)


def test_the_interval_of_a_share_is_scipys_for_very_many_trials():
    known = binomtest(50_123, 100_000).proportion_ci(0.95, "exact")
    found = exact_share(50_123, 100_000)
    assert (found.lower, found.upper) == pytest.approx((known.low, known.high), abs=1e-9)


@given(st.floats(0.5, 500), st.floats(0.5, 500), st.floats(0, 1))
def test_the_beta_distribution_is_scipys(a, b, share):
    assert beta_below(a, b, share) == pytest.approx(betainc(a, b, share), abs=1e-9)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 8, 20, 99, 5_000])
def test_students_t_is_scipys(freedom):
    assert student_t(freedom) == pytest.approx(float(stdtrit(freedom, 0.975)), rel=1e-9)


@given(st.lists(st.integers(-1_000, 1_000), min_size=5, max_size=30))
def test_the_interval_of_unbounded_differences_is_scipys_of_students_t(values):
    found = mean_difference(values)
    if len(set(values)) > 1:
        known = ttest_1samp(values, 0).confidence_interval(0.95)
        assert (found.lower, found.upper) == pytest.approx((known.low, known.high), abs=1e-9, rel=1e-9)
    assert mean_difference(values[:4]) is None


@given(st.integers(1, 60), st.data())
def test_scores_of_0_and_1_have_the_interval_of_a_share(trials, data):
    passed = data.draw(st.integers(0, trials))
    found, known = bounded_mean([1.0] * passed + [0.0] * (trials - passed)), exact_share(passed, trials)
    assert (found.lower, found.upper) == pytest.approx((known.lower, known.upper), abs=1e-9)
    # The same by the general way: no number reaches the upper bound, or none the lower one.
    half = bounded_mean([0.5] * passed + [0.0] * (trials - passed))
    assert half.lower == pytest.approx(known.lower / 2, abs=1e-9)


@pytest.mark.parametrize("tasks", [3, 12, 60])
def test_the_bound_is_the_one_that_drawing_random_weights_gives(tasks):
    source = np.random.default_rng(tasks)
    values = source.beta(0.8, 0.2, tasks)
    weights = source.dirichlet(np.ones(tasks + 1), 200_000)
    low, high = (weights @ np.append(values, end) for end in (0.0, 1.0))
    found = bounded_mean(list(values))
    assert (low < found.lower).mean() == pytest.approx(0.025, abs=0.002)
    assert (high > found.upper).mean() == pytest.approx(0.025, abs=0.002)


@pytest.mark.parametrize("seed", range(6))
def test_the_approximation_for_many_tasks_is_nearly_exact(seed):
    source = random.Random(seed)
    share = source.choice([0.05, 0.3, 0.9])
    values = [float(source.random() < share) * source.choice([1, 0.5, source.random()]) for _ in range(MANY)]
    lower = bounded_mean(values).lower
    parts = [(value - lower, 1) for value in (0.0, *values)]
    assert _exact_score(parts) == pytest.approx(-1.959964, abs=1e-6)
    assert _approximate_score(parts) == pytest.approx(_exact_score(parts), abs=5e-3)


def test_equal_numbers_give_a_real_interval():
    assert bounded_mean([]) is None
    assert bounded_mean([1.0] * 5).lower == pytest.approx(0.025**0.2)
    unchanged = bounded_mean([0.0] * 8, -1.0)
    assert (unchanged.lower, unchanged.upper) == pytest.approx((0.025**0.125 - 1, 1 - 0.025**0.125))


@given(st.lists(st.tuples(st.integers(0, 3), st.just(3)), min_size=2, max_size=12))
def test_tasks_are_the_units_of_a_clustered_share(tasks):
    found, by_task = clustered_share(tasks), bounded_mean([part / whole for part, whole in tasks])
    assert (found.lower, found.mean, found.upper) == pytest.approx(
        (by_task.lower, by_task.mean, by_task.upper), abs=1e-9
    )
    alone = clustered_share([(part > 1, 1) for part, _ in tasks])
    assert alone == exact_share(sum(part > 1 for part, _ in tasks), len(tasks))


def test_ties_count_as_half_with_the_standard_error_over_tasks():
    tasks = [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 1), (2, 1, 1)]
    rates = [1, 0.5, 0, 0, 2.5 / 4]
    found = half_wins(tasks)
    assert (found.win_rate, found.standard_error) == pytest.approx((sum(rates) / 5, float(sem(rates))))
    assert half_wins([(0, 0, 0)]) is None


# Simulations: how often a 95 % interval contains the truth. `make campaign` repeats them 2,000 times.

SOURCE = random.Random(20)


def rate() -> float:
    return SOURCE.betavariate(0.8, 0.2)


def passed(share: float, trials: int = 1) -> float:
    return sum(SOURCE.random() < share for _ in range(trials)) / trials


def difference(trials: int) -> float:
    share = rate()
    return passed(share, trials) - passed(share, trials)


SCORE_CASES = {
    "binary, 0.5": (lambda: passed(0.5), 0.5),
    "binary, 0.8": (lambda: passed(0.8), 0.8),
    "binary, 0.95": (lambda: passed(0.95), 0.95),
    "binary, 0.99": (lambda: passed(0.99), 0.99),
    "Beta(0.8, 0.2)": (rate, 0.8),
    "Beta(4, 1)": (lambda: SOURCE.betavariate(4, 1), 0.8),
    "nine of ten 1, else uniform": (lambda: 1.0 if SOURCE.random() < 0.9 else SOURCE.random(), 0.95),
    "about 0.9, one of 20 is 0": (lambda: SOURCE.uniform(0.85, 0.95) if SOURCE.random() < 0.95 else 0.0, 0.855),
    "Beta(0.8, 0.2), 5 trials": (lambda: passed(rate(), 5), 0.8),
}
DIFFERENCE_CASES = {
    "one of ten regresses": (lambda: -float(SOURCE.random() < 0.1), -0.1),
    "unchanged, Beta(0.8, 0.2), 1 trial": (lambda: difference(1), 0.0),
    "unchanged, Beta(0.8, 0.2), 3 trials": (lambda: difference(3), 0.0),
    "small shift": (lambda: max(-1.0, min(1.0, SOURCE.gauss(0.02, 0.05))), 0.02),
}


def coverage(draw, truth, low, tasks, repeats):
    """How often the interval contains the truth."""
    covered = 0
    for _ in range(repeats):
        found = bounded_mean([draw() for _ in range(tasks)], low)
        covered += found.lower <= truth + 1e-12 and truth - 1e-12 <= found.upper
    count("simulated intervals", repeats)
    return covered / repeats


def enough(repeats):
    """The least share of simulations that 95 % could give by chance in about one of a thousand, or 93 %."""
    return min(0.93, 0.95 - 3.1 * math.sqrt(0.95 * 0.05 / repeats))


@pytest.mark.parametrize("tasks", [5, 8, 10, 20, 50, 100])
def test_intervals_of_scores_and_differences_contain_the_truth_in_95_percent(tasks):
    SOURCE.seed(tasks)
    repeats = size(ci=40 if tasks < 50 else 10, sample=200, full=2_000)
    for cases, low in ((SCORE_CASES, 0.0), (DIFFERENCE_CASES, -1.0)):
        for name, (draw, truth) in cases.items():
            assert coverage(draw, truth, low, tasks, repeats) >= enough(repeats), name


def test_clustered_win_rates_contain_the_truth_in_95_percent():
    SOURCE.seed(3)
    repeats = size(ci=60, sample=300, full=2_000)
    for tasks in (5, 10, 20):
        covered = 0
        for _ in range(repeats):
            found = clustered_share([(passed(share, 5) * 5, 5) for share in (rate() for _ in range(tasks))])
            covered += found.lower <= 0.8 <= found.upper
        assert covered / repeats >= enough(repeats), tasks
        count("simulated intervals", repeats)
