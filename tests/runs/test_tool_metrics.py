"""Suite-level tool numbers: read from stored grades and calls, without the graders that made them."""

import subprocess
import sys

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import waza
from waza.model import Result, Run
from waza.runs.metrics import tool_metrics
from waza.suites.graders import after_turn
from waza.traces.conversation import join_turns


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


def graded(made, *specs, expected=None):
    """One result whose grades are those of these graders, and of an `expected:` block."""
    result = trial("a", [(call, {}, True) if isinstance(call, str) else (*call, True) for call in made], graders=specs)
    more = [grader.grade(result.trace) for grader in waza.load_expected(expected)] if expected else []
    return msgspec.structs.replace(result, grades=[*result.grades, *more])


def sequence(mode, *actions):
    return {"type": "action_sequence", "config": {"matching_mode": mode, "expected_actions": list(actions)}}


def calls(order, *names, **more):
    return {"type": "tool_calls", "config": {"order": order, "expect": [{"name": name} for name in names], **more}}


OPTIONAL = {"expect": [{"name": "x", "count": {"min": 0, "max": 1}}, {"name": "a"}], "order": "in_order"}
SELECTION = [
    # what is expected, and for each row of calls whether the first one is right (None: nothing is expected)
    (sequence("in_order_match", "a", "b"), {}, {"ab": 1, "ba": 0, "xa": 0, "": 0}),
    (sequence("exact_match", "a", "b"), {}, {"ab": 1, "ba": 0}),
    (sequence("any_order_match", "a", "b"), {}, {"ab": 1, "ba": 1, "xa": 0}),
    (calls("in_order", "a", "b"), {}, {"ab": 1, "ba": 0}),
    (calls("exact", "a", "b"), {}, {"ab": 1, "ba": 0}),
    (calls("any", "a", "b"), {}, {"ab": 1, "ba": 1, "xb": 0}),
    (calls("in_order", "a", "b", required_tools=["b"]), {}, {"ba": 0, "ab": 1}),
    ({"type": "tool_calls", "config": OPTIONAL}, {}, {"xa": 1, "a": 1, "ya": 0}),
    ({"type": "tool_calls", "config": {"expect": [{"name": "x", "count": {"max": 0}}]}}, {}, {"a": None, "x": None}),
    ({"type": "tool_calls", "config": {"forbidden_tools": ["x"]}}, {}, {"a": None, "": None}),
    ({"type": "tool_constraint", "config": {"reject_tools": ["x"]}}, {}, {"a": None}),
    ({"type": "tool_constraint", "config": {"allow_only": ["x"]}}, {}, {"a": None}),
    ({"type": "behavior", "config": {"forbidden_tools": ["x"], "max_tool_calls": 3}}, {}, {"a": None}),
    (None, {"tools_not_called": ["x"]}, {"a": None}),
    (None, {"tools_called": ["a", "b"]}, {"ba": 1, "xa": 0}),
    (None, {"tool_call_order": ["a", "b"]}, {"ba": 0, "ab": 1}),
    (None, {"tools_called": ["a", "b"], "tool_call_order": ["a", "b"]}, {"ba": 0, "ab": 1}),
    (None, {"tool_calls": [{"name": "a"}]}, {"a": 1, "b": 0}),
    (None, {"behavior": {"required_tools": ["a"]}}, {"a": 1, "xa": 0}),
    (None, {"behavior": {"forbidden_tools": ["x"], "max_tool_calls": 1}}, {"a": None}),
    (None, {"outcomes": [{"type": "tool_called", "tool_name": "a"}]}, {"a": 1, "xa": 0}),
    (None, {"outcomes": [{"type": "task_completed"}]}, {"a": None}),
]


@pytest.mark.parametrize(("spec", "expected", "rows"), SELECTION, ids=lambda item: str(item)[:60])
def test_the_first_call_is_the_first_of_an_ordered_expectation_and_any_of_an_unordered_one(spec, expected, rows):
    for made, right in rows.items():
        found = numbers(graded(made, *([spec] if spec else []), expected=expected))
        assert found["selection_accuracy"] == right, made


TOOL = {"type": "tool_constraint", "config": {"expect_tools": [{"tool": "^run$", "command_pattern": "test"}]}}
ARGS = {"type": "tool_constraint", "config": {"expect_tools": [{"name": "run", "args": {"n": 1}}]}}
RIGHT = {"type": "tool_calls", "config": {"expect": [{"name": "run", "args": {"n": 1}}]}}
OTHER = {"type": "tool_calls", "config": {"expect": [{"name": "run", "args": {"n": 2}}]}}
NEVER = {"type": "tool_calls", "config": {"expect": [{"name": "run", "args": {"n": 9}, "count": {"max": 0}}]}}
REJECT = {"type": "tool_constraint", "config": {"reject_tools": [{"name": "run", "args": {"n": 9}}]}}
RUNS = [("run", {"n": 1}), ("run", {"n": 2}), ("run", {"n": 3}), "ls"]


@pytest.mark.parametrize(
    ("specs", "expected", "made", "share"),
    [
        ([RIGHT], None, RUNS, 1 / 3),
        ([ARGS], None, RUNS, 1 / 3),
        ([RIGHT, ARGS], None, RUNS, 1 / 3),
        ([RIGHT, OTHER], None, RUNS, 2 / 3),
        ([], {"tool_calls": [{"name": "run", "args": {"n": 2}}]}, RUNS, 1 / 3),
        ([TOOL], None, [("run", {"command": "npm test"}), ("run", {"command": "ls"})], 1 / 2),
        ([RIGHT], None, [("run", {"n": 1}), ("run", {"n": 1})], 1.0),
        ([NEVER], None, RUNS, None),
        ([REJECT], None, RUNS, None),
        ([RIGHT], None, ["ls"], None),
        ([calls("any", "run")], None, RUNS, None),
    ],
)
def test_input_correctness_counts_calls_of_tools_whose_arguments_are_stated(specs, expected, made, share):
    assert numbers(graded(made, *specs, expected=expected))["input_correctness"] == share


@settings(max_examples=60, deadline=None)
@given(
    made=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2)), max_size=6),
    stated=st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.integers(0, 2)), min_size=1, max_size=4),
    order=st.sampled_from(["any", "in_order", "exact"]),
    split=st.integers(0, 4),
)
def test_both_shares_are_what_their_definitions_say(made, stated, order, split):
    entries = [{"name": name, **({} if n is None else {"args": {"n": n}})} for name, n in stated]
    parts = [part for part in (entries[:split], entries[split:]) if part]
    specs = [{"type": "tool_calls", "config": {"order": order, "expect": part}} for part in parts]
    found = numbers(graded([(name, {"n": n}) for name, n in made], *specs))
    about = [call for call in made if any(call[0] == name for name, n in stated if n is not None)]
    right = [call for call in about if call in stated]
    assert found["input_correctness"] == (len(right) / len(about) if about else None)
    firsts = {part[0]["name"] for part in parts} if order != "any" else {name for name, _ in stated}
    assert found["selection_accuracy"] == float(bool(made) and made[0][0] in firsts)


def test_a_conversation_counts_calls_by_their_places_in_all_of_it():
    turns = [
        waza.Trace(input="x", output="y", tool_events=[waza.ToolEvent(tool_name="run", args={"n": n})]) for n in (1, 2)
    ]
    trace = join_turns(["x", "x"], turns)
    grades = [
        after_turn(waza.load_grader(spec), turn, 2, is_alone=True).grade(trace)
        for turn, spec in ((1, RIGHT), (2, RIGHT))
    ]
    result = Result(task_id="a", trial=1, status="passed", trace=trace, grades=grades)
    assert numbers(result)["input_correctness"] == 0.5


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


odd = st.none() | st.booleans() | st.text() | st.lists(st.just({})) | st.just({"calls": [1, "x"], "right": [{}, 1, 7]})


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["argument_calls", "first_call_fits", "turn", "first_call_is_ordered"]), odd))
def test_details_of_graders_we_do_not_know_do_no_harm(details):
    grade = waza.Grade(name="g", type="other", status="passed", score=1.0, feedback="", details=details)
    result = msgspec.structs.replace(trial("a", []), grades=[grade])
    assert tool_metrics(Run(id="r", name="n", started_at="", engine="e", results=[result])) is not None


def test_the_numbers_need_no_grader_to_be_loaded():
    code = "import sys, waza.runs.metrics; print([m for m in sys.modules if m.startswith('waza.graders')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
