"""Pass rates corrected for a judge's error: against independent values, and on judges whose error is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waza.stats.agreement import Confusion
from waza.stats.corrected import corrected, labels_needed, lang_reiczigel, prediction_powered, rogan_gladen, tuned

# both pass, only people pass, only the judge passes, both fail; the judge's passes among so many unlabelled outputs:
# ppi_py.ppi_mean_pointestimate and the standard error in ppi_py.ppi_mean_ci (ppi-python 0.2.3, power tuning on)
TUNED = [
    ((45, 15, 25, 15), (300, 500), 0.5894418331374853, 0.04863549649997481),
    ((20, 5, 10, 15), (40, 100), 0.4467857142857143, 0.06667406634103683),
    ((80, 3, 10, 7), (700, 900), 0.7948934900542497, 0.034592322768949406),
    ((9, 1, 0, 10), (33, 60), 0.5668233082706767, 0.0695168368863994),
    ((4, 16, 16, 64), (50, 400), 0.2, 0.04000000000000001),
    ((118, 5, 2, 0), (70, 80), 0.984, 0.011222833866720136),
]


@pytest.mark.parametrize(("cells", "rest", "share", "std_error"), TUNED)
def test_prediction_powered_shares_are_those_of_the_authors_package(cells, rest, share, std_error):
    found = tuned(cells, *rest)
    assert (found.share, found.std_error) == pytest.approx((share, std_error), abs=1e-12)


# The judge's share, specificity, sensitivity, outputs, labelled fails, labelled passes: the interval of the package by
# Lee et al. 2025 (arXiv 2511.21140, "How to correctly report LLM-as-a-judge evaluations"), as recorded in the
# parity fixtures of its port LLM-judge-repoRting (confidence_interval.csv, point_estimator.csv), 95 % rows.
PUBLISHED = [
    ((0.4, 0.7, 0.9, 1000, 200, 200), 0.1666666666666668, (0.05635072484160894, 0.2627330257859588)),
    ((0.5, 0.8, 0.8, 500, 100, 100), 0.5, (0.3799746588561528, 0.6200253411438469)),
    ((0.62, 0.85, 0.93, 2000, 150, 350), 0.6025641025641025, (0.5544774781496563, 0.6456327845409667)),
    ((0.05, 0.9, 0.9, 1000, 200, 200), 0.0, (0.0, 0.0)),
    ((0.97, 0.9, 0.9, 1000, 200, 200), 1.0, (1.0, 1.0)),
    ((0.0, 1.0, 1.0, 50, 10, 10), 0.0, (0.0, 0.09568563633822108)),
    ((1.0, 1.0, 1.0, 50, 10, 10), 1.0, (0.9043143636617791, 1.0)),
    ((0.4, 0.7, 0.9, 1000, 1, 1), 0.1666666666666668, (0.0, 1.0)),
]


@pytest.mark.parametrize(("measured", "share", "interval"), PUBLISHED)
def test_rogan_gladen_and_its_interval_are_those_of_an_independent_package(measured, share, interval):
    raw, specificity, sensitivity, outputs, fails, passes = measured
    found = lang_reiczigel((raw, outputs), (sensitivity, passes), (specificity, fails))
    assert found == pytest.approx(interval, abs=1e-12)
    if passes > 1:
        right, wrong = round(sensitivity * passes), round(specificity * fails)
        counts = Confusion(true_pass=right, false_fail=passes - right, true_fail=wrong, false_pass=fails - wrong)
        exact = rogan_gladen(counts, round(raw * outputs), outputs)
        assert exact.mean == pytest.approx(share, abs=0.01)


def coverage(rate, sensitivity, specificity, *, labelled, outputs, repeats=1_000, seed=11):
    """The share of seeded repeats in which each interval holds the true rate."""
    random = np.random.default_rng(seed)
    good = random.random((repeats, outputs)) < rate
    passes = random.random((repeats, outputs)) < np.where(good, sensitivity, 1 - specificity)
    covered = {"raw": 0, "people": 0, "prediction_powered": 0, "rogan_gladen": 0}
    cells = [(good & passes), (good & ~passes), (~good & passes), (~good & ~passes)]
    tables = np.stack([cell[:, :labelled].sum(axis=1) for cell in cells], axis=1).tolist()
    for (both, people_only, judge_only, neither), passed in zip(tables, passes.sum(axis=1).tolist(), strict=True):
        counts = Confusion(true_pass=both, false_fail=people_only, false_pass=judge_only, true_fail=neither)
        found = corrected(counts, passed, outputs)
        for name in covered:
            interval = getattr(found, name)
            covered[name] += interval is not None and interval.lower <= rate <= interval.upper
    return {name: count / repeats for name, count in covered.items()}


@pytest.mark.parametrize(
    ("rate", "sensitivity", "specificity"), [(0.8, 0.9, 0.8), (0.6, 0.95, 0.6), (0.8, 0.95, 0.6), (0.9, 0.85, 0.9)]
)
def test_the_corrected_interval_holds_the_true_rate_and_the_raw_one_does_not(rate, sensitivity, specificity):
    found = coverage(rate, sensitivity, specificity, labelled=200, outputs=1_000)
    assert 0.93 <= found["prediction_powered"] <= 0.97, found
    assert 0.93 <= found["rogan_gladen"] <= 0.97, found
    assert found["raw"] < 0.15, found


@pytest.mark.parametrize("labelled", [20, 50, 100])
def test_with_few_labels_the_prediction_powered_interval_is_wider_but_still_holds(labelled):
    found = coverage(0.8, 0.9, 0.8, labelled=labelled, outputs=10 * labelled)
    assert 0.93 <= found["prediction_powered"] <= 0.985, found


def test_a_perfect_judge_needs_no_correction():
    counts = Confusion(true_pass=70, true_fail=30)
    found = corrected(counts, 700, 1_000)
    assert found.raw.mean == found.rogan_gladen.mean == pytest.approx(found.prediction_powered.mean) == 0.7
    assert found.prediction_powered.upper - found.prediction_powered.lower > found.raw.upper - found.raw.lower


def test_a_judge_no_better_than_chance_is_not_used():
    counts = Confusion(true_pass=40, false_fail=40, false_pass=10, true_fail=10)
    found = corrected(counts, 500, 1_000)
    assert found.rogan_gladen is None
    assert found.prediction_powered.mean == pytest.approx(found.people.mean, abs=1e-9)


def test_where_people_judged_everything_their_verdict_is_the_answer():
    counts = Confusion(true_pass=40, false_fail=5, false_pass=5, true_fail=10)
    found = corrected(counts, 45, 60)
    assert found.prediction_powered == found.people


def test_without_labels_only_the_raw_share_is_told():
    found = corrected(Confusion(), 7, 10)
    assert (found.people, found.prediction_powered, found.rogan_gladen) == (None, None, None)
    assert found.raw.mean == 0.7


def test_more_labels_are_asked_for_where_the_interval_is_to_be_narrower():
    counts = Confusion(true_pass=60, false_fail=8, false_pass=10, true_fail=22)
    few, many = (labels_needed(counts, 1_400, 2_000, half) for half in (0.08, 0.05))
    assert counts.n <= few < many <= 2_000
    assert labels_needed(counts, 70, 100, 0.01) is None
    assert labels_needed(Confusion(), 70, 100, 0.05) is None


def test_the_asked_number_of_labels_brings_about_the_asked_width():
    counts = Confusion(true_pass=60, false_fail=8, false_pass=10, true_fail=22)
    needed = labels_needed(counts, 1_400, 2_000, 0.05)
    scale = needed / counts.n
    grown = Confusion(
        true_pass=round(60 * scale),
        false_fail=round(8 * scale),
        false_pass=round(10 * scale),
        true_fail=round(22 * scale),
    )
    interval = prediction_powered(grown, round(0.7 * (2_000 - grown.n)), 2_000 - grown.n)
    assert (interval.upper - interval.lower) / 2 == pytest.approx(0.05, abs=0.003)


CELL = st.integers(0, 40)


@given(CELL, CELL, CELL, CELL, st.integers(0, 100), st.integers(0, 100))
def test_every_interval_holds_its_own_share_and_stays_between_0_and_1(
    both, people_only, judge_only, neither, passes, fails
):
    counts = Confusion(true_pass=both, false_fail=people_only, false_pass=judge_only, true_fail=neither)
    found = corrected(counts, both + judge_only + passes, counts.n + passes + fails)
    for interval in (found.raw, found.people, found.prediction_powered, found.rogan_gladen):
        if interval is not None:
            assert 0 <= interval.lower <= interval.mean + 1e-12 <= interval.upper + 2e-12 <= 1 + 3e-12


def clustered(tasks, trials, labelled, *, repeats=300, seed=5):
    """The share of seeded repeats that hold the true rate, where tasks differ in how hard they are.

    Beside each other: with the tasks known, and as if every output had a task of its own.
    """
    random = np.random.default_rng(seed)
    covered = {"known": 0, "unknown": 0}
    for _ in range(repeats):
        good = random.random((tasks, trials)) < random.beta(1.6, 0.4, (tasks, 1))
        finds, spots = random.beta(7.2, 0.8, (tasks, 1)), random.beta(6.4, 1.6, (tasks, 1))
        passes = random.random((tasks, trials)) < np.where(good, finds, 1 - spots)
        is_labelled = random.permutation(tasks * trials).reshape(tasks, trials) < labelled
        cells = [good & passes, good & ~passes, ~good & passes, ~good & ~passes]
        cells = [cell & is_labelled for cell in cells] + [passes & ~is_labelled, ~passes & ~is_labelled]
        rows = np.stack([cell.sum(axis=1) for cell in cells], axis=1).tolist()
        both, people_only, judge_only, neither = (int(cell.sum()) for cell in cells[:4])
        counts = Confusion(true_pass=both, false_fail=people_only, false_pass=judge_only, true_fail=neither)
        for name, given_rows in (("known", rows), ("unknown", [])):
            interval = corrected(counts, int(passes.sum()), tasks * trials, given_rows).prediction_powered
            covered[name] += interval.lower <= 0.8 <= interval.upper
    return {name: count / repeats for name, count in covered.items()}


def test_outputs_of_one_task_are_alike_and_the_interval_knows():
    found = clustered(30, 10, 150)
    assert 0.93 <= found["known"] <= 0.97, found
    assert found["unknown"] < 0.85, found


def test_where_every_output_has_a_task_of_its_own_nothing_changes():
    rows = [[1, 0, 0, 0, 0, 0]] * 40 + [[0, 1, 0, 0, 0, 0]] * 5 + [[0, 0, 0, 1, 0, 0]] * 9 + [[0, 0, 0, 0, 1, 0]] * 30
    counts = Confusion(true_pass=40, false_fail=5, true_fail=9)
    assert corrected(counts, 70, 84, rows) == corrected(counts, 70, 84)


def test_ten_equal_outputs_of_a_task_tell_as_much_as_one():
    alone = corrected(Confusion(true_pass=24, false_fail=3, false_pass=3, true_fail=10), 27, 40)
    ten = corrected(
        Confusion(true_pass=240, false_fail=30, false_pass=30, true_fail=100),
        270,
        400,
        [[10, 0, 0, 0, 0, 0]] * 24 + [[0, 10, 0, 0, 0, 0]] * 3 + [[0, 0, 10, 0, 0, 0]] * 3 + [[0, 0, 0, 10, 0, 0]] * 10,
    )
    for name in ("raw", "people"):
        one, many = getattr(alone, name), getattr(ten, name)
        assert (many.lower, many.upper) == pytest.approx((one.lower, one.upper), abs=0.01)


TASK = st.lists(st.integers(0, 4), min_size=6, max_size=6)


@given(st.lists(TASK, min_size=1, max_size=12))
def test_intervals_over_tasks_hold_their_own_share_too(rows):
    totals = [sum(column) for column in zip(*rows, strict=True)]
    both, people_only, judge_only, neither = totals[:4]
    counts = Confusion(true_pass=both, false_fail=people_only, false_pass=judge_only, true_fail=neither)
    found = corrected(counts, both + judge_only + totals[4], sum(totals), rows)
    for interval in (found.raw, found.people, found.prediction_powered, found.rogan_gladen):
        if interval is not None:
            assert 0 <= interval.lower <= interval.mean + 1e-12 <= interval.upper + 2e-12 <= 1 + 3e-12
