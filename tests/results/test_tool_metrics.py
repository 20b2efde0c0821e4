"""Suite-level tool numbers: read from stored grades and calls, without the graders that made them."""

import subprocess
import sys

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import waza
from waza.model import Result, Run
from waza.results.tool_metrics import tool_metrics


def trial(task, made, expect=None, number=1, **more):
    """One result: the calls (name, arguments, success), graded with `tool_calls`."""
    events = None
    if made is not None:
        events = [waza.ToolEvent(tool_name=name, args=args, success=ok) for name, args, ok in made]
    trace = waza.Trace(input="", output="", tool_events=events)
    grades = [waza.load_grader({"type": "tool_calls", "config": {"expect": expect}}).grade(trace)] if expect else []
    grades += [waza.load_grader(spec).grade(trace) for spec in more.get("graders", [])]
    return Result(task_id=task, trial=number, status="passed", trace=trace, grades=grades)


def numbers(*results):
    run = Run(id="r", name="n", started_at="", engine="mock", results=list(results))
    stored = msgspec.json.decode(msgspec.json.encode(run.results), type=list[Result])
    return tool_metrics(msgspec.structs.replace(run, results=stored))


SEARCH = [{"name": "search", "args": {"q": "x"}}]


def test_nothing_recorded_gives_nothing():
    assert numbers() is None
    assert numbers(trial("a", None)) is None


def test_selection_accuracy_is_the_share_of_tasks_whose_first_call_is_of_an_expected_tool():
    right = trial("a", [("search", {}, True), ("rm", {}, True)], SEARCH)
    late = trial("b", [("rm", {}, True), ("search", {"q": "x"}, True)], SEARCH)
    silent = trial("c", [], SEARCH)
    unasked = trial("d", [("rm", {}, True)])
    unseen = trial("e", None, SEARCH)
    assert numbers(right, late, silent, unasked, unseen)["selection_accuracy"] == pytest.approx(1 / 3)
    assert numbers(unasked)["selection_accuracy"] is None


def test_a_task_counts_once_with_its_share_of_trials():
    results = [
        trial("a", [(name, {}, True)], SEARCH, number) for number, name in enumerate(["search", "rm", "rm", "rm"])
    ]
    assert numbers(*results, trial("b", [("search", {}, True)], SEARCH))["selection_accuracy"] == pytest.approx(0.625)


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "tool_calls", "config": {"required_tools": ["bash"]}},
        {"type": "tool_constraint", "config": {"expect_tools": [{"tool": "BA"}]}},
        {"type": "behavior", "config": {"required_tools": ["bash"]}},
        {"type": "action_sequence", "config": {"matching_mode": "exact_match", "expected_actions": ["bash"]}},
    ],
)
def test_every_grader_that_expects_tools_takes_part(spec):
    assert numbers(trial("a", [("bash", {}, True)], graders=[spec]))["selection_accuracy"] == 1.0
    assert numbers(trial("a", [("edit", {}, True)], graders=[spec]))["selection_accuracy"] == 0.0


def test_a_call_that_is_forbidden_is_not_an_expected_one():
    spec = [{"name": "rm", "count": {"max": 0}}, {"name": "search"}]
    assert numbers(trial("a", [("rm", {}, True)], spec))["selection_accuracy"] == 0.0


def test_input_correctness_is_the_share_of_assigned_calls_whose_arguments_all_matched():
    expect = [
        *SEARCH,
        {"name": "open", "args": {"path": {"regex": "^/"}}},
        {"name": "ls"},
        {"name": "gone", "args": {"a": 1}},
    ]
    made = [("search", {"q": "x"}, True), ("open", {"path": "a"}, True), ("ls", {}, True)]
    assert numbers(trial("a", made, expect))["input_correctness"] == 0.5
    assert numbers(trial("a", made, [{"name": "ls"}]))["input_correctness"] is None


def test_call_counts_are_told_as_a_distribution():
    counts = [0, 1, 2, 3, 5, 6, 20, 60]
    found = numbers(*(trial(str(n), [("t", {}, True)] * n) for n in counts))["call_count"]
    assert found == {
        "min": 0,
        "median": 4.0,
        "mean": pytest.approx(97 / 8),
        "p95": 60,
        "max": 60,
        "histogram": {"0": 1, "1": 1, "2": 1, "3-5": 2, "6-10": 1, "11-20": 1, "21-50": 0, "51+": 1},
    }


def test_success_rate_is_over_all_calls():
    made = [("t", {}, True), ("t", {}, False), ("t", {}, True)]
    assert numbers(trial("a", made), trial("b", [("t", {}, True)]))["success_rate"] == 0.75
    assert numbers(trial("a", []))["success_rate"] is None


odd = st.none() | st.booleans() | st.text() | st.lists(st.just({})) | st.just({"expectations": [1, {"calls": 2}]})


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["alignment", "first_call_fits", "x"]), odd))
def test_details_of_graders_we_do_not_know_do_no_harm(details):
    grade = waza.Grade(name="g", type="other", status="passed", score=1.0, feedback="", details=details)
    result = msgspec.structs.replace(trial("a", []), grades=[grade])
    assert tool_metrics(Run(id="r", name="n", started_at="", engine="e", results=[result])) is not None


def test_the_numbers_need_no_grader_to_be_loaded():
    code = "import sys, waza.results.tool_metrics; print([m for m in sys.modules if m.startswith('waza.graders')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
