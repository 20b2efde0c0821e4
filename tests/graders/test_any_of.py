"""The `any_of` grader."""

import pytest
from combined_cases import DONE, OPEN, WRONG, combined, judged, not_asked, refusal
from tool_cases import cases, holds

import waza


@pytest.mark.parametrize("case", cases("any_of"), ids=lambda case: case["id"])
def test_conformance(case, tmp_path):
    assert holds(case, tmp_path)


PASS = {"tool_calls": [{"name": "set_waza_grade_pass", "arguments": {"reason": "fine"}}]}
FAIL = {"tool_calls": [{"name": "set_waza_grade_fail", "arguments": {"reason": "no"}}]}


def test_judges_are_asked_one_after_another_until_one_passes():
    judge = waza.judges.ScriptedJudge([FAIL, PASS])
    grade = combined("any_of", judged("one"), WRONG, judged("two"), judged("three"), judge=judge)
    assert (grade.status, not_asked(grade)) == ("passed", ["three"])
    assert [part["status"] for part in grade.details["parts"]] == ["failed", "failed", "passed", "error"]
    assert grade.feedback == "passed: two"


def test_a_part_that_passed_decides_without_a_judge():
    judge = waza.judges.ScriptedJudge([])
    grade = combined("any_of", judged("one"), DONE, judge=judge)
    assert grade.passed and not_asked(grade) == ["one"]


def test_feedback_tells_what_the_parts_say():
    assert combined("any_of", WRONG, WRONG).feedback.startswith("0 of 2 graders passed, 1 needed: wrong: ")
    undecided = combined("any_of", WRONG, OPEN)
    assert undecided.status == "error"
    assert undecided.feedback.startswith("cannot tell whether at least 1 of 2 graders pass: open: ")


def test_a_weight_is_refused_where_it_has_no_effect():
    assert refusal("any_of", {"graders": [DONE, {**DONE, "weight": 1}]}) == [
        "config.graders[1].weight: 'weight' has no effect inside any_of"
    ]


def test_a_combination_can_be_loaded_from_what_a_run_stores():
    from waza.suites.suite import grader_as_data

    spec = {"type": "any_of", "name": "g", "graders": [DONE, {"type": "not", "grader": WRONG}]}
    stored = grader_as_data(waza.load_grader(spec))
    assert grader_as_data(waza.load_grader(stored)) == stored
    assert stored["config"]["graders"][1]["config"]["grader"]["config"] == {"contains": ["wrong"]}
