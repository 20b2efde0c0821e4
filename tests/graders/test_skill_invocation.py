"""The `skill_invocation` grader: which skills were used, in what order, and what the catalogue offered."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tool_cases import cases, grade, holds, traces

import waza
from waza.model import SkillInvocation


@pytest.mark.parametrize("case", cases("skill_invocation"), ids=lambda case: case["id"])
def test_conformance(case, tmp_path):
    assert holds(case, tmp_path)


def invoked(*names, offered=None):
    skills = [SkillInvocation(name=name) for name in names]
    return waza.Trace(input="", output="", skill_invocations=skills, available_skills=offered)


def test_the_modes_of_action_sequence_are_not_modes_here():
    with pytest.raises(waza.SpecError, match="in_order"):
        waza.load_grader({"type": "skill_invocation", "config": {"required_skills": ["a"], "mode": "in_order_match"}})


def test_required_skills_need_a_mode_and_forbidden_ones_do_not():
    with pytest.raises(waza.SpecError, match="needs a 'mode'"):
        waza.load_grader({"type": "skill_invocation", "config": {"required_skills": ["a"]}})
    result = grade("skill_invocation", invoked("b"), forbidden_skills=["a"])
    assert result.feedback == "Forbidden skills were not invoked"


def test_forbidden_skills_are_named_once_in_the_order_of_the_config():
    result = grade("skill_invocation", invoked("b", "a", "b"), forbidden_skills=["a", "c", "b", "a"])
    assert (result.status, result.score) == ("failed", 0.0)
    assert result.feedback == "Forbidden skills invoked: a, b"
    assert result.details["forbidden_violations"] == ["a", "b"]


def test_a_forbidden_skill_brings_the_score_to_zero_even_when_the_rest_is_right():
    result = grade(
        "skill_invocation", invoked("a", "b"), required_skills=["a"], mode="any_order", forbidden_skills=["b"]
    )
    assert (result.status, result.score) == ("failed", 0.0)


def test_penalised_extras_are_mentioned_where_the_trace_passes():
    config = {"required_skills": ["a"], "mode": "in_order", "allow_extra": False}
    result = grade("skill_invocation", invoked("a", "b"), **config)
    assert result.passed and "extra invocations (got 2, expected 1)" in result.feedback


@pytest.mark.parametrize(
    ("offered", "suffix"),
    [
        (["other"], "; runtime never surfaced: a"),
        (["a"], "; surfaced but not invoked: a"),
        ([], "; runtime never surfaced: a"),
        (None, ""),
    ],
)
def test_the_catalogue_says_why_a_required_skill_was_not_invoked(offered, suffix):
    result = grade("skill_invocation", invoked(offered=offered), required_skills=["a"], mode="any_order")
    assert result.status == "failed" and result.feedback == "Skill missing: a" + suffix
    assert ("available_skills" in result.details) == (offered is not None)


def test_the_alignment_tells_out_of_order_from_missing():
    result = grade("skill_invocation", invoked("c", "a", "b"), required_skills=["a", "b", "c", "d"], mode="in_order")
    statuses = [entry["status"] for entry in result.details["alignment"]["expectations"]]
    assert statuses == ["matched", "matched", "out_of_order", "missing"]


@settings(deadline=None)
@given(traces, st.sampled_from(["exact_match", "in_order", "any_order"]), st.booleans())
def test_any_trace_is_graded_and_only_missing_evidence_is_an_error(trace, mode, extra):
    config = {"required_skills": ["bash", "edit"], "mode": mode, "allow_extra": extra, "forbidden_skills": ["view"]}
    result = grade("skill_invocation", trace, **config)
    assert (result.status == "error") == (trace.skill_invocations is None)
    assert 0.0 <= result.score <= 1.0
