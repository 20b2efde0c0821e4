"""The `otlp` reader: it alone recognises its files and reads them whole."""

import io
import json

import pytest
from trace_recordings import check_file_of, files_like

from waza.errors import TraceError
from waza.traces.reading import read_trace, read_traces


@pytest.mark.parametrize(
    "file", files_like("traces/openinference.json", "traces/openllmetry-console.jsonl", "traces/otlp-*")
)
def test_it_alone_recognises_its_files_and_reads_them_whole(file):
    check_file_of("otlp", file)


def span(identity, parent, kind, start, **attributes):
    told = {"gen_ai.operation.name": kind} | {key.replace("__", "."): value for key, value in attributes.items()}
    return {
        "traceId": "t1",
        "spanId": identity,
        "parentSpanId": parent,
        "name": kind,
        "startTimeUnixNano": str(start * 1_000_000),
        "endTimeUnixNano": str((start + 5) * 1_000_000),
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in told.items()],
    }


def test_a_span_below_a_tool_is_a_sub_agents():
    spans = [
        span("a", "", "invoke_agent", 0),
        span("m", "a", "chat", 1),
        span("t", "a", "execute_tool", 10, gen_ai__tool__name="delegate", gen_ai__tool__call__id="c1"),
        span("b", "t", "invoke_agent", 11),
        span("n", "b", "chat", 12),
        span("nn", "n", "chat", 13),
        span("u", "b", "execute_tool", 14, gen_ai__tool__name="search"),
        span("uu", "u", "execute_tool", 15, gen_ai__tool__name="search"),
    ]
    text = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()
    trace = read_trace(io.BytesIO(text))
    own, inner = trace.tool_events
    assert (own.tool_name, own.extra) == ("delegate", {})
    assert (inner.tool_name, inner.extra) == ("search", {"parent_tool_call_id": "c1"})
    assert trace.usage.turns == 1 and trace.usage.llm_calls == 2, "an instrumented model call is counted once"


def test_spans_of_other_things_are_no_trace():
    text = b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "t", "spanId": "s", "name": "GET /"}]}]}]}'
    with pytest.raises(TraceError, match="nor a recording that is recognised"):
        read_trace(io.BytesIO(text))


def exported(spans):
    return io.BytesIO(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode())


def test_every_span_is_a_step_and_a_sum_with_a_negative_part_is_not_recorded():
    def chat(identity, tokens):
        return span(identity, "a", "chat", 5, gen_ai__usage__input_tokens=tokens, gen_ai__usage__output_tokens="7")

    spans = [span("a", "", "invoke_agent", 0), chat("m", "20"), span("p", "a", "parse", 7), chat("n", "30")]
    trace = read_trace(exported(spans))
    assert trace.steps == 4, "framework spans count"
    assert trace.usage.total_tokens == 64
    trace = read_trace(exported([*spans, chat("o", "-1")]))
    assert (trace.usage.input_tokens, trace.usage.output_tokens, trace.usage.total_tokens) == (None, 21, None)
    half = read_trace(exported([*spans, span("o", "a", "chat", 9, gen_ai__usage__input_tokens="5")])).usage
    assert (half.input_tokens, half.output_tokens, half.total_tokens, half.least_tokens) == (55, None, None, 55)


def test_the_final_answer_of_smolagents_is_the_output_and_no_call():
    def tool(identity, parent, name, start, **more):
        return span(identity, parent, "", start, openinference__span__kind="TOOL", tool__name=name, **more)

    root = span("a", "", "", 0, openinference__span__kind="AGENT", input__value='{"task": "how warm?"}')
    look = tool("t", "a", "get_weather", 2, output__value="3 degrees")
    helper = tool("h", "a", "helper", 4)
    inner = tool("i", "h", "final_answer", 5, output__value="inner answer")
    end = tool("f", "a", "final_answer", 9, input__value='{"answer": "3 degrees"}')
    trace = read_trace(exported([root, look, helper, inner, end]))
    assert [event.tool_name for event in trace.tool_events] == ["get_weather", "helper"]
    assert (trace.output, trace.steps) == ("3 degrees", 5)
    call = json.dumps([{"role": "assistant", "tool_calls": [{"id": "c", "name": "final_answer", "arguments": "{}"}]}])
    answers = call.replace('"{}"', '{"answer": 42}')
    [said] = read_traces(exported([span("m", "", "chat", 1, gen_ai__output__messages=answers)]))
    assert (said.output, said.tool_events) == ("42", [])
