"""Where the mean score of one task lies, by its own trials: seeded, and only where there is more than one."""

import json
import math
import random
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results_made import a_grade, a_result, a_run
from waza.reports.html import HtmlReport
from waza.reports.json import JsonReport
from waza.runs.tasks import summarize_tasks
from waza.stats.resampling import RESAMPLES, _drawn, _quantile, _widened

SCORES = st.lists(st.floats(0, 1), min_size=2, max_size=6)


def run_of(scores, **more):
    """A run with one task whose trials have these scores; None is a trial nobody can tell."""
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
def test_the_interval_holds_the_mean_and_stays_within_the_trials(scores):
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


def test_two_trials_tell_no_more_than_that_the_mean_lies_between_them():
    found = interval_of([0.2, 0.9])
    assert (found.lower, found.upper, found.num_bootstraps) == (0.2, 0.9, RESAMPLES)


def test_trials_that_agree_leave_nothing_to_draw():
    found = interval_of([0.5, 0.5, 0.5])
    assert (found.lower, found.upper, found.num_bootstraps) == (0.5, 0.5, 0)


def test_a_single_score_has_no_interval():
    assert interval_of([0.5]) is None
    assert interval_of([0.5, None]) is None
    assert "bootstrap_ci" not in stats_of(run_of([0.5]))


def test_what_nobody_can_tell_is_left_out():
    assert interval_of([0.2, None, 0.9]) == interval_of([0.2, 0.9])


def test_the_results_file_and_the_page_show_it():
    stats = stats_of(run_of([0.2, 0.9]))
    told = {"lower": 0.2, "upper": 0.9, "mean": 0.55, "confidence_level": 0.95, "num_bootstraps": RESAMPLES}
    assert stats["bootstrap_ci"] == told
    assert (stats["ci95_lo"], stats["ci95_hi"]) == (0.2, 0.9)
    page = b"".join(HtmlReport().render(run_of([0.2, 0.9]))).decode()
    assert '0.55 <span class="soft">(0.20–0.90)</span>' in page
    assert "(0.50–0.50)" not in b"".join(HtmlReport().render(run_of([0.5, 0.5]))).decode()
