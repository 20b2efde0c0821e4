"""The `action_sequence` grader: the mode decides, the score is the F1, the alignment says what happened."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tool_cases import calls, cases, grade, holds, traces

import waza

MODES = ["exact_match", "in_order_match", "any_order_match"]


@pytest.mark.parametrize("case", cases("action_sequence"), ids=lambda case: case["id"])
def test_conformance(case, tmp_path):
    assert holds(case, tmp_path)


def sequence(made, expected, mode):
    return grade("action_sequence", calls(*made), matching_mode=mode, expected_actions=expected)


@pytest.mark.parametrize(
    "config", [{"expected_actions": ["a"]}, {"matching_mode": "in_order", "expected_actions": ["a"]}]
)
def test_a_mode_is_needed_and_must_be_known(config):
    with pytest.raises(waza.SpecError, match="matching_mode"):
        waza.load_grader({"type": "action_sequence", "config": config})


def test_reversed_order_keeps_the_score_comparable_and_the_alignment_explains_the_failure():
    result = sequence(["b", "a"], ["a", "b"], "in_order_match")
    assert (result.status, result.score) == ("failed", 1.0)
    found = result.details["alignment"]
    assert sorted(entry["status"] for entry in found["expectations"]) == ["matched", "out_of_order"]
    assert len(found["out_of_order"]) == 1 and found["extra"] == []
    assert "out of order" in result.feedback


def test_the_alignment_tells_matched_missing_extra_and_out_of_order_apart():
    result = sequence(["git", "bash", "x", "edit"], ["bash", "edit", "git", "push"], "in_order_match")
    assert result.details["alignment"] == {
        "order": "in_order",
        "expectations": [
            {"expected": "bash", "status": "matched", "calls": [1]},
            {"expected": "edit", "status": "matched", "calls": [3]},
            {"expected": "git", "status": "out_of_order", "calls": [], "found": 0},
            {"expected": "push", "status": "missing", "calls": []},
        ],
        "extra": [2],
        "out_of_order": [0],
    }
    assert result.feedback == "Action out of order: git; Action missing: push"


def test_exact_match_names_the_calls_nobody_expected():
    result = sequence(["a", "rm", "b", "rm"], ["a", "b"], "exact_match")
    assert result.status == "failed" and result.feedback == "Action not expected: rm"


names = st.lists(st.sampled_from("abc"), max_size=6)


@settings(deadline=None)
@given(names, names.filter(bool), st.sampled_from(MODES))
def test_passed_follows_the_mode_and_the_score_is_the_multiset_f1(made, expected, mode):
    result = sequence(made, expected, mode)
    rest = iter(made)
    rule = {
        "exact_match": made == expected,
        "in_order_match": all(name in rest for name in expected),
        "any_order_match": not Counter(expected) - Counter(made),
    }
    assert result.passed == rule[mode]
    hits = sum((Counter(made) & Counter(expected)).values())
    assert result.score == pytest.approx(2 * hits / (len(made) + len(expected)))
    assert 0.0 <= result.score <= 1.0


@settings(deadline=None)
@given(names, names.filter(bool), st.randoms())
def test_any_order_verdicts_do_not_change_when_the_calls_are_permuted(made, expected, random):
    before = sequence(made, expected, "any_order_match")
    random.shuffle(made)
    after = sequence(made, expected, "any_order_match")
    assert (before.status, before.score) == (after.status, after.score)


@settings(deadline=None)
@given(names, names.filter(bool), st.sampled_from(MODES))
def test_the_certificate_accounts_for_every_call_once(made, expected, mode):
    found = sequence(made, expected, mode).details["alignment"]
    taken = [call for entry in found["expectations"] for call in entry["calls"]]
    assert sorted(taken + found["extra"] + found["out_of_order"]) == list(range(len(made)))
    for name, entry in zip(expected, found["expectations"], strict=True):
        assert [made[call] for call in entry["calls"]] == [name] * (entry["status"] == "matched")


@settings(deadline=None)
@given(traces, st.sampled_from(MODES))
def test_any_trace_is_graded_and_only_missing_evidence_is_an_error(trace, mode):
    result = grade("action_sequence", trace, matching_mode=mode, expected_actions=["bash", "edit", "bash"])
    assert (result.status == "error") == (trace.tool_events is None)
