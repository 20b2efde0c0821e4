"""The numbers of a run: outcomes are never mixed, the undecided never averaged in, order has no effect."""

import json
import math
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import waza
from results_made import a_grade, a_result, a_run
from waza.model import Trace, Usage
from waza.runs.outcomes import shown_names
from waza.runs.store import RunFolder, open_run
from waza.runs.summary import summarize, summarize_tasks
from waza.stats.scores import score_of_grades, std_dev, wilson

DATA = Path(__file__).parent.parent / "data" / "conformance"
HELPERS = [json.loads(line) for line in (DATA / "helpers_statistics.jsonl").read_text().splitlines()]


def trials(*statuses, task="t"):
    return [a_result(task, number, status) for number, status in enumerate(statuses, 1)]


def task_of(*statuses, **config):
    config = {"trials_per_task": len(statuses)} | config
    return summarize_tasks(a_run(trials(*statuses), tasks=["t"], config=config))[0]


@pytest.mark.parametrize("line", HELPERS, ids=lambda line: line["id"])
def test_the_original_s_statistics_come_out_the_same(line):
    if line["kind"] == "std_dev_population":
        values = line["input"]["values"] if isinstance(line["input"], dict) else line["input"]
        assert (std_dev(values) or 0) == pytest.approx(line["expected"], abs=1e-4)
        return
    interval = wilson(**line["input"])
    found = (interval.lower, interval.upper, interval.mean) if interval else (0, 0, 0)
    expected = line["expected"]
    assert found == pytest.approx((expected["lower"], expected["upper"], expected["mean"]), abs=1e-4)


@pytest.mark.parametrize(
    ("rule", "statuses", "expected"),
    [
        ("all", "pp", "passed"),
        ("all", "pf", "failed"),
        ("all", "pe", "error"),
        ("all", "fe", "failed"),
        ("all", "e", "error"),
        ("all", "s", "skipped"),
        ("all", "sp", "passed"),
        ("any", "fp", "passed"),
        ("any", "ep", "passed"),
        ("any", "ff", "failed"),
        ("any", "fe", "error"),
        (0.8, "ppppf", "passed"),
        (0.8, "pppff", "failed"),
        (0.8, "pppfe", "error"),
        (0.8, "ppppe", "passed"),
        (0.7, "pppppppfff", "passed"),
        (0.1, "pfffffffff", "passed"),
        (0.0, "ff", "failed"),
        ("0.5", "pf", "passed"),
    ],
)
def test_a_task_is_decided_when_no_undecided_trial_could_change_it(rule, statuses, expected):
    words = {"p": "passed", "f": "failed", "e": "error", "s": "skipped"}
    assert task_of(*(words[letter] for letter in statuses), pass_rule=rule).status == expected


def test_a_trial_that_was_not_run_is_undecided():
    run = a_run(trials("passed"), tasks=["t", "u"], config={"trials_per_task": 2})
    first, second = summarize_tasks(run)
    assert (first.status, first.not_run, first.reason) == ("error", 1, "not run")
    assert (second.status, second.not_run) == ("error", 2)
    summary = summarize(run)
    assert (summary.errors, summary.not_run, summary.exit_code) == (2, 1, 3)


def test_one_passed_and_nine_errors_are_one_of_ten_and_not_all_of_one():
    results = [a_result("t0"), *(a_result(f"t{n}", status="error", grades=[]) for n in range(1, 10))]
    summary = summarize(a_run(results))
    assert (summary.succeeded, summary.errors, summary.success_rate) == (1, 9, 0.1)
    assert (summary.aggregate_score, summary.score_low, summary.score_high) == (1.0, 0.1, 1.0)
    assert (summary.undecided, summary.exit_code) == (9, 3)


def test_an_undecided_grade_is_never_averaged_in():
    grades = [a_grade(1.0, weight=3), a_grade(0.5, weight=1), a_grade(0.0, "error", weight=4)]
    summary = summarize(a_run([a_result(status="failed", grades=grades)]))
    assert summary.aggregate_score == 0.75
    assert summary.weighted_score == 0.875
    assert summary.score_low == 0.4375
    assert summary.score_high == 0.9375
    assert summary.undecided == 1


def test_the_worked_example_of_weights_comes_out():
    grades = [a_grade(1.0, weight=3.0), a_grade(0.5, weight=0.5), a_grade(0.8)]
    summary = summarize(a_run([a_result(status="failed", grades=grades)]))
    assert summary.weighted_score == pytest.approx((3 + 0.25 + 0.8) / 4.5)


def test_weight_zero_takes_no_part_in_the_composite_and_its_verdict_still_decides():
    grades = [a_grade(1.0), a_grade(0.0, "failed", weight=0), a_grade(0.0, "error", weight=0)]
    summary = summarize(a_run([a_result(status="failed", grades=grades)]))
    assert (summary.weighted_score, summary.score_low, summary.score_high) == (1.0, 1.0, 1.0)
    assert (summary.aggregate_score, summary.undecided, summary.failed) == (0.5, 1, 1)
    only_zero_decided = score_of_grades([a_grade(1.0, weight=0), a_grade(0.0, "error", weight=2)])
    assert (only_zero_decided.weighted, only_zero_decided.low, only_zero_decided.high) == (None, 0.0, 1.0)
    assert score_of_grades([a_grade(1.0, weight=0), a_grade(0.5, "failed", weight=0)]).weighted == 0.75


def test_where_nothing_is_decided_there_is_no_score():
    for run in (a_run(), a_run([a_result(status="error", grades=[])]), a_run(tasks=["a"])):
        summary = summarize(run)
        assert summary.aggregate_score is None
        assert summary.weighted_score is None
        assert summary.min_score is None
        assert summary.std_dev is None
        assert summary.exit_code == 3


def test_spread_is_over_the_tasks_means():
    results = [
        a_result("a", 1, grades=[a_grade(1.0)]),
        a_result("a", 2, "failed", grades=[a_grade(0.5)]),
        a_result("b", 1, "failed", grades=[a_grade(0.25)]),
    ]
    summary = summarize(a_run(results))
    assert (summary.min_score, summary.max_score, summary.aggregate_score) == (0.25, 0.75, 0.5)
    assert summary.std_dev == 0.25


@pytest.mark.parametrize(
    ("statuses", "code"),
    [(["passed"], 0), (["passed", "failed", "error"], 1), (["passed", "error"], 3), (["skipped"], 0), ([], 3)],
)
def test_the_exit_code_follows_the_worst_that_is_certain(statuses, code):
    results = [a_result(f"t{number}", status=status) for number, status in enumerate(statuses)]
    assert summarize(a_run(results)).exit_code == code


def test_a_golden_task_and_its_name_and_tags_come_from_the_spec():
    (task,) = summarize_tasks(a_run(tasks=[{"id": "a", "name": "Greets", "tags": ["x"], "golden": True}]))
    assert (task.name, task.tags, task.golden) == ("Greets", ["x"], True)


def test_the_reason_of_a_timeout_is_told():
    run = a_run([a_result(status="failed", reason="timeout")])
    assert summarize_tasks(run)[0].reason == "timeout"


def test_tokens_and_cost_add_up_and_what_was_not_recorded_stays_unknown():
    usages = [Usage(input_tokens=1, cost_usd=0.1), Usage(input_tokens=2, cost_usd=0.2), Usage(output_tokens=-5), None]
    results = [a_result(f"t{n}", trace=Trace(input="", output="", usage=usage)) for n, usage in enumerate(usages)]
    usage = summarize(a_run(results)).usage
    assert (usage.input_tokens, usage.output_tokens) == (3, None)
    assert usage.cost_usd == pytest.approx(0.3)
    assert summarize(a_run(results[3:])).usage is None


@pytest.mark.parametrize("wrong", [-1, -0.5, float("nan"), float("inf")])
def test_a_sum_with_a_part_that_cannot_be_true_is_not_recorded(wrong):
    usages = [Usage(input_tokens=1, output_tokens=2, cost_usd=0.1), Usage(input_tokens=wrong, cost_usd=wrong)]
    results = [a_result(f"t{n}", trace=Trace(input="", output="", usage=usage)) for n, usage in enumerate(usages)]
    usage = summarize(a_run(results)).usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens, usage.cost_usd) == (None, 2, None, None)


def test_the_duration_is_how_long_something_was_going_on():
    starts = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.001Z", "2026-01-02T00:00:00+00:00"]
    results = [a_result(f"t{n}", started_at=start) for n, start in enumerate(starts)]
    assert summarize(a_run(results)).duration_ms == pytest.approx(5.0)
    assert summarize(a_run([a_result("a"), a_result("b")])).duration_ms == 4.0


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ("tags", [("x", 1, 2), ("y", 1, 1), ("untagged", 0, 1)]),
        ("model", [("big", 1, 3)]),
        ("task", [("a", 1, 1), ("b", 0, 1), ("c", 0, 1)]),
        (None, []),
    ],
)
def test_groups(by, groups):
    tasks = [{"id": "a", "tags": ["x", "y"]}, {"id": "b", "tags": ["x"]}, {"id": "c"}]
    results = [a_result("a"), a_result("b", status="failed"), a_result("c", status="error")]
    summary = summarize(a_run(results, tasks=tasks, config={"group_by": by}, model="big"))
    assert [(group.name, group.passed, group.total) for group in summary.groups] == groups


def test_two_graders_of_one_name_both_count_and_a_warning_says_so():
    result = a_result(grades=[a_grade(1.0), a_grade(0.0), a_grade(0.5, name="greets#2"), a_grade(0.5)], status="failed")
    assert shown_names(result) == ["greets", "greets#2", "greets#2#2", "greets#3"]
    summary = summarize(a_run([result]))
    assert summary.aggregate_score == 0.5
    assert "two graders are named 'greets'" in summary.warnings[0]


def test_rules_that_applied_in_no_trial_are_named_also_those_of_parts(tmp_path):
    rules = [
        {"name": "first", "require": "get", "before": "delete"},
        {"name": "second", "require": "test", "after": "edit", "when_absent": "pass"},
        {"name": "third", "require": "plan", "after": "start", "when_absent": "fail"},
        {"forbid": "rm"},
    ]
    alone = {"type": "trace_rules", "name": "careful", "config": {"rules": rules}}
    inner = {"type": "not", "name": "in", "config": {"grader": alone}}
    graders = [
        waza.load_grader(one) for one in (alone, {"type": "any_of", "name": "out", "config": {"graders": [inner]}})
    ]

    def graded(trial, *calls):
        trace = Trace.from_json({"input": "", "output": "", "tool_events": [{"tool_name": call} for call in calls]})
        return a_result("t", trial, "failed", grades=[grader.grade(trace) for grader in graders])

    def warnings(*results):
        run = a_run(results, tasks=["t"], config={"trials_per_task": len(results)}, id=f"of-{len(results)}")
        with RunFolder.create(tmp_path, run) as folder:
            folder.append(*results)
        found = summarize(run).warnings
        assert [one for one in summarize(open_run(tmp_path / run.id)).warnings if "rule" in one] == found
        return found

    says = "2 rules applied in no trial: first; second"
    assert warnings(graded(1, "ls")) == [f"grader 'careful': {says}", f"grader 'out/in/careful': {says}"]
    says = "1 rule applied in no trial: second"
    some = graded(1, "ls"), graded(2, "delete")
    assert warnings(*some) == [f"grader 'careful': {says}", f"grader 'out/in/careful': {says}"]
    assert warnings(*some, graded(3, "edit")) == []


GRADES = st.builds(
    a_grade,
    score=st.sampled_from([0.0, 1.0, 0.1, 1 / 3]) | st.floats(allow_nan=True, allow_infinity=True),
    status=st.sampled_from(["passed", "failed", "error"]),
    name=st.sampled_from(["a", "b"]),
    weight=st.floats(allow_nan=True, allow_infinity=True),
    kind=st.sampled_from(["text", "behavior"]),
)
RESULTS = st.lists(
    st.builds(
        a_result,
        task=st.sampled_from(["x", "y", "z"]),
        trial=st.integers(1, 3),
        status=st.sampled_from(["passed", "failed", "error", "skipped"]),
        grades=st.lists(GRADES, max_size=4),
        started_at=st.sampled_from(["", "2026-01-01T00:00:00Z", "not a time", "9999-12-31T23:59:59Z"]),
    ),
    max_size=8,
    unique_by=lambda result: (result.task_id, result.trial),
)
NAMES = ["task_completion", "behavior_quality", "efficiency", "a", "red", "new", "trigger_accuracy"]
PARTS = {"threshold": st.floats(0, 1), "weight": st.floats(0, 1e9), "grader": st.just("b"), "tag": st.just("red")}
METRICS = st.lists(st.fixed_dictionaries({"name": st.sampled_from(NAMES)}, optional=PARTS), max_size=4)
RULES = st.sampled_from(["all", "any", 0.5])


@given(results=RESULTS, metrics=METRICS, rule=RULES, planned=st.booleans(), seed=st.integers())
@settings(max_examples=100, deadline=None)
def test_numbers_are_shares_and_do_not_depend_on_which_trial_ended_first(results, metrics, rule, planned, seed):
    spec = {"metrics": metrics, "config": {"pass_rule": rule, "trials_per_task": 2}}
    if planned:
        spec["tasks"] = [{"id": "x", "tags": ["red"]}, {"id": "y"}, {"id": "w", "tags": ["red"]}]
    shuffled = random.Random(seed).sample(results, len(results))
    summary = summarize(a_run(results, spec=spec))
    assert summarize(a_run(shuffled, spec=spec)) == summary
    parts = (summary.succeeded, summary.failed, summary.errors, summary.skipped)
    assert sum(parts) == summary.total_tests
    shares = [summary.aggregate_score, summary.weighted_score, summary.score_low, summary.score_high]
    shares += [summary.success_rate, summary.metrics_score]
    shares += [number for metric in summary.metrics for number in (metric.value, metric.low, metric.high)]
    assert all(share is None or 0.0 <= share <= 1.0 for share in shares)
    if summary.weighted_score is not None:
        assert summary.score_low <= summary.weighted_score <= summary.score_high
    for metric in summary.metrics:
        if metric.value is not None:
            assert metric.low <= metric.value <= metric.high
    assert summary.exit_code == 1 or not summary.failed
    assert math.isfinite(summary.duration_ms)
