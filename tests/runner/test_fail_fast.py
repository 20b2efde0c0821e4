"""`fail_fast`: a run ends once a task can no longer pass, and not before."""

import pytest

import waza
from waza.analysis.oracles import cheated
from waza.suites.load import load_spec

SUITE = """
config: {{executor: mock, fail_fast: true, trials_per_task: {trials}, pass_rule: {rule}}}
graders: [{{type: text, config: {{contains: ['yes']}}}}]
tasks:
  - {{id: first, prompt: x, mock: {{trials: [{script}]}}}}
  - {{id: second, prompt: x, mock: {{output: 'yes'}}}}
"""
OUTPUTS = {"y": "{output: 'yes'}", "n": "{output: 'no'}", "e": "{error: 'no agent'}"}


def started(suite, rule, script, trials=None):
    """Return the tasks of the trials that were run, in order; the script has a letter for each trial of the first."""
    written = ", ".join(OUTPUTS[letter] for letter in script)
    folder = suite(SUITE.format(rule=rule, script=written, trials=trials or len(script)))
    run = waza.run(folder, workers=1)
    return " ".join(result.task_id[0] for result in run.results)


@pytest.mark.parametrize(
    ("rule", "script", "ran"),
    [
        ("all", "nyy", "f"),
        ("all", "eyy", "f"),
        ("any", "nny", "f f f s s s"),
        ("any", "enn", "f f f"),
        ("any", "n", "f"),
        ("0.5", "nyny", "f f f f s s s s"),
        ("0.5", "nnny", "f f f"),
        ("0.0", "nnn", "f f f"),
    ],
)
def test_a_run_ends_when_a_task_can_no_longer_pass(suite, rule, script, ran):
    assert started(suite, rule, script) == ran


@pytest.mark.parametrize(("rule", "script", "ran"), [("all", "n", "f"), ("any", "ny", "f f s")])
def test_so_it_does_where_trials_are_left_to_auto(suite, rule, script, ran):
    assert started(suite, rule, script, trials="auto") == ran


def test_a_task_that_auto_gives_up_ends_the_run(suite):
    assert started(suite, "0.9", "n", trials="auto").count("f") < 20


def test_trials_of_the_run_it_goes_on_with_count(suite, waza):
    folder = suite(SUITE.format(rule="any", script="{output: 'no'}", trials=2))
    waza("run", folder, "--trials", "1", "--task", "first")
    done = waza("run", folder, "--resume", "--trials", "2")
    assert "task 'first' did not pass; 2 results kept" in done.stderr


def test_a_task_that_is_lost_already_stops_no_run_that_goes_on(suite, waza):
    folder = suite(SUITE.format(rule="all", script="{output: 'no'}", trials=3))
    assert "1 result kept" in waza("run", folder, "--workers", "1").stderr
    done = waza("run", folder, "--resume", "--workers", "1")
    assert done.returncode == 1 and "stopped" not in done.stderr, "the second task is reached"


def test_oracles_try_every_task_of_a_suite_that_fails_fast(suite):
    text = SUITE.format(rule="all", script="{output: 'yes'}", trials=1).replace(
        "second, prompt: x", "second, prompt: 'yes'"
    )
    found = {(finding.task, finding.oracle) for finding in cheated(load_spec(suite(text)))}
    assert ("second", "prompt echo") in found
