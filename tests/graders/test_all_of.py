"""The `all_of` grader."""

import pytest
from combined_cases import DONE, OPEN, WRONG, combined, judged, not_asked, refusal
from tool_cases import cases, holds

import waza


@pytest.mark.parametrize("case", cases("all_of"), ids=lambda case: case["id"])
def test_conformance(case, tmp_path):
    assert holds(case, tmp_path)


def test_each_part_is_a_check_and_its_details_are_there():
    grade = combined("all_of", DONE, {**WRONG, "weight": 3}, WRONG)
    assert grade.score == pytest.approx(1 / 5)
    assert [(check.ok, check.claim) for check in grade.checks] == [
        (True, "done passes"),
        (False, "wrong passes"),
        (False, "wrong#2 passes"),
    ]
    assert [part["name"] for part in grade.details["parts"]] == ["done", "wrong", "wrong#2"]
    assert set(grade.details["parts"][0]) == {"name", "type", "status", "score", "feedback", "checks"}
    assert grade.feedback.startswith("wrong: ")


def test_a_judge_is_asked_only_where_it_could_change_the_outcome():
    judge = waza.judges.ScriptedJudge([])
    grade = combined("all_of", judged("first"), WRONG, {"type": "not", "grader": judged("second")}, judge=judge)
    assert grade.status == "failed" and grade.score == 0.0
    assert not_asked(grade) == ["first"]
    assert "not asked" in grade.details["parts"][2]["details"]["parts"][0]["feedback"]


def test_the_files_and_the_judge_of_parts_are_those_of_the_whole(tmp_path):
    (tmp_path / "s.json").write_text("{}")
    part = {"type": "json_schema", "config": {"schema_file": "s.json"}}
    spec = {"type": "all_of", "config": {"graders": [part, {"type": "not", "grader": judged("j")}]}}
    grader = waza.load_grader(spec, base_dir=tmp_path)
    assert list(grader.reads()) == ["s.json"] and grader.asks() is not None
    assert waza.load_grader({"type": "all_of", "config": {"graders": [DONE]}}).asks() is None


def test_mistakes_are_refused_at_their_place():
    assert refusal("all_of", {}) == ["config.graders: 'graders' is missing"]
    assert "must not be empty" in refusal("all_of", {"graders": []})[0]
    typo = {"type": "text", "config": {"contians": ["a"]}}
    assert refusal("all_of", {"graders": [DONE, {"type": "any_of", "graders": [typo]}]}) == [
        "config.graders[1].graders[0].config.contians: unknown key 'contians'; did you mean 'contains'?"
    ]
    assert "at most 64 graders" in refusal("all_of", {"graders": [DONE] * 65})[0]
    assert "weight 0" in refusal("all_of", {"graders": [{**DONE, "weight": 0}]})[0]


def test_undecided_parts_are_left_out_of_the_mean():
    grade = combined("all_of", WRONG, OPEN)
    assert (grade.status, grade.score) == ("failed", 0.0)
    assert combined("all_of", DONE, OPEN).status == "error"
