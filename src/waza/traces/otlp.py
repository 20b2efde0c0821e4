"""OpenTelemetry: GenAI spans as OTLP JSON or from the console exporter; OpenInference and OpenLLMetry names too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from waza.model import JSON, Trace
from waza.traces._draft import Draft
from waza.traces._exits import exit_code_in
from waza.traces._pick import arguments, mappings, name, text, texts, written
from waza.traces._reader import Item, Reader
from waza.traces._spans import Span, is_console_span, spans_in, unpacked
from waza.traces.smolagents import ANSWER_TOOL, final_answer

_MOST_ABOVE = 64
"""How far up a span's place is looked for; spans that hold each other end here too."""


class OtlpReader(Reader):
    """Exports, whose spans may be of several traces; each trace with a model or tool span in it is read.

    Tool calls are `execute_tool` spans; where a trace has none, they are taken from the models' messages. A tool span
    below another one belongs to a sub-agent. smolagents' `final_answer` is the answer, not a tool call. Every span
    counts as a step.
    """

    format = "OpenTelemetry spans"

    def __init__(self) -> None:
        super().__init__()
        self._spans: dict[str, dict[str, Span]] = {}

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Say whether this is an export of spans."""
        return isinstance(item.get("resourceSpans", item.get("resource_spans")), list) or is_console_span(item)

    def feed(self, item: Item) -> None:
        """Take one export."""
        for span in spans_in(item):
            self._spans.setdefault(span.trace_id, {})[span.span_id] = span

    def traces(self) -> list[Trace]:
        """Return a trace per trace id, in the order they were met."""
        found = [spans for spans in self._spans.values() if any(span.kind for span in spans.values())]
        return [_trace(spans) for spans in found]


def _trace(spans: dict[str, Span]) -> Trace:
    draft = Draft()
    ordered = sorted(spans.values(), key=lambda span: span.start_ms)
    has_tools = any(span.kind == "tool" for span in ordered)
    draft.steps = len(ordered)
    for span in ordered:
        above = list(_above(span, spans))
        thread = next((other.span_id for other in above if other.kind == "tool"), "")
        if span.kind == "model" and not any(other.kind == "model" for other in above):
            _takes_answer(draft, span, _call_id(spans[thread]) if thread else "", with_calls=not has_tools)
        elif span.kind == "tool" and not any(_tool_name(other) == _tool_name(span) for other in above):
            _takes_call(draft, span, _call_id(spans[thread]) if thread else "")
        draft.saw(span.start_ms or None)
        draft.saw(span.end_ms)
    draft.llm_calls = draft.answered
    _takes_whole(draft, ordered, spans)
    return draft.trace()


def _above(span: Span, spans: dict[str, Span]) -> Iterable[Span]:
    """Yield the spans that hold this one, the nearest first."""
    for _ in range(_MOST_ABOVE):
        parent = spans.get(span.parent_id)
        if parent is None:
            return
        yield parent
        span = parent


def _takes_answer(draft: Draft, span: Span, thread: str, *, with_calls: bool) -> None:
    for message in span.asked:
        if message["role"] == "user" and not thread and not draft.input:
            draft.asks(message["text"])
        for result in message["results"]:
            identity = result.get("id") or result.get("tool_call_id")
            call = draft.called(identity)
            if call and not call.is_settled:
                told = result.get("response", result.get("result", result.get("content")))
                draft.hears(identity, unpacked(told), True, exit_code=exit_code_in(told, call.name))
    draft.answers(thread=thread, is_new=True)
    for message in span.answered:
        draft.says(message["text"], thread)
        for call in message["calls"] if with_calls else ():
            if call["name"] == ANSWER_TOOL:
                _takes_final(draft, arguments(call["arguments"]), None, thread)
            else:
                draft.calls_tool(call["id"], call["name"], arguments(call["arguments"]), thread=thread)
    draft.uses(**_tokens(span))
    draft.model = name(span.first("gen_ai.response.model", "gen_ai.request.model", "llm.model_name")) or draft.model


def _takes_call(draft: Draft, span: Span, thread: str) -> None:
    told = span.first(
        "gen_ai.tool.call.arguments", "input.value", "traceloop.entity.input", "tool_arguments", "tool.parameters"
    )
    result = unpacked(span.first("gen_ai.tool.call.result", "output.value", "traceloop.entity.output", "tool_response"))
    tool = _tool_name(span)
    if tool == ANSWER_TOOL:
        if not span.is_error:
            _takes_final(draft, arguments(told), result, thread)
        return
    draft.calls_tool(_call_id(span), tool, arguments(told), at_ms=span.start_ms, thread=thread)
    problem = span.error or text(span.attributes.get("error.type"))
    succeeded = not span.is_error and "error.type" not in span.attributes
    code = exit_code_in(result, tool)
    draft.hears(_call_id(span), result, succeeded, at_ms=span.end_ms, error=problem or None, exit_code=code)


def _takes_final(draft: Draft, args: JSON, result: JSON, thread: str) -> None:
    """Take smolagents' final answer: the tool's result, else what it was called with; a sub-agent's is its own."""
    answer = final_answer(args) if result is None else result
    if not thread and answer is not None:
        draft.output = written(answer)


def _call_id(span: Span) -> str:
    return text(span.first("gen_ai.tool.call.id", "tool_call.id")) or span.span_id


def _tool_name(span: Span) -> str:
    if span.kind != "tool":
        return ""
    told = text(span.first("gen_ai.tool.name", "tool.name", "traceloop.entity.name"))
    return told or span.name.removeprefix("execute_tool ")


def _takes_whole(draft: Draft, ordered: list[Span], spans: dict[str, Span]) -> None:
    """Take what stands on the span of the whole run: question, answer, error, and tokens no model span tells."""
    draft.session_id = name(_of_any(ordered, "gen_ai.conversation.id", "session.id"))
    roots = [span for span in ordered if span.kind == "agent" and not any(x.kind for x in _above(span, spans))]
    if not roots:
        return
    root = roots[0]
    asked = [message["text"] for message in root.asked if message["role"] == "user"]
    draft.input = (asked[-1] if asked else _said(root.first("input.value", "traceloop.entity.input"))) or draft.input
    said = [message["text"] for message in root.answered if message["text"]]
    answer = said[-1] if said else _said(root.first("output.value", "traceloop.entity.output"))
    draft.output = answer or draft.output
    if not draft.tokens:
        draft.uses(**_tokens(root))
    if root.is_error:
        draft.fails(root.error or text(root.attributes.get("error.type")) or "the run ended with an error")


def _of_any(spans: list[Span], *keys: str) -> JSON:
    return next((found for span in spans if (found := span.first(*keys)) is not None), None)


def _said(value: JSON) -> str:
    """Return the text in an input or output value: itself, or the last message in it."""
    told = unpacked(value)
    if told is None or isinstance(told, str):
        return told or ""
    messages = mappings(told.get("messages") if isinstance(told, dict) else told)
    if messages:
        return texts(messages[-1].get("content")) or written(told)
    only = [item for item in told.values() if isinstance(item, str)] if isinstance(told, dict) else []
    return only[0] if len(only) == 1 else written(told)


def _tokens(span: Span) -> dict[str, Any]:
    return {
        "input_tokens": span.first(
            "gen_ai.usage.input_tokens",
            "gen_ai.usage.prompt_tokens",
            "llm.token_count.prompt",
            "llm.usage.prompt_tokens",
        ),
        "output_tokens": span.first(
            "gen_ai.usage.output_tokens",
            "gen_ai.usage.completion_tokens",
            "llm.token_count.completion",
            "llm.usage.completion_tokens",
        ),
        "cache_read_tokens": span.first(
            "gen_ai.usage.cache_read.input_tokens",
            "gen_ai.usage.cache_read_input_tokens",
            "llm.token_count.prompt_details.cache_read",
        ),
    }
