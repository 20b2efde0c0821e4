"""The `llm_comparison` grader: how near an output is to a reference answer."""

import pytest

import waza
from waza import Trace
from waza.graders.llm_comparison import LlmComparisonGrader
from waza.judges import ScriptedJudge


def judge(*scores, when=""):
    calls = [{"name": "set_waza_grade_score", "arguments": {"score": score, "reason": "so"}} for score in scores]
    return ScriptedJudge([{"when": when, "tool_calls": [call]} for call in calls])


def test_a_reference_is_compared_with():
    grader, answers = LlmComparisonGrader(reference="Five days."), judge(4, 3)
    grades = [grader.grade(Trace(input="", output="5 days"), judge=answers) for _ in range(2)]
    assert [(grade.status, grade.score) for grade in grades] == [("passed", 0.75), ("failed", 0.5)]


def test_the_judge_sees_the_reference_that_stands_in_a_file(tmp_path):
    (tmp_path / "answer.txt").write_text("Within five days.")
    grader = waza.load_grader({"type": "llm_comparison", "reference_file": "answer.txt"}, base_dir=tmp_path)
    assert grader.grade(Trace(input="", output="x"), judge=judge(5, when="Within five days.")).passed
    assert grader.asks() == ["Within five days."]


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"reference": " "},
        {"reference_file": "nowhere.txt"},
        {"reference_file": "../outside.txt"},
        {"reference": "x", "reference_file": "y.txt"},
        {"reference": "x", "rubric": "helpfulness"},
        {"reference": "x", "threshold": 2},
    ],
)
def test_what_could_not_be_compared_is_refused(config, tmp_path):
    with pytest.raises(waza.SpecError):
        waza.load_grader({"type": "llm_comparison", **config}, base_dir=tmp_path)
