"""evaldeck's trace under the alias: a mutable record of steps, and the same trace in waza's eyes."""

from datetime import UTC, datetime

import pytest
from evaldeck.trace import Message, TraceStatus, as_waza
from hypothesis import given
from hypothesis import strategies as st

import waza
from evaldeck import Step, StepStatus, StepType, TokenUsage, Trace


def test_a_model_call_has_its_fields():
    for step in (Step.llm_call("gpt", "hi", "hello"), Step.llm_call(model="gpt", input="hi", output="hello")):
        assert step.type == StepType.LLM_CALL
        assert (step.model, step.input, step.output) == ("gpt", "hi", "hello")
        assert step.id


def test_a_tool_call_has_its_fields():
    step = Step.tool_call("search", {"q": "x"}, tool_result=["y"])
    assert step.type == StepType.TOOL_CALL
    assert (step.tool_name, step.tool_args, step.tool_result) == ("search", {"q": "x"}, ["y"])
    assert Step.tool_call("search").tool_args == {}


def test_a_thought_has_its_text():
    step = Step.reasoning("I should search")
    assert (step.type, step.reasoning_text) == (StepType.REASONING, "I should search")


def test_a_new_trace_has_nothing_yet():
    trace = Trace(input="ask")
    assert trace.output is None
    assert trace.status == TraceStatus.SUCCESS
    assert trace.steps == []
    assert trace.id and trace.id != Trace(input="ask").id


def test_steps_are_added_and_counted():
    trace = Trace(input="ask")
    trace.add_step(Step.tool_call("a"))
    trace.steps.append(Step.reasoning("b"))
    assert trace.step_count == 2


def test_tools_called_is_a_list_in_order_with_repeats():
    trace = Trace(input="ask")
    for name in ("search", "book", "search"):
        trace.add_step(Step.tool_call(name))
    assert trace.tools_called == ["search", "book", "search"]


def test_tool_calls_and_model_calls_are_told_apart():
    trace = Trace(input="ask", steps=[Step.llm_call("m", "i", "o"), Step.tool_call("a")])
    assert [step.tool_name for step in trace.tool_calls] == ["a"]
    assert [step.model for step in trace.llm_calls] == ["m"]


def test_complete_closes_the_trace():
    trace = Trace(input="ask")
    trace.complete("done", TraceStatus.ERROR)
    assert (trace.output, trace.status) == ("done", TraceStatus.ERROR)
    assert trace.completed_at is not None and trace.duration_ms >= 0
    assert trace.complete("done") is None and trace.status == TraceStatus.SUCCESS


def test_a_dict_round_trip_keeps_everything():
    trace = Trace(input="ask", framework="x", unheard_of=[1])
    trace.add_step(Step.llm_call("m", "i", "o", TokenUsage(prompt_tokens=3, completion_tokens=4)))
    trace.add_step(Step.tool_call("a", {"q": 1}, {"r": 2}))
    trace.complete("done")
    again = Trace.from_dict(trace.to_dict())
    assert again == trace
    assert again.to_dict()["unheard_of"] == [1]


def test_a_status_given_as_text_becomes_one():
    trace = Trace(input="ask", status="failure")
    assert trace.status == TraceStatus.FAILURE
    trace.complete("x", "timeout")
    assert trace.status is TraceStatus.TIMEOUT
    with pytest.raises(ValueError, match="is not a valid"):
        trace.complete("x", "fine")


def test_a_trace_that_began_in_another_zone_can_be_completed():
    trace = Trace(input="ask", started_at=datetime.now(UTC))
    trace.complete("done")
    assert trace.duration_ms >= 0


def test_what_the_documentation_says_works():
    assert Step.tool_call("a", status="error").status == StepStatus.FAILURE
    step = Step.llm_call("m", "i", "o", token_usage=TokenUsage(prompt_tokens=1, completion_tokens=2))
    assert step.token_usage.total_tokens == 3
    assert Trace(input="ask", steps=[step]).total_tokens == 3
    assert Message(role="user", content="hi").content == "hi"


def test_a_result_that_is_no_json_can_still_be_written():
    trace = Trace(input="ask", steps=[Step.tool_call("a", tool_result=object)])
    assert waza.Trace.from_json(trace.to_dict()).tool_events[0].result == "<class 'object'>"


NAMES = st.sampled_from(["search", "book", ""])
STEPS = st.one_of(
    st.builds(Step.tool_call, NAMES, st.dictionaries(st.text(max_size=3), st.integers(), max_size=2)),
    st.builds(lambda status: Step.tool_call("a", status=status), st.sampled_from(StepStatus)),
    st.builds(Step.llm_call, st.just("m"), st.text(max_size=3), st.text(max_size=3)),
    st.builds(
        lambda read, written: Step.llm_call("m", "", "", TokenUsage(prompt_tokens=read, completion_tokens=written)),
        st.integers(0, 9),
        st.integers(0, 9),
    ),
    st.builds(Step.reasoning, st.text(max_size=3)),
)


@given(st.lists(STEPS, max_size=6), st.none() | st.text(max_size=5), st.sampled_from(TraceStatus))
def test_graders_see_the_same_trace_whether_it_is_written_or_handed_over(steps, output, status):
    trace = Trace(input="ask", output=output, status=status, steps=steps)
    handed, read = as_waza(trace), waza.Trace.from_json(trace.to_dict())
    for name in ("input", "output", "status", "tool_events", "usage", "steps", "duration_ms"):
        assert getattr(handed, name) == getattr(read, name), name
