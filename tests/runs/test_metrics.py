"""Declared metrics: what each name means, and gates that are met or missed only when that is certain."""

import pytest

from results_made import a_grade, a_result, a_run
from waza.model import Check
from waza.runs.metrics import Metric
from waza.runs.summary import summarize


def measured(results, *metrics, tasks=None, graders=None, **more):
    spec = {"metrics": [{"name": metric} if isinstance(metric, str) else metric for metric in metrics]}
    return summarize(a_run(results, tasks=tasks, spec=spec | ({"graders": graders} if graders else {})), **more)


def only(results, metric, **more):
    return measured(results, metric, **more).metrics[0]


def behavior(*oks, claim="at most 3 tool calls", kind="behavior", **more):
    checks = [Check(ok, claim) for ok in oks]
    return a_grade(kind=kind, checks=checks, status="passed", name="calm", **more)


def test_task_completion_is_the_share_of_tasks_that_passed():
    results = [a_result("a"), a_result("b", status="failed"), a_result("c", status="skipped")]
    assert only(results, "task_completion").value == 0.5


def test_behavior_quality_is_the_share_of_decided_behaviour_checks_that_held():
    grades = [behavior(True, False, None), behavior(True, kind="tool_calls", claim="bash is called"), a_grade(0.0)]
    metric = only([a_result(grades=grades)], "behavior_quality")
    assert (metric.value, metric.low, metric.high) == (2 / 3, 0.5, 0.75)


def test_efficiency_looks_at_upper_bounds_only():
    grades = [behavior(True), behavior(False, claim="bash is called"), behavior(False, kind="max_tokens")]
    assert only([a_result(grades=grades)], "efficiency").value == 0.5


@pytest.mark.parametrize("name", ["behavior_quality", "efficiency"])
def test_without_such_checks_these_metrics_are_undecided(name):
    metric = only([a_result()], {"name": name, "threshold": 0.5})
    assert (metric.value, metric.status) == (None, "error")
    assert "no grader of this run makes such checks" in metric.reason
    assert measured([a_result()], {"name": name, "threshold": 0.5}).exit_code == 3


def test_a_grader_s_name_is_the_mean_of_its_scores():
    results = [
        a_result("a", grades=[a_grade(1.0, name="style"), a_grade(0.0)]),
        a_result("b", grades=[a_grade(0.5, name="style")]),
        a_result("c"),
    ]
    assert only(results, "style").value == 0.75
    assert only(results, {"name": "looks", "grader": "style"}).value == 0.75


def test_a_tag_is_the_mean_score_of_its_tasks():
    tasks = [{"id": "a", "tags": ["hard"]}, {"id": "b"}]
    results = [a_result("a", grades=[a_grade(0.25)]), a_result("b")]
    assert only(results, "hard", tasks=tasks).value == 0.25
    assert only(results, {"name": "x", "tag": "hard"}, tasks=tasks).value == 0.25
    assert only(results, {"name": "x", "tag": "none"}, tasks=tasks).status == "error"


def test_a_name_that_is_nothing_known_is_task_completion_with_a_warning():
    summary = measured([a_result("a"), a_result("b", status="failed")], "readiness")
    assert summary.metrics[0].value == 0.5
    assert summary.warnings == ["metric 'readiness' names no grader or tag of this run: computed as task_completion"]
    assert summary.metrics[0].note == "(as task_completion)"
    plain = measured([a_result("a")], "task_completion")
    assert (plain.warnings, plain.metrics[0].note) == ([], "")


def test_a_grader_in_the_spec_that_gave_no_grade_is_known_and_undecided():
    results = [a_result("a", status="error", grades=[])]
    metric = only(results, {"name": "style", "threshold": 0.5}, graders={"a": [{"type": "text", "name": "style"}]})
    assert (metric.value, metric.low, metric.high, metric.status) == (None, 0.0, 1.0, "error")


def test_a_trial_without_that_grader_does_not_count():
    results = [a_result("a", grades=[a_grade(0.5, name="style")]), a_result("b", status="error", grades=[])]
    graders = {"a": [{"type": "text", "name": "style"}], "b": [{"type": "text", "name": "other"}]}
    metric = only(results, "style", graders=graders)
    assert (metric.value, metric.low, metric.high) == (0.5, 0.5, 0.5)


def test_trigger_accuracy_is_undecided_until_it_is_measured():
    metric = {"name": "trigger_accuracy", "threshold": 0.9}
    found = only([a_result()], metric)
    assert (found.status, found.reason) == ("error", "no trigger tests were run")
    given = {"trigger_accuracy": Metric(name="trigger_accuracy", value=0.8, low=0.8, high=0.8)}
    assert only([a_result()], metric, computed=given).status == "failed"


@pytest.mark.parametrize(
    ("statuses", "threshold", "status", "code"),
    [
        ("pp", 1.0, "passed", 0),
        ("ppf", 0.5, "passed", 1),
        ("pe", 0.5, "passed", 3),
        ("pe", 0.6, "error", 3),
        ("pf", 0.6, "failed", 1),
        ("ppp", None, "passed", 0),
    ],
)
def test_a_gate_is_decided_when_no_undecided_task_could_change_it(statuses, threshold, status, code):
    words = {"p": "passed", "f": "failed", "e": "error"}
    results = [a_result(f"t{n}", status=words[letter]) for n, letter in enumerate(statuses)]
    summary = measured(results, {"name": "task_completion", "threshold": threshold})
    assert summary.metrics[0].status == status
    assert summary.exit_code == code


def test_a_gate_that_only_the_decided_grades_meet_is_undecided():
    results = [a_result("a", grades=[a_grade(1.0, name="style")]), a_result("b", grades=[a_grade(0, "error", "style")])]
    metric = only(results, {"name": "style", "threshold": 0.8})
    assert (metric.value, metric.low, metric.status) == (1.0, 0.5, "error")
    assert metric.reason == "between 0.5 and 1 over what is undecided; 0.8 is needed"


def test_a_missed_gate_fails_a_run_in_which_everything_passed():
    results = [a_result(grades=[behavior(True, False)])]
    summary = measured(results, {"name": "efficiency", "threshold": 0.8})
    assert (summary.succeeded, summary.exit_code) == (1, 1)
    assert summary.metrics[0].reason == "0.5 is below 0.8"


def test_floating_point_does_not_miss_a_gate():
    grades = [a_grade(0.1 + 0.2 + 0.4999999999999999, name="near")]
    assert only([a_result(grades=grades)], {"name": "near", "threshold": 0.8}).status == "passed"


def test_weights_share_the_metrics_score_and_gate_nothing():
    results = [a_result("a", grades=[a_grade(0.5, name="style")]), a_result("b", status="failed", grades=[])]
    summary = measured(results, {"name": "task_completion", "weight": 3}, {"name": "style"}, "trigger_accuracy")
    assert summary.metrics_score == pytest.approx((0.5 * 3 + 0.5) / 4)
    assert measured(results).metrics_score is None
    assert measured(results, {"name": "style", "weight": 0}).metrics_score is None
