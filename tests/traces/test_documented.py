"""Formats and cases of which no recording is at hand: small ones written from their documentation."""

import io
import json
import re
import zipfile

import pytest
from trace_recordings import DATA

from waza.errors import TraceError
from waza.model import Trace
from waza.traces.base import Notes
from waza.traces.reading import read_found, read_trace, read_traces, samples_in

FOLDER = DATA / "traces"
STORY = [
    "anthropic-messages.json",
    "atif.json",
    "claude-parallel.jsonl",
    "claude-session.jsonl",
    "codex-session.jsonl",
    "evaldeck.json",
    "inspect.json",
    "langchain-dumped.json",
    "langgraph-values.jsonl",
    "openai-chat-lines.jsonl",
    "openai-chat.jsonl",
    "openai-responses.json",
    "openinference.json",
    "openllmetry-console.jsonl",
    "otlp-genai-old.jsonl",
    "otlp-genai.json",
    "results-1.0.json",
    "transcript.json",
]
QUESTION = "Weather in Oslo and Atlantis?"
ANSWER = "Oslo has 3 degrees; I do not know Atlantis."
NO_PROMPT = ("claude-parallel",)
NO_TOKENS = ("anthropic", "openai-chat-lines", "openai-responses", "transcript")
NO_FAILURE = ("otlp-genai-old",)


@pytest.mark.parametrize("file", STORY)
def test_they_all_tell_the_same_story(file):
    trace = read_trace(FOLDER / file)
    assert trace.input == ("" if file.startswith(NO_PROMPT) else QUESTION)
    assert trace.output == ANSWER and trace.status == "success"
    first, second = trace.tool_events
    assert "Oslo" in json.dumps(first.args) and "Atlantis" in json.dumps(second.args)
    assert first.result in ("3 degrees", {"content": "3 degrees"})
    assert (first.success, second.success) == (True, file.startswith(NO_FAILURE))
    assert (first.turn, second.turn) == (1, 1), "calls of one answer share its turn"
    assert trace.usage.turns in (2, None) and trace.usage.llm_calls in (2, None)
    tokens = (trace.usage.input_tokens, trace.usage.output_tokens)
    assert tokens == ((None, None) if file.startswith(NO_TOKENS) else (240, 34))
    assert Trace.from_json(trace.to_json()) == trace


@pytest.mark.parametrize("file", [file for file in STORY if file != "otlp-genai-old.jsonl"])
def test_they_can_be_cut_anywhere(file):
    text = (FOLDER / file).read_bytes()
    for end in range(0, len(text) - 2, max(1, len(text) // 60)):
        try:
            found = list(read_found(io.BytesIO(text[:end])))
        except TraceError as refusal:
            assert "standard input: " in str(refusal)
            continue
        assert all(Trace.from_json(each.trace.to_json()).output == each.trace.output for each in found)


def test_cached_input_counts_as_input_whatever_the_vendor():
    usage = read_trace(FOLDER / "claude-parallel.jsonl").usage
    assert (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens) == (240, 160, 40)
    assert read_trace(FOLDER / "openai-chat.jsonl").usage.cache_read_tokens == 100


def test_an_api_error_of_claude_is_an_error_though_its_subtype_says_success():
    trace = read_trace(FOLDER / "claude-apierror.jsonl")
    assert (trace.status, trace.output, trace.error) == ("error", "", "API Error: 401 invalid api key")
    assert trace.usage.llm_calls == 0


def test_a_conversation_a_line():
    first, second = read_traces(FOLDER / "openai-chat.jsonl")
    assert (first.extra["id"], second.extra["id"]) == ("conv-1", "conv-2")
    assert (second.input, second.output, second.tool_events) == ("Hi", "Hello.", [])


def test_responses_that_follow_on_each_other_are_one_trace():
    chained, failed = read_traces(FOLDER / "openai-response-objects.jsonl")
    assert [event.tool_name for event in chained.tool_events] == ["get_weather", "web_search"]
    assert chained.usage.input_tokens == 240 and chained.output == "3 degrees."
    assert (failed.status, failed.error) == ("error", "overloaded")


def test_inspect_samples_are_traces_with_their_ids_limits_and_errors():
    good, limited, broken = read_traces(FOLDER / "inspect.json")
    assert good.extra["task_id"] == "oslo" and good.outcome == {"scores": {"includes": "C"}}
    assert good.duration_ms == 2500
    assert (limited.status, limited.error) == ("timeout", "the token limit was reached")
    assert (broken.status, broken.error) == ("error", "ValueError: boom")


def eval_file(members, compression=zipfile.ZIP_DEFLATED):
    """An `.eval` file with these members."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for path, content in members.items():
            archive.writestr(path, content if isinstance(content, bytes) else json.dumps(content))
    file.seek(0)
    return file


def log_members():
    log = json.loads((FOLDER / "inspect.json").read_text())
    samples = {f"samples/{sample['id']}_epoch_1.json": sample for sample in log.pop("samples")}
    return {"_journal/start.json": log} | samples | {"header.json": log}


def test_an_eval_file_gives_the_same_traces_as_the_log_in_json():
    assert list(read_traces(eval_file(log_members()))) == list(read_traces(FOLDER / "inspect.json"))


def test_an_eval_file_that_was_not_finished_says_so():
    members = log_members()
    del members["header.json"]
    found = list(read_found(eval_file(members)))
    assert len(found) == 3
    assert "the log was not finished: it has no header.json" in [note for each in found for note in each.notes]


def test_a_member_that_is_broken_is_left_out_and_said():
    found = list(read_found(eval_file(log_members() | {"samples/9_epoch_1.json": b"{nonsense"})))
    assert len(found) == 3
    assert any("'samples/9_epoch_1.json' is skipped" in note for each in found for note in each.notes)


def test_an_archive_is_read_within_limits():
    bomb = log_members() | {"samples/bomb_epoch_1.json": b'{"id": "' + b"0" * 3_000_000 + b'"}'}
    notes = Notes()
    assert len(list(samples_in(eval_file(bomb), notes))) == 4
    assert notes.take() == [], "within the usual limit it is read"
    assert len(list(samples_in(eval_file(bomb), notes, limit=1 << 20))) == 3
    assert notes.take() == ["'samples/bomb_epoch_1.json' is skipped: more than 1 MB"]


def test_an_archive_of_something_else_is_refused():
    with pytest.raises(TraceError, match=r"not an `.eval` log"):
        list(read_found(eval_file({"../../etc/passwd": b"x"})))


def test_the_originals_results_of_both_ages():
    old, crashed = read_traces(FOLDER / "results-1.0.json")
    assert old.engine == "copilot-sdk" and old.extra == {"task_id": "oslo"}
    assert old.skill_invocations[0].name == "weather" and old.usage.turns == 2
    assert (crashed.status, crashed.error, crashed.tool_events) == ("error", "engine: exit status 1", [])
    first, second = read_traces(FOLDER / "results-1.5.json")
    assert first.tool_events[0].args == {"command": "weather Oslo", "timeout": 5}
    assert first.tool_events[0].duration_ms == 150
    assert second.tool_events == [] and second.extra == {"task_id": "oslo"}


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


COUNT_KEY = re.compile(r"token|usage|input|output|cache|cost|prompt|completion", re.I)


def with_counts(value, change, key="", depth=0):
    """Return recorded JSON with `change` made to every count of tokens, wherever a format has them."""
    if isinstance(value, dict):
        if "intValue" in value and COUNT_KEY.search(key):
            return {"stringValue": str(change(int(value["intValue"])))}
        name = value["key"] if isinstance(value.get("key"), str) else ""
        return {one: with_counts(inner, change, name or one) for one, inner in value.items()}
    if isinstance(value, list):
        return [with_counts(item, change, key) for item in value]
    return change(value) if type(value) is int and COUNT_KEY.search(key) else value


def changed_recording(path, change):
    text = path.read_text()
    if path.suffix == ".jsonl" and not text.lstrip().startswith("["):
        lines = [json.dumps(with_counts(json.loads(line), change)) for line in text.splitlines() if line.strip()]
        return io.BytesIO("\n".join(lines).encode())
    return io.BytesIO(json.dumps(with_counts(json.loads(text), change)).encode())


COUNTED = [FOLDER / file for file in STORY if not file.startswith(NO_TOKENS)]
COUNTED += [DATA / "recordings" / f"{agent}-multi.jsonl" for agent in ("claude-latest", "codex", "gemini")]
COUNTED += [DATA / "recordings" / f"{agent}-multi.jsonl" for agent in ("opencode", "pi", "qwen", "langgraph")]
COUNTED += [
    DATA / "recordings" / name for name in ("smolagents-hello.json", "pydantic-ai-fail.json", "copilot-sdk-skill.jsonl")
]


@pytest.mark.parametrize("path", COUNTED, ids=lambda path: path.name)
def test_counts_written_as_text_are_read_and_negative_ones_are_not_recorded(path):
    right = read_trace(path)
    assert right.usage.total_tokens
    assert read_trace(changed_recording(path, str)).usage == right.usage
    wrong = read_trace(changed_recording(path, lambda count: -count if count > 1 else count))
    assert wrong.usage.total_tokens is None
    assert {"input_tokens", "output_tokens"} <= set(wrong.usage.invalid_numbers)
    assert "cannot be true: it counts as not recorded" in str(wrong.extra["reading_notes"])
    assert Trace.from_json(wrong.to_json()) == wrong


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
