"""Where the mean score of one task lies, by its own trials: seeded, and only where there is more than one."""

import json
import math
import random
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit

from results_made import a_grade, a_result, a_run
from waza.reports.html import HtmlReport
from waza.reports.json import JsonReport
from waza.runs.tasks import summarize_tasks
from waza.stats.scores import RESAMPLES, _computed, _drawn, _quantile, _widened, bootstrap_mean, student_t

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
def test_the_interval_contains_the_mean_and_stays_within_the_trials(scores):
    found = interval_of(scores)
    assert min(scores) <= found.lower <= found.mean <= found.upper <= max(scores)
    assert found.tells == (found.lower < found.upper)
    assert found == interval_of(scores[::-1]) == interval_of(scores)


@pytest.mark.parametrize("count", [2, 3, 5, 9, 30])
def test_each_resample_is_one_that_the_seed_draws(count):
    values = tuple(sorted(random.Random(count).random() for _ in range(count)))
    source = random.Random(0)
    means = sorted(math.fsum(source.choices(values, k=count)) / count for _ in range(RESAMPLES))
    tail = NormalDist().cdf(-_widened(count))
    assert _drawn(values, 0) == (_quantile(means, tail), _quantile(means, 1 - tail))


def test_the_interval_of_two_trials_is_between_them():
    found = interval_of([0.2, 0.9])
    assert (found.lower, found.upper, found.num_bootstraps) == (0.2, 0.9, RESAMPLES)


def test_trials_that_agree_leave_nothing_to_draw():
    found = interval_of([0.5, 0.5, 0.5])
    assert (found.lower, found.upper, found.num_bootstraps) == (0.5, 0.5, 0)


def test_a_single_score_has_no_interval():
    assert interval_of([0.5]) is None
    assert interval_of([0.5, None]) is None
    assert "bootstrap_ci" not in stats_of(run_of([0.5]))


def test_undecided_trials_are_left_out():
    assert interval_of([0.2, None, 0.9]) == interval_of([0.2, 0.9])


def test_the_results_file_and_the_page_show_it():
    stats = stats_of(run_of([0.2, 0.9]))
    told = {"lower": 0.2, "upper": 0.9, "mean": 0.55, "confidence_level": 0.95, "num_bootstraps": RESAMPLES}
    assert stats["bootstrap_ci"] == told
    assert (stats["ci95_lo"], stats["ci95_hi"]) == (0.2, 0.9)
    page = b"".join(HtmlReport().render(run_of([0.2, 0.9]))).decode()
    assert '0.55 <span class="soft">(0.20–0.90)</span>' in page
    assert "(0.50–0.50)" not in b"".join(HtmlReport().render(run_of([0.5, 0.5]))).decode()


def test_the_bootstrap_is_the_same_every_time_and_in_every_order():
    random.seed(1)
    values = [random.random() for _ in range(40)]
    shuffled = random.sample(values, 40)
    assert bootstrap_mean(values) == bootstrap_mean(shuffled)
    interval = bootstrap_mean(values)
    assert interval.lower < interval.mean < interval.upper


def test_the_bootstrap_is_not_informative_for_equal_numbers():
    assert bootstrap_mean([]) is None
    assert not bootstrap_mean([0.4]).tells
    assert not bootstrap_mean([1.0, 1.0, 1.0]).tells


@pytest.mark.parametrize("tasks", [6, 15, 60])
def test_the_bootstrap_s_interval_contains_the_mean_about_as_often_as_it_should(tasks):
    source = random.Random(7)
    covered = 0
    for _ in range(150):
        interval = bootstrap_mean([source.gauss(0.5, 0.2) for _ in range(tasks)])
        covered += interval.lower <= 0.5 <= interval.upper
    assert 0.89 <= covered / 150 <= 0.99


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 8, 20, 99, 5_000])
def test_students_t_is_scipys(freedom):
    assert student_t(freedom) == pytest.approx(float(stdtrit(freedom, 0.975)), abs=0.004)


@pytest.mark.parametrize("seed", range(8))
def test_many_tasks_get_the_interval_that_drawing_would_give(seed):
    source = random.Random(seed)
    share = source.choice([0.05, 0.3, 0.9])
    values = tuple(sorted(float(source.random() < share) * source.choice([1, 1, 0.5]) for _ in range(300)))
    drawn, computed = _drawn(values, seed), _computed(values, sum(values) / len(values))
    width = drawn[1] - drawn[0]
    assert all(abs(one - other) < 0.08 * width for one, other in zip(drawn, computed, strict=True))
