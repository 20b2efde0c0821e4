"""The `behavior` grader: budgets and tools; what was not recorded is undecided, unless something else failed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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


@pytest.mark.parametrize("half", ["input_tokens", "output_tokens"])
def test_half_recorded_tokens_decide_only_what_they_exceed(half):
    trace = waza.Trace(input="", output="", tool_events=[], usage=waza.Usage(**{half: 5}))
    assert (trace.usage.total_tokens, trace.usage.least_tokens) == (None, 5)
    for kind in ("behavior", "tool_constraint", "max_tokens"):
        status = {limit: grade(kind, trace, max_tokens=limit).status for limit in (4, 5, 100)}
        assert status == {4: "failed", 5: "error", 100: "error"}
    steps = [{"type": "llm_call", "tokens": {"prompt_tokens": 3, "completion_tokens": 1}}, {"type": "llm_call"}]
    half = {"type": "llm_call", "tokens": {"prompt_tokens": 3}}
    for models, total in ((steps[:1], 4), (steps, None), ([half], None)):
        assert waza.Trace.from_json({"input": "", "output": "", "steps": models}).usage.total_tokens == total


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


INVALID = st.one_of(st.floats(max_value=-1e-9), st.integers(max_value=-1), st.just(float("nan")), st.just(float("inf")))
COUNT = st.one_of(st.none(), st.integers(0, 200))


@settings(max_examples=60, deadline=None)
@given(invalid=INVALID, other=COUNT, is_input=st.booleans(), how=st.sampled_from(["built", "read", "text"]))
def test_a_number_that_cannot_be_true_decides_no_limit(invalid, other, is_input, how):
    pair = (invalid, other) if is_input else (other, invalid)
    usage = dict(zip(("input_tokens", "output_tokens"), pair, strict=True)) | {"turns": invalid, "llm_calls": invalid}
    fields = {"input": "", "output": "", "tool_events": [], "duration_ms": invalid, "steps": invalid}
    if how == "built":
        trace = waza.Trace(**fields, usage=waza.Usage(**usage))
    else:
        texts = {key: value if value is None or how == "read" else str(value) for key, value in usage.items()}
        trace = waza.Trace.from_json(fields | {"usage": texts, "steps": None})
    limits = {"max_tokens": 100, "max_duration_ms": 100}
    assert [check.ok for check in grade("behavior", trace, **limits).checks] == [None, None]
    assert grade("tool_constraint", trace, max_turns=3).status == "error"
    bounds = {"max_llm_calls": 3, "max_steps": 3, "min_steps": 1, "behavior": {"max_response_time_ms": 5}}
    assert {found.grade(trace).status for found in waza.load_expected(bounds)} == {"error"}
    assert waza.Trace.from_json(trace.to_json()).usage.total_tokens is None
