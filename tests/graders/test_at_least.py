"""The `at_least` grader."""

import pytest
from combined_cases import DONE, OPEN, WRONG, combined, judged, not_asked, refusal
from tool_cases import cases, holds

import waza


@pytest.mark.parametrize("case", cases("at_least"), ids=lambda case: case["id"])
def test_conformance(case, tmp_path):
    assert holds(case, tmp_path)


def test_it_is_decided_as_soon_as_undecided_parts_cannot_change_it():
    assert combined("at_least", DONE, DONE, OPEN, count=2).passed
    assert combined("at_least", DONE, OPEN, WRONG, count=2).status == "error"
    failed = combined("at_least", DONE, OPEN, WRONG, count=3)
    assert (failed.status, failed.score) == ("failed", pytest.approx(1 / 3))
    assert [check.claim for check in failed.checks] == ["at least 3 of 3 graders pass"]


def test_a_judge_that_cannot_make_up_for_the_rest_is_not_asked():
    judge = waza.judges.ScriptedJudge([])
    grade = combined("at_least", judged("j"), WRONG, WRONG, count=2, judge=judge)
    assert grade.status == "failed" and not_asked(grade) == ["j"]


def test_a_count_that_could_never_or_always_be_reached_is_refused():
    assert refusal("at_least", {"graders": [DONE], "count": 2}) == [
        ": count (2) is more than there are graders (1): it could never pass"
    ]
    assert "at least 1" in refusal("at_least", {"graders": [DONE], "count": 0})[0]
    assert refusal("at_least", {"graders": [DONE]}) == ["config.count: 'count' is missing"]
