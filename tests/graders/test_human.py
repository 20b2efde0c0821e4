"""The `human` grader: undecided until people gave a verdict, and never passed by accident."""

import pytest

import waza
from waza.runs.verdicts import HumanVerdict, evidence_of, record_verdict

TRACE = waza.Trace(input="hi", output="hello")
HUMAN = {"type": "human", "name": "polite", "instructions": "Is it polite?", "criteria": ["no shouting"]}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / ".waza.yaml").touch()
    return tmp_path


def human(folder, **changes):
    return waza.load_grader(HUMAN | changes, folder)


def give_verdict(folder, answer, trace=TRACE, **changes):
    question = human(folder).question
    about = {"grader": "polite", "evidence": evidence_of(trace), "question": question, "reviewer": "ana"}
    return record_verdict(folder / "verdicts.jsonl", HumanVerdict(**about | {"verdict": answer} | changes))


def test_it_is_undecided_until_a_person_answers_and_then_follows_the_answer(folder):
    grader = human(folder)
    before = grader.grade(TRACE)
    assert (before.status, before.passed) == ("error", False)
    assert "waza review" in before.feedback
    give_verdict(folder, "pass")
    assert (grader.grade(TRACE).status, grader.grade(TRACE).score) == ("passed", 1.0)
    give_verdict(folder, "fail", reason="too short")
    after = grader.grade(TRACE)
    assert (after.status, after.feedback) == ("failed", "ana fails it: too short")


def test_a_verdict_counts_for_exactly_the_reviewed_evidence(folder):
    give_verdict(folder, "pass")
    assert human(folder).grade(waza.Trace(input="hi", output="hello", duration_ms=5)).status == "passed"
    assert human(folder).grade(waza.Trace(input="hi", output="hello!")).status == "error"


def test_a_verdict_does_not_count_when_the_question_changed(folder):
    give_verdict(folder, "pass")
    assert human(folder, criteria=["no lies"]).grade(TRACE).status == "error"
    assert human(folder, name="another").grade(TRACE).status == "error"


def test_one_person_who_fails_it_decides_and_the_score_is_the_share_who_pass(folder):
    give_verdict(folder, "pass")
    give_verdict(folder, "pass", reviewer="ben")
    give_verdict(folder, "fail", reviewer="cy")
    grade = human(folder).grade(TRACE)
    assert (grade.status, grade.score) == ("failed", pytest.approx(2 / 3))
    assert [one["reviewer"] for one in grade.details["human"]["verdicts"]] == ["ana", "ben", "cy"]


def test_enough_people_must_give_a_verdict_before_it_passes_but_one_fail_is_enough(folder):
    grader = human(folder, min_reviewers=2)
    give_verdict(folder, "pass")
    assert grader.grade(TRACE).status == "error"
    give_verdict(folder, "pass", reviewer="ben")
    assert grader.grade(TRACE).status == "passed"
    give_verdict(folder, "fail", reviewer="ben", at="2999-01-01T00:00:00Z")
    assert grader.grade(TRACE).status == "failed"


def test_a_damaged_file_leaves_it_undecided_and_says_which_line(folder):
    give_verdict(folder, "pass")
    with (folder / "verdicts.jsonl").open("a") as file:
        file.write("not a verdict\n")
    grade = human(folder).grade(TRACE)
    assert grade.status == "error" and "verdicts.jsonl:2: is not a verdict" in grade.feedback


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"instructions": "", "criteria": []}, "checks nothing"),
        ({"instructions": "  ", "criteria": []}, "blank"),
        ({"criteria": [""]}, "criteria\\[0\\]"),
        ({"min_reviewers": 0}, "must be at least 1"),
        ({"instruction": "x"}, "did you mean 'instructions'"),
    ],
)
def test_a_question_that_asks_nothing_is_refused(folder, changes, fact):
    with pytest.raises(waza.SpecError, match=fact):
        human(folder, **changes)
