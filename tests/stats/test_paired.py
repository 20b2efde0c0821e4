"""Exact tests of a difference between two runs, against scipy and against counting every case."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, fisher_exact, hypergeom

from waza.stats.paired import (
    Tally,
    fell_over_tasks,
    fell_within_tasks,
    holm,
    mcnemar,
    scores_fell_within_tasks,
    shuffled_trials,
    sign_flip,
)


def test_mcnemar_on_public_judge_data():
    # JudgeBench, two reward models on the same 350 pairs: 83 only the one gets right, 61 only the other.
    assert mcnemar(83, 61) == pytest.approx(0.0798, abs=5e-5)
    assert mcnemar(60, 55) == pytest.approx(0.7093, abs=5e-5)


@given(st.integers(0, 200), st.integers(0, 200))
@settings(max_examples=60, deadline=None)
def test_mcnemar_is_the_binomial_test_of_discordant_pairs(gained, lost):
    expected = binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
    assert mcnemar(gained, lost) == pytest.approx(expected, abs=1e-9)
    assert sign_flip([1.0] * gained + [-1.0] * lost + [0.0] * 7) == pytest.approx(expected, abs=1e-9)


@given(st.lists(st.integers(-6, 6), min_size=1, max_size=9), st.sampled_from([1, 3, 5, 7]))
@settings(max_examples=60, deadline=None)
def test_the_test_by_task_counts_every_way_to_throw_the_signs(steps, trials):
    differences = [step / trials for step in steps]
    observed = abs(sum(steps))
    ways = list(itertools.product((1, -1), repeat=len(steps)))
    as_far = sum(abs(sum(sign * step for sign, step in zip(way, steps, strict=True))) >= observed for way in ways)
    assert sign_flip(differences) == pytest.approx(as_far / len(ways), abs=1e-9)


@given(st.integers(1, 12), st.integers(1, 12), st.data())
@settings(max_examples=60, deadline=None)
def test_within_one_task_it_is_fisher_s_exact_test_with_doubled_tails(before, after, data):
    one, other = data.draw(st.integers(0, before)), data.draw(st.integers(0, after))
    chances = hypergeom(before + after, one + other, after)
    expected = min(1.0, 2 * min(chances.cdf(other), chances.sf(other - 1)))
    assert shuffled_trials([Tally(one, before, other, after)]) == pytest.approx(expected, abs=1e-9)
    if before == after:
        assert expected == pytest.approx(fisher_exact([[one, before - one], [other, after - other]]).pvalue, abs=1e-9)


def test_with_one_trial_a_task_both_tests_are_mcnemar_s():
    pairs = [Tally(0, 1, 1, 1)] * 83 + [Tally(1, 1, 0, 1)] * 61 + [Tally(1, 1, 1, 1)] * 200
    assert shuffled_trials(pairs) == pytest.approx(mcnemar(83, 61), abs=1e-9)
    assert sign_flip([pair.difference for pair in pairs]) == pytest.approx(mcnemar(83, 61), abs=1e-9)


@given(st.lists(st.floats(-1, 1, allow_nan=False), min_size=1, max_size=60), st.randoms())
@settings(max_examples=50, deadline=None)
def test_a_p_value_is_a_share_and_neither_order_nor_sign_nor_unit_matters(differences, order):
    p_value = sign_flip(differences)
    assert 0.0 <= p_value <= 1.0
    shuffled = order.sample(differences, len(differences))
    assert sign_flip(shuffled) == pytest.approx(p_value, abs=1e-6)
    assert sign_flip([-difference for difference in differences]) == pytest.approx(p_value, abs=1e-6)


def test_tiny_differences_count_as_much_as_large_ones():
    assert sign_flip([3e-5] * 8) == pytest.approx(2 / 2**8)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.data()), min_size=2, max_size=3))
@settings(max_examples=40, deadline=None)
def test_a_drop_within_tasks_counts_every_way_to_permute_the_trials(drawn):
    tasks = []
    for before, after, data in drawn:
        outcomes = data.draw(st.lists(st.integers(0, 1), min_size=before + after, max_size=before + after))
        tasks.append((outcomes[:before], outcomes[before:]))

    def counted(some):
        changes = (sum(after) / len(after) - sum(before) / len(before) for before, after in some)
        return sum(change + change * abs(change) / 4 for change in changes)

    def ways(before, after):
        both = before + after
        for chosen in itertools.combinations(range(len(both)), len(after)):
            yield [both[n] for n in range(len(both)) if n not in chosen], [both[n] for n in chosen]

    sums = [counted(some) for some in itertools.product(*(list(ways(*task)) for task in tasks))]
    expected = sum(one <= counted(tasks) + 1e-9 for one in sums) / len(sums)
    tallies = [Tally(sum(before), len(before), sum(after), len(after)) for before, after in tasks]
    assert fell_within_tasks(tallies) == pytest.approx(expected, abs=1e-9)
    assert scores_fell_within_tasks(tasks) == pytest.approx(expected, abs=0.03)


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=9), st.integers(0, 2))
@settings(max_examples=40, deadline=None)
def test_a_drop_over_tasks_counts_every_way_to_throw_the_signs(steps, allowed):
    moved = [step + allowed for step in steps]
    ways = itertools.product((1, -1), repeat=len(moved))
    sums = [sum(sign * one for sign, one in zip(way, moved, strict=True)) for way in ways]
    expected = sum(one <= sum(moved) for one in sums) / len(sums)
    assert fell_over_tasks([step / 4 for step in steps], allowed=allowed / 4) == pytest.approx(expected, abs=1e-9)


def test_five_broken_tasks_of_twenty_are_a_drop_of_these_tasks():
    tallies = [Tally(5, 5, 0, 5)] * 5 + [Tally(5, 5, 5, 5)] * 15
    assert fell_within_tasks(tallies) < 1e-9
    assert fell_within_tasks(tallies, allowed=0.1) < 0.01 < 0.05 < fell_within_tasks(tallies, allowed=0.25)
    assert sign_flip([tally.difference for tally in tallies]) > 0.05
    heavier = [4.0] * 5 + [1.0] * 15
    mixed = [Tally(1, 1, 0, 1)] * 5 + [Tally(0, 1, 1, 1)] * 15
    assert fell_within_tasks(mixed) > 0.9 > fell_within_tasks(mixed, weights=heavier)


def test_holm_steps_down():
    # Holm 1979, as in R's p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm").
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
