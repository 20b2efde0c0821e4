"""The `llm` grader: a score from 1 to 5 and a threshold."""

import pytest

import waza
from waza import Trace
from waza.graders.llm import LlmGrader
from waza.judges import ScriptedJudge


def scored(score, **options):
    judge = ScriptedJudge([{"tool_calls": [{"name": "set_waza_grade_score", "arguments": {"score": score}}]}])
    return LlmGrader(prompt="How clear?", **options).grade(Trace(input="", output="x"), judge=judge)


@pytest.mark.parametrize("score", [1, 2, 3, 4, 5])
def test_the_score_is_told_from_0_to_1_and_passes_from_the_threshold(score):
    grade = scored(score)
    assert grade.score == (score - 1) / 4 and grade.passed == (score >= 4)
    assert scored(score, threshold=(score - 1) / 4 or 0.01).passed == (score > 1)
    assert f"{score} of 5" in grade.feedback


@pytest.mark.parametrize(
    "config", [{}, {"rubric": "helpfulness"}, {"prompt": "x", "threshold": 1.5}, {"prompt": "x", "threshold": 0}]
)
def test_what_could_not_be_scored_is_refused(config, tmp_path):
    with pytest.raises(waza.SpecError):
        waza.load_grader({"type": "llm", **config}, base_dir=tmp_path)


def test_a_rubric_on_the_scale_is_taken(tmp_path):
    grader = waza.load_grader({"type": "llm", "rubric": "relevance-1-5"}, base_dir=tmp_path)
    judge = ScriptedJudge([{"tool_calls": [{"name": "set_waza_grade_score", "arguments": {"score": 4}}]}])
    grade = grader.grade(Trace(input="", output="x"), judge=judge)
    assert grade.passed and grade.details["rubric"]["name"] == "relevance-1-5"
