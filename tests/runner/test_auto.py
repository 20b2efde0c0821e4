"""`trials_per_task: auto`: trials where they are needed, none where a task is settled, also under every look."""

import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import waza
from campaign import count, size
from results_made import a_result, a_run
from waza.cli import run_command
from waza.errors import SpecError
from waza.model import Task
from waza.reports.json import JsonReport
from waza.runner.auto import Auto, AutoTrials
from waza.runs.tasks import summarize_tasks
from waza.stats.paired import Tally, sign_flip
from waza.stats.scores import bounds, settled, wilson
from waza.suites.load import load_spec


def ran(random, rates, auto):
    """The tallies of a run in which each task passes at its rate, looked at after every trial."""
    trials = AutoTrials([Task(id=str(n), prompt="") for n in range(len(rates))], auto)
    counts = np.zeros((len(rates), 2), int)
    for trial in trials:
        task = int(trial.task.id)
        passed = random.random() < rates[task]
        counts[task, 0 if passed else 1] += 1
        trials.record(trial.task.id, trial.number, "passed" if passed else "failed")
    return counts


@pytest.mark.parametrize("seeds", [60, pytest.param(size(2_000, 300, 2_000), marks=pytest.mark.campaign)])
@pytest.mark.parametrize(
    "auto", [Auto(most=20, share=0.5), Auto(most=20, share=0.5, budget=150), Auto(most=10, share=1.0)], ids=str
)
def test_no_difference_between_two_runs_on_auto_is_seldom_called_one(seeds, auto):
    said = 0
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        rates = random.uniform(0, 1, 30)
        before, after = ran(random, rates, auto), ran(random, rates, auto)
        pairs = zip(before.tolist(), after.tolist(), strict=True)
        tallies = [Tally(one[0], sum(one), other[0], sum(other)) for one, other in pairs]
        said += sign_flip([tally.difference for tally in tallies]) < 0.05
    count("simulated comparisons", seeds)
    assert said / seeds <= 0.05 + 3 * (0.05 * 0.95 / seeds) ** 0.5


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_a_look_after_every_trial_seldom_rules_out_the_truth(share):
    """The task passes exactly at the share it is held against: whatever is settled is wrong."""
    random = np.random.default_rng(1)
    wrong = 0
    for _ in range(400):
        passed = np.cumsum(random.random(150) < share)
        wrong += any(settled(int(p), n - int(p), share) for n, p in enumerate(passed, 1))
    assert wrong / 400 <= 0.05


def test_wilson_s_interval_would_rule_it_out_far_more_often():
    """Proof that the look matters: the usual interval, looked at after every trial."""
    random = np.random.default_rng(1)
    wrong = 0
    for _ in range(200):
        passed = np.cumsum(random.random(150) < 0.5)
        intervals = (wilson(int(p), n) for n, p in enumerate(passed, 1))
        wrong += any(not interval.lower <= 0.5 <= interval.upper for interval in intervals)
    assert wrong / 200 > 0.15


@given(st.integers(0, 200), st.integers(0, 200))
@settings(max_examples=100, deadline=None)
def test_what_is_not_ruled_out_stands_between_the_bounds(passed, failed):
    low, high = bounds(passed, failed)
    assert 0 <= low <= high <= 1
    assert passed + failed == 0 or low <= passed / (passed + failed) <= high
    assert not settled(passed, failed, (low + high) / 2)


@pytest.mark.parametrize(
    ("passed", "failed", "share", "side"),
    [
        (5, 1, 1.0, "below"),
        (50, 0, 1.0, ""),
        (1, 9, 0.0, "above"),
        (0, 9, 0.0, ""),
        (12, 0, 0.6, "above"),
        (0, 0, 0.5, ""),
    ],
)
def test_pass_rules_are_shares(passed, failed, share, side):
    assert settled(passed, failed, share) == side


@pytest.mark.parametrize("runs", [60, pytest.param(size(1_000, 300, 1_000), marks=pytest.mark.campaign)])
def test_the_interval_of_a_task_that_was_stopped_covers_its_pass_rate(runs):
    auto, random, covered, usual = Auto(most=30, share=0.8), np.random.default_rng(2), 0, 0
    for _ in range(runs):
        counts = ran(random, [0.7], auto)[0].tolist()
        results = [a_result("t", n + 1, "passed" if n < counts[0] else "failed") for n in range(sum(counts))]
        spec = {"auto_trials": {"most": 30, "share": 0.8}}
        (task,) = summarize_tasks(a_run(results, tasks=["t"], config={"pass_rule": 0.8}, spec=spec))
        covered += task.pass_rate_ci.lower <= 0.7 <= task.pass_rate_ci.upper
        interval = wilson(counts[0], sum(counts))
        usual += interval.lower <= 0.7 <= interval.upper
    count("simulated comparisons", runs)
    assert covered / runs >= 0.95 > usual / runs


def test_a_task_that_is_not_settled_is_no_plain_pass(suite, capsys):
    folder = suite(SUITE % "max_trials: 6", agent__py=AGENT)
    assert run_command(["run", str(folder), "--trust"]) == 1
    printed = capsys.readouterr().out
    assert "~  sure" in printed and "6 of 6, auto  unsettled" in printed
    assert not re.search("✓ +sure", printed)
    run = waza.run(folder)
    stats = {task["test_id"]: task["stats"] for task in json.loads(JsonReport().text(run))["tasks"]}
    assert [stats[task]["settled"] for task in ("sure", "never")] == [False, False]
    assert (stats["sure"]["stopped_by"], stats["sure"]["pass_rate_ci"]["upper"]) == ("auto", 1.0)


AGENT = """
def answer(prompt):
    return "yes" if prompt == "sure" else "no"
"""
SUITE = """
config: {executor: python, agent: "agent:answer", trials_per_task: auto, pass_rule: 0.5, %s}
graders: [{type: text, config: {contains: ["yes"]}}]
tasks: [{id: sure, prompt: sure}, {id: never, prompt: never}]
"""


def counts(run):
    return {task: sum(result.task_id == task for result in run.results) for task in ("sure", "never")}


def test_a_task_is_tried_until_it_is_settled(suite):
    run = waza.run(suite(SUITE % "max_trials: 50", agent__py=AGENT))
    assert counts(run) == {"sure": 8, "never": 8}
    assert run.complete


def test_neither_the_most_nor_the_budget_is_exceeded(suite):
    assert counts(waza.run(suite(SUITE % "max_trials: 3", agent__py=AGENT))) == {"sure": 3, "never": 3}
    assert counts(waza.run(suite(SUITE % "trials_budget: 5, workers: 3", agent__py=AGENT))) == {"sure": 3, "never": 2}


def test_a_number_of_trials_wins_over_auto_and_auto_over_a_number(suite):
    folder = suite(SUITE % "max_trials: 50", agent__py=AGENT)
    assert counts(waza.run(folder, trials=2)) == {"sure": 2, "never": 2}
    folder = suite((SUITE % "max_trials: 4").replace("trials_per_task: auto", "trials_per_task: 1"), agent__py=AGENT)
    assert counts(waza.run(folder, trials="auto")) == {"sure": 4, "never": 4}


def test_all_must_pass_is_settled_by_the_first_failure(suite):
    text = (SUITE % "max_trials: 6").replace("pass_rule: 0.5", "pass_rule: all")
    assert counts(waza.run(suite(text, agent__py=AGENT))) == {"sure": 6, "never": 1}


def test_an_agent_that_cannot_run_is_not_tried_without_end(suite):
    folder = suite(
        """
        config: {executor: mock, trials_per_task: auto, max_trials: 50}
        graders: [{type: text, config: {contains: ["yes"]}}]
        tasks: [{id: sure, prompt: x, mock: {error: down}}]
        """
    )
    assert counts(waza.run(folder))["sure"] == 3


def test_a_budget_below_one_trial_a_task_is_refused(suite):
    folder = suite(SUITE % "trials_budget: 1", agent__py=AGENT)
    with pytest.raises(SpecError, match="trials_budget: 1 trials are not one for each of 2 tasks"):
        waza.run(folder)
    assert load_spec(folder).config.trials_budget == 1


def test_what_a_resumed_run_has_already_counts():
    tasks = [Task(id="a", prompt=""), Task(id="b", prompt="")]
    trials = AutoTrials(tasks, Auto(most=3, share=0.5))
    for number in (1, 3):
        trials.record("a", number, "passed")
    assert [(trial.task.id, trial.number) for trial in trials] == [("b", 1), ("b", 2), ("a", 2), ("b", 3)]
