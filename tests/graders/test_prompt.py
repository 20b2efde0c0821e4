"""The `prompt` grader: what its conformance cases say, what comparisons mean, what is refused."""

import json
from pathlib import Path

import pytest
from file_cases import lay
from hypothesis import given
from hypothesis import strategies as st

import waza
from waza import Trace
from waza.graders.prompt import PromptGrader
from waza.judges import ScriptedJudge
from waza.judges.verdict_tools import ONE_TO_FIVE, PAIRWISE, PASS_FAIL, on_each

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


POINTS = ["It is polite.", "It names a date."]


def judge_reply(*calls, tool="set_waza_grade_"):
    """A reply with calls such as ("pass", {"criterion": 1}); a number is a score."""
    named = [
        {"name": tool + ("score" if isinstance(verdict, int) else verdict), "arguments": {"reason": "so", **more}}
        | ({"arguments": {"reason": "so", "score": verdict, **more}} if isinstance(verdict, int) else {})
        for verdict, more in calls
    ]
    return {"tool_calls": named}


def by_criteria(*replies, criteria=POINTS, **config):
    judge = ScriptedJudge([judge_reply(*reply) if isinstance(reply, list) else reply for reply in replies])
    return waza.load_grader({"type": "prompt", "criteria": criteria, **config}).grade(TRACE, judge=judge)


TRACE = Trace(input="", output="x")
ONE, TWO = {"criterion": 1}, {"criterion": 2}


@pytest.mark.parametrize(
    ("calls", "status", "score"),
    [
        ([("pass", ONE), ("pass", TWO)], "passed", 1.0),
        ([("fail", TWO), ("pass", ONE)], "failed", 0.5),
        ([("fail", ONE), ("fail", TWO)], "failed", 0.0),
        ([("pass", ONE), ("pass", TWO), ("pass", ONE)], "passed", 1.0),
        ([("pass", {"criterion": 1.0}), ("pass", {"criterion": "2"})], "passed", 1.0),
        ([("pass", {"criterion": "it is  polite."}), ("fail", {"description": "It names a date."})], "failed", 0.5),
        ([("pass", {"criterion": "2. It names a date."}), ("pass", ONE)], "passed", 1.0),
        ([("pass", ONE)], "error", 0.0),
        ([("fail", ONE)], "error", 0.0),
        ([("pass", {}), ("pass", {})], "error", 0.0),
        ([("pass", ONE), ("pass", ONE)], "error", 0.0),
        ([("pass", ONE), ("fail", ONE), ("pass", TWO)], "error", 0.0),
        ([("pass", ONE), ("pass", TWO), ("pass", {"criterion": 3})], "error", 0.0),
        ([("pass", ONE), ("pass", {"criterion": 0})], "error", 0.0),
        ([("pass", ONE), ("pass", {"criterion": True})], "error", 0.0),
        ([("pass", ONE), ("pass", {"criterion": "kind", "description": "It names a date."})], "error", 0.0),
        ([(5, ONE), (5, TWO)], "error", 0.0),
    ],
)
def test_each_criterion_needs_one_verdict(calls, status, score):
    grade = by_criteria(calls, calls)
    assert (grade.status, grade.score) == (status, score), grade.feedback
    if status != "error":
        assert [check.claim for check in grade.checks] == POINTS
        assert [check.actual or check.failure for check in grade.checks] == [
            "so" if check.ok else f"{check.claim}: so" for check in grade.checks
        ]


def test_a_verdict_of_another_type_is_told_with_its_place_and_what_is_there():
    wrong = [("pass", ONE), ("pass", {"criterion": True})]
    feedback = by_criteria(wrong, wrong).feedback
    assert feedback.endswith("wrong arguments: criterion: a number or a text or null is needed, found true")


def test_a_missing_verdict_is_named_and_asked_for_once_more():
    assert "no verdict on criterion 2 (It names a date.)" in by_criteria([("pass", ONE)], [("pass", ONE)]).feedback
    grade = by_criteria([("pass", ONE)], [("pass", ONE), ("fail", TWO)], prompt="p")
    assert (grade.status, grade.score, grade.details["judge"]["reminders"]) == ("failed", 0.5, 1)
    assert grade.feedback == "It names a date.: so"
    assert grade.details["criteria"][1] == {
        "criterion": "It names a date.",
        "passed": False,
        "score": 0.0,
        "reason": "so",
    }


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_the_score_is_the_share_of_criteria_met_in_whatever_order_they_are_given(met, data):
    calls = [("pass" if ok else "fail", {"criterion": place}) for place, ok in enumerate(met, 1)]
    grade = by_criteria(data.draw(st.permutations(calls)), criteria=[f"point {place}" for place in range(len(met))])
    assert (grade.passed, grade.score) == (all(met), sum(met) / len(met))
    assert [check.ok for check in grade.checks] == met


@pytest.mark.parametrize(
    ("kind", "config", "scores", "expected"),
    [
        ("llm", {}, (5, 4), ("passed", 0.875)),
        ("llm", {}, (5, 3), ("failed", 0.75)),
        ("llm", {"threshold": 0.5}, (5, 3), ("passed", 0.75)),
        ("llm_comparison", {"reference": "r"}, (4, 4), ("passed", 0.75)),
        ("prompt", {"rubric": "relevance-1-5"}, (4, 1), ("failed", 0.375)),
        ("prompt", {"rubric": "helpfulness"}, (4, 4), ("error", 0.0)),
    ],
)
def test_on_a_scale_each_criterion_has_a_score_and_must_reach_the_mark(kind, config, scores, expected):
    reply = [(score, {"criterion": place}) for place, score in enumerate(scores, 1)]
    grade = by_criteria(reply, reply, type=kind, **config)
    assert (grade.status, grade.score) == expected, grade.feedback


@pytest.mark.parametrize(
    ("criteria", "config"),
    [
        ([], {}),
        ([" "], {"prompt": "p"}),
        (["a", " A "], {}),
        ([{"a": 1}], {}),
        (["a"], {"prompt": "p", "mode": "pairwise"}),
    ],
)
def test_criteria_that_cannot_be_judged_one_by_one_are_refused(criteria, config):
    with pytest.raises(waza.SpecError):
        waza.load_grader({"type": "prompt", "criteria": criteria, **config})


def test_criteria_are_part_of_the_question():
    plain, judged = (PromptGrader(prompt="p", criteria=points) for points in ([], POINTS))
    assert plain.question_name != judged.question_name
    assert PromptGrader(rubric="helpfulness", criteria=POINTS).question_name
    assert "1. It is polite.\n2. It names a date." in judged.question_text


def test_a_jury_votes_on_each_criterion():
    members = [
        {
            "type": "scripted",
            "model": name,
            "replies": [judge_reply(*[(v, {"criterion": n}) for n, v in enumerate(votes, 1)])],
        }
        for name, votes in {"a": ("pass", "fail"), "b": ("pass", "pass"), "c": ("fail", "fail")}.items()
    ]

    def judged(**more):
        return waza.load_grader({"type": "prompt", "criteria": POINTS, "judges": members, **more}).grade(TRACE)

    grade = judged()
    assert (grade.status, grade.score, [check.ok for check in grade.checks]) == ("failed", 0.5, [True, False])
    assert "a fails: so; b passes: so; c fails: so" in grade.feedback
    assert judged(vote="any").feedback.startswith(
        "All 2 criteria are met, by a split vote on It names a date.: a fails"
    )
    assert judged(vote="all").score == 0.0 and not grade.details["jury"]["is_unanimous"]
    members[2]["replies"] = [{"error": "down"}]
    grade = judged()
    assert (grade.status, [check.ok for check in grade.checks]) == ("error", [True, None])


NO_REASON = {"tool_calls": [{"name": "set_waza_grade_pass", "arguments": {"description": "d", "reason": " "}}]}


@pytest.mark.parametrize(
    ("replies", "status", "words"),
    [
        ([NO_REASON, judge_reply(("fail", {}))], "failed", "so"),
        ([NO_REASON, NO_REASON], "passed", "no reason given"),
        ([NO_REASON, {"text": "It passes."}], "passed", "no reason given"),
        ([NO_REASON, {"error": "down"}], "passed", "no reason given"),
        ([NO_REASON], "passed", "no reason given"),
        ([{"text": "hm"}, NO_REASON, judge_reply(("fail", {}))], "failed", "so"),
        (
            [judge_reply(("pass", {}), ("fail", {"reason": ""})), judge_reply(("pass", {}))],
            "passed",
            "All prompts passed",
        ),
    ],
)
def test_a_verdict_without_a_reason_is_asked_for_once_more(replies, status, words):
    grade = PromptGrader(prompt="p").grade(TRACE, judge=ScriptedJudge(replies))
    assert grade.status == status and words in grade.feedback
    assert grade.details["judge"]["reminders"] == (2 if len(replies) == 3 else 1)


def test_slips_that_change_no_meaning_are_accepted():
    for call in (("pass", {"score": 1}), ("pass", {"verdict": "yes"})):
        assert PromptGrader(prompt="p").grade(TRACE, judge=ScriptedJudge([judge_reply(call)])).passed
    prefixed = judge_reply(("pass", {}), tool="functions.set_waza_grade_")
    assert PromptGrader(prompt="p").grade(TRACE, judge=ScriptedJudge([prefixed])).passed
    twice = judge_reply(("pass", {}), tool="functions.functions.set_waza_grade_")
    assert PromptGrader(prompt="p").grade(TRACE, judge=ScriptedJudge([twice, twice])).status == "error"


@pytest.mark.parametrize("kind", [PASS_FAIL, ONE_TO_FIVE, PAIRWISE, *(on_each(POINTS, is_scored=s) for s in (0, 1))])
def test_every_verdict_tool_asks_for_a_reason_first(kind):
    for tool in kind.tools:
        first = next(iter(tool.parameters["properties"]))
        assert first in ("reason", "reasoning") and first in tool.parameters["required"]
        assert tool.parameters["properties"][first]["minLength"] == 1


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
