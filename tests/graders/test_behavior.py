"""The `behavior` grader: budgets and tools; what was not recorded is undecided, unless something else failed."""

import pytest
from hypothesis import given, settings
from tool_cases import calls, cases, grade, holds, traces

import waza


@pytest.mark.parametrize("case", cases("behavior"), ids=lambda case: case["id"])
def test_conformance(case, tmp_path):
    assert holds(case, tmp_path)


def test_each_broken_limit_says_by_how_much():
    trace = waza.Trace(
        input="",
        output="",
        duration_ms=8000,
        tool_events=calls("bash", "rm").tool_events,
        usage=waza.Usage(input_tokens=900, output_tokens=200),
    )
    result = grade(
        "behavior",
        trace,
        max_tool_calls=1,
        max_tokens=1000,
        max_duration_ms=5000,
        required_tools=["edit"],
        forbidden_tools=["rm"],
    )
    assert result.score == 0.0
    assert result.feedback == (
        "Tool call count 2 exceeds max allowed 1; Token usage 1100 exceeds max allowed 1000; "
        "Required tool not used: edit; Forbidden tool was used: rm; Duration 8000ms exceeds max allowed 5000ms"
    )
    assert result.details == {
        "tool_call_count": 2,
        "tools_used": ["bash", "rm"],
        "first_call_fits": False,
        "actual_duration": 8000,
        "tokens_total": 1100,
    }


@pytest.mark.parametrize("option", ["max_tool_calls", "max_tokens", "max_duration_ms"])
def test_a_limit_on_what_was_not_recorded_is_undecided(option):
    result = grade("behavior", waza.Trace(input="", output=""), **{option: 5})
    assert result.status == "error" and "not recorded" in result.feedback


def test_a_failed_check_decides_over_an_undecided_one():
    trace = waza.Trace(input="", output="", duration_ms=9)
    result = grade("behavior", trace, max_duration_ms=5, max_tokens=5, required_tools=["a"])
    assert result.status == "failed"
    assert [check.ok for check in result.checks] == [None, None, False]


def test_cached_tokens_do_not_count_twice():
    trace = waza.Trace(input="", output="", usage=waza.Usage(input_tokens=1, output_tokens=1, cache_read_tokens=900))
    assert grade("behavior", trace, max_tokens=2).status == "passed"


@settings(deadline=None)
@given(traces)
def test_any_trace_is_graded_and_only_missing_evidence_is_an_error(trace):
    result = grade("behavior", trace, max_tool_calls=3, max_tokens=900, max_duration_ms=900, required_tools=["bash"])
    usage = trace.usage and trace.usage.total_tokens
    missing = trace.tool_events is None or usage is None or trace.duration_ms is None
    assert result.status in (("failed", "error") if missing else ("failed", "passed"))
    assert 0.0 <= result.score <= 1.0
