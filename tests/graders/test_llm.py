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


LONG = "How well does the answer explain, to somebody new to the product, what went wrong and what to do next?"


@pytest.mark.parametrize(
    ("rubric", "is_text"),
    [
        ("Is it clear?\nIs it short?", True),
        ("  Is it clear?\n", False),
        (LONG, True),
        (LONG[:100].strip(), False),
        (LONG.replace(" ", "_"), False),
        (f"{LONG}.md", False),
        ("a/b " * 30, True),
        ("x " * 3000, True),
        ("\nrelevance-1-5\n", None),
    ],
)
def test_a_rubric_of_some_length_is_the_text_itself(rubric, is_text, tmp_path):
    judge = ScriptedJudge(
        [
            {
                "when": rubric.strip(),
                "tool_calls": [{"name": "set_waza_grade_score", "arguments": {"score": 4.0, "reason": "r"}}],
            }
        ]
    )
    if is_text is False:
        with pytest.raises(waza.SpecError, match=r"rubric|is not there"):
            waza.load_grader({"type": "llm", "rubric": rubric}, base_dir=tmp_path)
        return
    grader = waza.load_grader({"type": "llm", "rubric": rubric}, base_dir=tmp_path)
    assert (grader.rubric_in_use is None) is (is_text is True)
    if is_text:
        assert grader.grade(Trace(input="", output="x"), judge=judge).score == 0.75 and grader.question_name
        with pytest.raises(waza.SpecError, match="keep one of them"):
            waza.load_grader({"type": "llm", "rubric": rubric, "prompt": "p"}, base_dir=tmp_path)


def test_a_long_rubric_that_names_a_file_is_that_file(tmp_path):
    name = "a rubric " * 12 + "of ours"
    (tmp_path / name).write_text("no front matter")
    with pytest.raises(waza.SpecError):
        waza.load_grader({"type": "llm", "rubric": name}, base_dir=tmp_path)
