"""The results file: the original's fields for old readers, and everything else next to them."""

import json

import pytest

from results_made import a_grade, a_result, a_run
from waza.model import Check, SkillInvocation, ToolEvent, Trace, Usage
from waza.reports.json import JsonReport


def tree_of(run):
    def refuse(constant):
        raise ValueError(f"{constant} is not JSON")

    return json.loads(JsonReport().text(run), parse_constant=refuse)


@pytest.fixture
def trace():
    return Trace(
        input="list files",
        output="a, b",
        duration_ms=12.5,
        session_id="s-1",
        model="m-1",
        events=[
            {"type": "assistant_message", "turn": 1, "content": "looking"},
            {"type": "tool_call", "turn": 1, "tool_name": "bash", "tool_call_id": "c1", "args": {"command": "ls"}},
            {"type": "tool_result", "turn": 1, "tool_call_id": "c1", "result": "a b", "success": True},
        ],
        tool_events=[
            ToolEvent(tool_name="bash", args={"command": "ls", "deep": {"x": 1}}, result="a b", tool_call_id="c1"),
            ToolEvent(tool_name="bash", success=False, error="no"),
        ],
        usage=Usage(input_tokens=3, output_tokens=4, turns=1, cost_usd=0.5),
        skill_invocations=[SkillInvocation(name="lister", path="skills/lister")],
        outcome={"done": True},
    )


def test_the_original_s_field_tree_is_there(trace):
    config = {"trials_per_task": 1, "timeout_seconds": 60, "judge_model": "j"}
    tasks = [{"id": "t", "name": "Lists", "tags": ["x"], "golden": True}]
    tree = tree_of(a_run([a_result(trace=trace)], tasks=tasks, config=config, id="run-1", skill="lister", model="m-1"))
    assert tree["schemaVersion"] == "1.5"
    assert (tree["eval_id"], tree["skill"], tree["eval_name"]) == ("run-1", "lister", "suite")
    assert tree["timestamp"] == "2026-01-02T03:04:05Z"
    expected = {"runs_per_test": 1, "model_id": "m-1", "engine_type": "mock", "timeout_sec": 60, "judge_model": "j"}
    assert tree["config"] == expected
    summary = tree["summary"]
    counts = ("total_tests", "succeeded", "failed", "errors", "skipped", "success_rate", "aggregate_score", "undecided")
    assert [summary[name] for name in counts] == [1, 1, 0, 0, 0, 1.0, 1.0, 0]
    assert (summary["weighted_score"], summary["score_low"], summary["score_high"]) == (1.0, 1.0, 1.0)
    assert summary["duration_ms"] == 12
    assert summary["usage"]["input_tokens"] == 3
    (task,) = tree["tasks"]
    assert (task["test_id"], task["display_name"], task["golden"], task["status"]) == ("t", "Lists", True, "passed")
    assert task["stats"]["pass_rate"] == 1.0
    assert task["stats"]["total_runs"] == 1


def test_a_trial_has_its_trace(trace):
    (run,) = tree_of(a_run([a_result(trace=trace, snapshot="abc", attempts=2)]))["tasks"][0]["runs"]
    assert (run["run_number"], run["attempts"], run["prompt"], run["final_output"]) == (1, 2, "list files", "a, b")
    digest = run["session_digest"]
    assert (digest["tool_call_count"], digest["tools_used"], digest["session_id"]) == (2, ["bash", "bash"], "s-1")
    assert digest["tool_calls"][0] == {
        "id": "c1",
        "name": "bash",
        "arguments": {"command": "ls", "deep": {"x": 1}},
        "result": "a b",
        "success": True,
    }
    assert digest["errors"] == []
    assert digest["usage"] == run["usage"] == {"input_tokens": 3, "output_tokens": 4, "turns": 1, "cost_usd": 0.5}
    assert run["transcript"][1]["arguments"] == {"command": "ls"}
    assert run["transcript"][2]["tool_result"] == "a b"
    event = run["tool_events"][0]
    assert (event["turn"], event["tool_name"], event["args"]) == (1, "bash", {"command": "ls", "deep": {"x": 1}})
    assert {"result", "success", "duration_ms"} <= set(event)
    assert run["tool_events"][1]["error"] == "no"
    assert run["skill_invocations"] == [{"name": "lister", "path": "skills/lister"}]
    assert run["snapshot_path"] == "artifacts/abc"
    assert (run["model"], run["outcome"], run["trace_status"]) == ("m-1", {"done": True}, "success")


def test_grades_are_a_list_and_validations_the_old_map():
    grades = [
        a_grade(0.5, weight=2.0, checks=[Check(True, "a"), Check(False, "b", "b is missing", "b", None)]),
        a_grade(1.0),
        a_grade(0.0, "error", name="judge", checks=[]),
    ]
    (run,) = tree_of(a_run([a_result(status="failed", grades=grades)]))["tasks"][0]["runs"]
    assert list(run["validations"]) == ["greets", "greets#2", "judge"]
    first = run["validations"]["greets"]
    assert {"identifier", "type", "score", "weight", "passed", "feedback", "details", "duration_ms"} <= set(first)
    assert (first["score"], first["passed"], first["weight"]) == (0.5, False, 2.0)
    assert (run["validations"]["judge"]["score"], run["validations"]["judge"]["passed"]) == (0.0, False)
    assert [(grade["name"], grade["status"]) for grade in run["grades"]] == [
        ("greets", "failed"),
        ("greets", "passed"),
        ("judge", "error"),
    ]
    assert run["grades"][1]["shown_as"] == "greets#2"
    assert run["grades"][0]["checks"][1] == {"ok": False, "claim": "b", "failure": "b is missing", "expected": "b"}


def test_what_could_not_be_observed_is_null_and_what_did_not_happen_is_empty():
    unseen = a_result("a", trace=Trace(input="", output=""))
    none = a_result("b", trace=Trace(input="", output="", tool_events=[]))
    runs = [task["runs"][0] for task in tree_of(a_run([unseen, none]))["tasks"]]
    assert [run["tool_events"] for run in runs] == [None, []]
    assert [run["session_digest"]["tool_call_count"] for run in runs] == [None, 0]
    assert runs[0]["transcript"] is None


def test_an_agent_that_could_not_run_is_an_error_with_its_message():
    trace = Trace(input="", output="", status="error", error="not found")
    tree = tree_of(a_run([a_result(status="error", trace=trace, grades=[], reason="not found")]))
    assert (tree["summary"]["errors"], tree["summary"]["failed"], tree["summary"]["undecided"]) == (1, 0, 1)
    assert tree["summary"]["aggregate_score"] is None
    (run,) = tree["tasks"][0]["runs"]
    assert (run["status"], run["error_msg"], run["session_digest"]["errors"]) == ("error", "not found", ["not found"])


def test_metrics_and_groups_are_written():
    spec = {"metrics": [{"name": "task_completion", "threshold": 0.9, "weight": 2}, {"name": "trigger_accuracy"}]}
    results = [a_result("a"), a_result("b", status="failed")]
    tree = tree_of(a_run(results, spec=spec, config={"group_by": "task"}))
    metric = tree["metrics"]["task_completion"]
    assert (metric["identifier"], metric["value"], metric["threshold"]) == ("task_completion", 0.5, 0.9)
    assert (metric["passed"], metric["status"]) == (False, "failed")
    assert tree["metrics"]["trigger_accuracy"]["details"] == {"reason": "no trigger tests were run"}
    assert tree["summary"]["groups"][0] == {"name": "a", "passed": 1, "total": 1, "avg_score": 1.0}
    assert tree["summary"]["metrics_score"] == 0.5


def test_tool_use_over_the_suite_is_reported_where_it_was_observed(trace):
    assert tree_of(a_run([a_result(trace=trace)]))["summary"]["tool_metrics"]["success_rate"] == 0.5
    assert "tool_metrics" not in tree_of(a_run([a_result(trace=Trace(input="", output=""))]))["summary"]


def test_several_trials_have_an_interval():
    results = [a_result(trial=1), a_result(trial=2, status="failed"), a_result(trial=3)]
    stats = tree_of(a_run(results, config={"trials_per_task": 3}))["tasks"][0]["stats"]
    assert stats["pass_rate_ci"]["lower"] == pytest.approx(0.0943, abs=1e-4)
    assert (stats["flaky"], stats["passed_runs"], stats["failed_runs"]) == (True, 2, 1)
    assert stats["flakiness_percent"] == pytest.approx(100 / 3)


def test_a_run_that_did_not_end_says_so():
    tree = tree_of(a_run([a_result("a")], tasks=["a", "b"], complete=False))
    assert tree["complete"] is False
    assert tree["tasks"][1] | {"stats": None} == {
        "test_id": "b",
        "display_name": "b",
        "status": "error",
        "reason": "not run",
        "runs": [],
        "stats": None,
    }


def test_the_text_is_strict_json_whatever_an_agent_wrote():
    numbers = {"nan": float("nan"), "inf": float("inf"), "big": 10**30}
    trace = Trace(input="", output="\ud800 \u2028 \x00", outcome=numbers)
    run = a_run([a_result(trace=trace, grades=[a_grade(float("nan"), "passed", weight=float("inf"))])])
    tree = tree_of(run)
    assert tree["tasks"][0]["runs"][0]["final_output"] == "\ufffd \u2028 \x00"
    assert tree["summary"]["aggregate_score"] is None
    JsonReport().text(run).encode("utf-8")


def test_the_same_run_gives_the_same_text_whatever_order_trials_ended_in():
    results = [a_result("a"), a_result("b", 1), a_result("b", 2)]
    texts = {JsonReport().text(a_run(order, tasks=["b", "a"])) for order in (results, results[::-1])}
    assert len(texts) == 1
