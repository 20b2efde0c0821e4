"""Formats and cases of which no recording is at hand: small ones written from their documentation."""

import io
import json
import re

import pytest
from trace_recordings import DATA

from waza.errors import TraceError
from waza.model import Trace
from waza.traces.reading import read_found, read_trace

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
