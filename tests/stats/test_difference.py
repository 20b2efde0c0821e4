"""What a comparison says: seldom a difference where there is none, nearly always one that was planted."""

import numpy as np
import pytest

from campaign import count, size
from waza.stats.difference import verdict_on_passing, verdict_on_scores
from waza.stats.paired import Tally, shuffled_trials, sign_flip

seeds_of_both_sizes = pytest.mark.parametrize(
    "seeds", [80, pytest.param(size(2_000, 500, 2_000), marks=pytest.mark.campaign)]
)


def limit(seeds):
    """5 % and three standard errors: 6.5 % of 2,000."""
    return 0.05 + 3 * (0.05 * 0.95 / seeds) ** 0.5


def two_runs(seed, tasks, trials, drop=0.0, redrawn=False):
    """Two runs of tasks that are of unlike difficulty; `redrawn` gives the later run difficulties of its own."""
    random = np.random.default_rng(seed)
    easy = random.uniform(drop, 1.0, tasks)
    later = random.uniform(drop, 1.0, tasks) if redrawn else easy - drop
    before, after = random.binomial(trials, easy), random.binomial(trials, later)
    return [Tally(int(one), trials, int(other), trials) for one, other in zip(before, after, strict=True)]


def share_of(words, seeds, tasks, trials, **how):
    """The share of comparisons with one of the words, `better` or `worse`: the power, which is slow, is not needed."""
    signs = {"better": 1, "worse": -1}
    found = 0
    for seed in range(seeds):
        differences = [tally.difference for tally in two_runs(seed, tasks, trials, **how)]
        sign = np.sign(round(sum(differences), 9))
        found += sign_flip(differences) < 0.05 and sign in [signs[word] for word in words]
    count("simulated comparisons", seeds)
    return found / seeds


def test_the_full_size_is_what_was_asked_for():
    assert round(limit(2_000), 3) == 0.065


@seeds_of_both_sizes
@pytest.mark.parametrize(("tasks", "trials"), [(100, 5), (100, 1), (30, 3), (10, 2)])
def test_no_difference_is_seldom_called_one(seeds, tasks, trials):
    assert share_of({"better", "worse"}, seeds, tasks, trials) <= limit(seeds)


@seeds_of_both_sizes
def test_also_when_the_later_agent_finds_other_tasks_hard(seeds):
    assert share_of({"better", "worse"}, seeds, 100, 5, redrawn=True) <= limit(seeds)


@seeds_of_both_sizes
def test_a_drop_of_15_points_is_found(seeds):
    assert share_of({"worse"}, seeds, 100, 5, drop=0.15) >= 0.9


def test_a_test_that_counts_every_trial_as_its_own_would_cry_wolf():
    """Proof that the simulation can fail: pooled trials and the binomial test, tasks forgotten."""

    def pooled(seed):
        tallies = two_runs(seed, 100, 5, redrawn=True)
        gained = sum(tally.passed_after - tally.passed_before for tally in tallies)
        rate = sum(tally.passed_after + tally.passed_before for tally in tallies) / 1_000
        return abs(gained) / (2 * 500 * rate * (1 - rate)) ** 0.5 > 1.96

    assert sum(map(pooled, range(250))) / 250 > 0.2


def test_these_tasks_alone_need_no_further_tasks_but_trials():
    few = [Tally(19, 20, 3, 20)] * 3
    assert verdict_on_passing(few).word == "too little evidence"
    assert verdict_on_passing(few).smallest is None
    assert verdict_on_passing(few, these_tasks=True).word == "worse"


@seeds_of_both_sizes
def test_these_tasks_alone_are_seldom_said_to_differ_when_they_do_not(seeds):
    assert sum(shuffled_trials(two_runs(seed, 4, 10)) < 0.05 for seed in range(seeds)) / seeds <= limit(seeds)


def test_four_words_and_what_would_be_needed():
    same = [Tally(5, 5, 5, 5)] * 200
    assert verdict_on_passing(same).word == "no difference shown"
    few = [Tally(1, 1, 1, 1)] * 8
    verdict = verdict_on_passing(few)
    assert verdict.word == "too little evidence"
    assert verdict.power < 0.1 and verdict.smallest > 0.5
    assert verdict.tasks_needed >= 50
    worse = verdict_on_passing([Tally(1, 1, 0, 1)] * 8)
    assert (worse.word, worse.difference, worse.p_value) == ("worse", -1.0, pytest.approx(2 / 2**8))
    assert verdict_on_passing([Tally(0, 1, 1, 1)] * 8).word == "better"
    assert verdict_on_passing([]).word == "too little evidence"


def test_so_many_tasks_as_are_said_to_be_needed_do_show_it():
    needed = verdict_on_passing(two_runs(3, 60, 2)).tasks_needed
    found = [sign_flip([t.difference for t in two_runs(seed, needed, 2, drop=0.1)]) < 0.05 for seed in range(100)]
    assert sum(found) >= 70


def test_scores_are_compared_by_task_too():
    assert verdict_on_scores([-0.1] * 20).word == "worse"
    assert verdict_on_scores([0.0] * 400).word == "no difference shown"
    assert verdict_on_scores([0.3, -0.3, 0.2]).word == "too little evidence"
