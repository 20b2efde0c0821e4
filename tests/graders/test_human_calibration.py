"""The `human_calibration` grader: whether a grader agrees with people."""

import json

import pytest

import waza
from waza.runs.verdicts import HumanVerdict, question_of, record_verdict
from waza.suites.load import load_spec

TRACE = waza.Trace(input="hi", output="hello")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / ".waza.yaml").touch()
    return tmp_path


CALIBRATION = {"type": "human_calibration", "name": "believed", "grader": "judge", "min_items": 10}


def calibration(folder, **changes):
    return waza.load_grader(CALIBRATION | changes, folder)


def judged(folder, pairs, *, first=0, **changes):
    """Record verdicts of a person with the grader's."""
    for number, (people, said) in enumerate(pairs, first):
        about = {"grader": "judge", "evidence": f"e{number}", "model": "m1", "reviewer": "ana"}
        record_verdict(folder / "verdicts.jsonl", HumanVerdict(**about | {"verdict": people, "said": said} | changes))


GOOD = [("pass", "pass")] * 12 + [("fail", "fail")] * 6 + [("pass", "fail"), ("fail", "pass")]
BLIND = [("pass", "pass")] * 18 + [("fail", "pass")] * 2


def test_a_grader_that_agrees_with_people_passes(folder):
    judged(folder, GOOD)
    grade = calibration(folder, min_kappa=0.7, min_agreement=0.9).grade(TRACE)
    assert grade.status == "passed"
    numbers = grade.details["calibration"]
    assert (numbers["n"], numbers["agreement"], numbers["best_constant"]) == (20, 0.9, 0.65)
    assert calibration(folder, min_kappa=0.9).grade(TRACE).status == "failed"


def test_a_grader_that_passes_everything_fails_on_kappa_though_it_agrees_nine_times_in_ten(folder):
    judged(folder, BLIND)
    assert calibration(folder, min_agreement=0.9).grade(TRACE).status == "passed"
    grade = calibration(folder, min_kappa=0.2, min_agreement=0.9).grade(TRACE)
    assert grade.status == "failed"
    assert grade.feedback == "kappa is 0.00 on 20 outputs, needed is 0.2 (always the same answer would agree on 90%)"


def test_with_too_few_outputs_it_is_undecided(folder):
    assert calibration(folder, min_kappa=0.5).grade(TRACE).status == "error"
    judged(folder, GOOD[:9])
    grade = calibration(folder, min_kappa=0.5).grade(TRACE)
    assert grade.status == "error"
    assert "have both judged 9 of 10 outputs needed; go on with `waza review --grader judge`" in grade.feedback


def test_where_all_verdicts_are_the_same_kappa_is_undecided(folder):
    judged(folder, [("pass", "pass")] * 15)
    assert calibration(folder, min_kappa=0.5).grade(TRACE).status == "error"
    assert calibration(folder, min_agreement=0.5).grade(TRACE).status == "passed"


def test_another_model_is_another_judge(folder):
    judged(folder, GOOD, at="2026-01-01T00:00:00Z")
    judged(folder, BLIND[:12], model="m2", at="2026-01-02T00:00:00Z", reviewer="ben")
    grade = calibration(folder, min_agreement=0.5).grade(TRACE)
    assert grade.details["calibration"]["n"] == 12


def test_another_prompt_is_another_judge(folder):
    judged(folder, GOOD, question="Is it polite?", at="2026-01-01T00:00:00Z")
    judged(folder, BLIND[:12], question="Is it kind?", at="2026-01-02T00:00:00Z", reviewer="ben")
    assert calibration(folder, min_agreement=0.5).grade(TRACE).details["calibration"]["n"] == 12


def suite_of(folder, *judges):
    """The suite's own calibration of a grader that every task asks in its own words."""
    tasks = [
        {"id": f"t{place}", "prompt": "x", "graders": [{"type": "prompt", "name": "judge"} | judge]}
        for place, judge in enumerate(judges)
    ]
    written = {"name": "s", "tasks": tasks, "graders": [CALIBRATION | {"min_agreement": 0.5}]}
    (folder / "eval.yaml").write_text(json.dumps(written | {"config": {"executor": "mock", "judge": "m1"}}))
    found = [grader for grader in load_spec(folder).graders["t0"] if grader.name == "believed"]
    return found[0].grade(TRACE).details["calibration"]["n"]


def test_of_a_suite_with_several_judges_of_one_name_all_count(folder):
    polite, kind, terse = (question_of(f"Is it {word}?") for word in ("polite", "kind", "terse"))
    judged(folder, GOOD[:5], question=polite, at="2026-01-01T00:00:00Z")
    judged(folder, GOOD[5:9], first=5, question=kind, at="2026-01-02T00:00:00Z")
    judged(folder, GOOD[9:12], first=9, question=terse, at="2026-01-03T00:00:00Z", model="m9")
    asked = [{"prompt": f"Is it {word}?"} for word in ("polite", "kind", "terse")]
    assert suite_of(folder, *asked[:2], asked[2] | {"model": "m9"}) == 12
    assert suite_of(folder, *asked[:2]) == 9 and suite_of(folder, asked[0]) == 5
    assert suite_of(folder, asked[2] | {"model": "m9"}) == 3 and suite_of(folder, asked[2] | {"model": "m8"}) == 0
    assert suite_of(folder, {"prompt": "Is it short?"}) == 0, "the current question has no reviews"


def test_outputs_on_which_people_are_evenly_divided_count_for_nothing(folder):
    judged(folder, GOOD)
    judged(folder, [("fail", "pass")], reviewer="ben")
    assert calibration(folder, min_agreement=0.5).grade(TRACE).details["calibration"]["n"] == 19


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({}, "min_kappa, min_agreement"),
        ({"min_kappa": 1.5}, "must be at most 1"),
        ({"min_kappa": 0}, "must be above 0"),
    ],
)
def test_a_bound_that_cannot_fail_is_refused(folder, changes, fact):
    with pytest.raises(waza.SpecError, match=fact):
        calibration(folder, **changes)
