"""The `prompt` grader: what its conformance cases say, what comparisons mean, what is refused."""

import json
from pathlib import Path

import pytest
from file_cases import lay

import waza
from waza import Trace
from waza.graders.prompt import PromptGrader
from waza.judges import ScriptedJudge

DATA = Path(__file__).parent.parent / "data" / "conformance" / "graders_judged.jsonl"
CASES = [json.loads(line) for line in DATA.read_text().splitlines()]


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_conformance(case, tmp_path):
    lay(tmp_path, case.get("spec_files", {}))
    judge = None if case.get("judge") is None else ScriptedJudge(case["judge"])
    want = case["expect"]
    try:
        grader = waza.load_grader(case["grader"], base_dir=tmp_path)
    except waza.SpecError as error:
        assert want["status"] in (("refused",) if "why" in case else ("refused", "error")), str(error)
        return
    grade = grader.grade(Trace.from_json(case["trace"]), judge=judge)
    assert grade.status == want["status"], grade.feedback
    if grade.status != "error" and want.get("score") is not None:
        assert grade.score == pytest.approx(want["score"], abs=1e-9)


def compared(*winners):
    calls = [
        {"name": "set_pairwise_winner", "arguments": {"winner": winner, "magnitude": "equal", "reasoning": "r"}}
        for winner in winners
    ]
    judge = ScriptedJudge([{"tool_calls": [call]} for call in calls])
    trace = Trace(input="", output="new", baseline_output="old")
    return PromptGrader(prompt="Which is better?", mode="pairwise").grade(trace, judge=judge)


@pytest.mark.parametrize(
    ("winners", "expected"),
    [
        (("B", "A"), ("passed", 1.0)),
        (("A", "B"), ("failed", 0.0)),
        (("tie", "tie"), ("passed", 0.5)),
        (("A", "A"), ("error", 0.0)),
        (("tie", "A"), ("error", 0.0)),
        (("B", "tie"), ("error", 0.0)),
    ],
)
def test_a_comparison_counts_when_it_does_not_depend_on_the_order(winners, expected):
    grade = compared(*winners)
    assert (grade.status, grade.score) == expected
    assert grade.details["pairwise"]["position_consistent"] is (expected[0] != "error")


def test_a_scale_rubric_passes_from_its_own_mark(tmp_path):
    rubric = "---\nname: tone\nversion: 1.0.0\nscale: 1-5\ndescription: The tone.\npass_at: 3\n---\n\n"
    (tmp_path / "tone.md").write_text(f"{rubric}How kind is it? Call `set_waza_grade_score`.\n")
    grader = waza.load_grader({"type": "prompt", "rubric": "./tone.md"}, base_dir=tmp_path)
    calls = [{"name": "set_waza_grade_score", "arguments": {"score": score, "reason": "so"}} for score in (3, 2)]
    judge = ScriptedJudge([{"tool_calls": [call]} for call in calls])
    grades = [grader.grade(Trace(input="", output="x"), judge=judge) for _ in range(2)]
    assert [(grade.status, grade.score) for grade in grades] == [("passed", 0.5), ("failed", 0.25)]
    assert grades[0].details["rubric"]["name"] == "tone" and len(grades[0].details["rubric"]["hash"]) == 64


@pytest.mark.parametrize(
    "config",
    [
        {"prompt": "  "},
        {"prompt": "x", "mode": "both"},
        {"prompt": "x", "continue_session": True, "mode": "pairwise"},
        {"prompt": "x", "needs": ["everything"]},
        {"rubric": "../outside.md"},
    ],
)
def test_what_could_not_be_judged_is_refused(config, tmp_path):
    with pytest.raises(waza.SpecError):
        waza.load_grader({"type": "prompt", **config}, base_dir=tmp_path)


def test_what_is_needed_and_nobody_recorded_is_an_error():
    judge = ScriptedJudge([{"when": "#", "tool_calls": [{"name": "set_waza_grade_pass", "arguments": {}}]}])
    grader = PromptGrader(prompt="x", needs=["source_context", "tool_events", "files"])
    known = {"source_context": "The sky is blue."}
    bare = Trace(input="", output="x", extra=known)
    assert "tool calls" in grader.grade(bare, judge=judge).feedback
    watched = Trace(input="", output="x", tool_events=[], extra=known)
    assert "no workspace" in grader.grade(watched, judge=judge).feedback
    unsourced = Trace(input="", output="x", tool_events=[], extra={"source_context": ""})
    assert "inputs.context.source" in grader.grade(unsourced, judge=judge).feedback


def test_more_files_than_a_judge_can_read_are_an_error(tmp_path):
    (tmp_path / "big.txt").write_text("x" * 300_000)
    judge = ScriptedJudge([{"when": "#", "tool_calls": [{"name": "set_waza_grade_pass", "arguments": {}}]}])
    grade = PromptGrader(prompt="x", needs=["files"]).grade(
        Trace(input="", output="x"), judge=judge, workspace=tmp_path
    )
    assert grade.status == "error" and "too much for a judge" in grade.feedback
