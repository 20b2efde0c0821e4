"""Samples of the simulations behind the guides: false alarms within 5 %, and drops found as often as promised."""

import pytest

import simulations
from campaign import count, size
from simulations import (
    SHAPES,
    broken,
    evenly,
    gate_codes,
    graded_codes,
    powers,
    wrong_at_any_look,
    wrong_when_unequal,
    wrong_with_auto,
)
from waza.analysis.gate import Needs
from waza.runner.auto import Auto
from waza.stats.power import Question

RULE, ALL = Auto(most=10, share=0.8), Auto(most=10, share=1.0)
sizes = pytest.mark.parametrize("runs", [30, pytest.param(size(1_000, 200, 1_000), marks=pytest.mark.campaign)])
shapes = pytest.mark.parametrize("shape", SHAPES)


def most(share, runs):
    """The share, and three standard errors for chance."""
    count("simulated comparisons", runs)
    return share + 3 * (share * (1 - share) / runs) ** 0.5


@sizes
@shapes
@pytest.mark.parametrize(("tasks", "trials", "found"), [(20, 3, 0.2), (20, 5, 0.5), (50, 3, 0.75), (200, 1, 0.75)])
def test_the_gate_seldom_stops_an_unchanged_agent_and_finds_ten_points(shape, tasks, trials, found, runs):
    same = gate_codes(shape, tasks, trials, runs=runs)
    assert same[1] <= most(0.05, runs)
    assert same[3] <= most(0.10, runs)
    assert gate_codes(shape, tasks, trials, drop=0.1, runs=runs)[1] >= found - 3 * (found * (1 - found) / runs) ** 0.5


@sizes
@pytest.mark.parametrize("way", [broken, evenly])
def test_a_drop_that_is_allowed_is_no_false_alarm(way, runs):
    allowed = Needs(drop=0.1)
    codes = gate_codes("Beta(4, 1)", 20, 5, drop=0.1, runs=runs, needs=allowed, way=way)
    assert codes[1] <= most(0.05, runs)
    assert gate_codes("Beta(4, 1)", 20, 5, drop=0.4, runs=runs, needs=allowed, way=way)[1] >= 0.8


@sizes
def test_pass_rate_and_score_together_are_no_false_alarm(runs):
    assert graded_codes("Beta(4, 1)", 20, 3, runs=runs)[1] <= most(0.05, runs)


@sizes
@pytest.mark.parametrize("counts", [(1, 10), (5, 1)])
def test_unequal_trials_are_no_false_alarm(counts, runs):
    for test, share in wrong_when_unequal("Beta(4, 1)", 20, counts, runs=runs).items():
        assert share <= most(0.05, runs), test


@sizes
@pytest.mark.parametrize("autos", [(RULE, None), (None, ALL), (ALL, ALL), (RULE, ALL)], ids=str)
def test_trials_that_auto_stopped_are_no_false_alarm(autos, runs):
    for test, share in wrong_with_auto("Beta(4, 1)", 15, autos, runs=runs).items():
        assert share <= most(0.05, runs), test


@sizes
def test_twenty_looks_at_any_time_are_no_false_alarm_and_plain_ones_are(runs):
    wrong = wrong_at_any_look("Beta(4, 1)", 20, 20, runs=runs)
    assert wrong["anytime"] <= most(0.05, runs)
    assert wrong["plain"] > 0.06


def test_a_mean_of_more_trials_would_be_a_false_alarm(monkeypatch):
    """Proof that the simulation can fail: by task, with all trials of both runs."""
    whole = simulations.evidence

    def uncut(before, after, *, these_tasks=True):
        return whole(before, after, these_tasks=these_tasks)._replace(cut=False)

    monkeypatch.setattr(simulations, "evidence", uncut)
    monkeypatch.setitem(SHAPES, "Beta(9, 1)", (9.0, 1.0))
    assert wrong_when_unequal("Beta(9, 1)", 10, (1, 10), runs=150)["tasks like these"] > 0.09


@sizes
@pytest.mark.parametrize("question", [Question(these_tasks=True, one_sided=True), Question()], ids=str)
def test_the_power_that_is_printed_is_the_power(question, runs):
    printed, real = powers("Beta(4, 1)", 50, 3, question, runs=runs)
    assert printed == pytest.approx(real, abs=0.06 + 1.5 / runs**0.5)
