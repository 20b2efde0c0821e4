"""OpenTelemetry: GenAI spans as OTLP JSON or from the console exporter; OpenInference and OpenLLMetry names too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from waza.model import JSON, Trace
from waza.traces.aliases import exit_code_in
from waza.traces.base import DraftTrace, Item, Reader
from waza.traces.fields import amount, arguments, decode, mapping, mappings, millis, name, text, texts, written
from waza.traces.smolagents import ANSWER_TOOL, final_answer

_MAX_DEPTH = 64
"""How many ancestors of a span are read; this also ends a cycle of spans."""


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
        """Return whether this is an export of spans."""
        return isinstance(item.get("resourceSpans", item.get("resource_spans")), list) or is_console_span(item)

    def feed(self, item: Item) -> None:
        """Read one export."""
        for span in spans_in(item):
            self._spans.setdefault(span.trace_id, {})[span.span_id] = span

    def traces(self) -> list[Trace]:
        """Return a trace per trace id, in their order."""
        found = [spans for spans in self._spans.values() if any(span.kind for span in spans.values())]
        return [_trace(spans) for spans in found]


def _trace(spans: dict[str, Span]) -> Trace:
    draft = DraftTrace()
    ordered = sorted(spans.values(), key=lambda span: span.start_ms)
    has_tools = any(span.kind == "tool" for span in ordered)
    draft.steps = len(ordered)
    for span in ordered:
        ancestors = list(_ancestors(span, spans))
        thread = next((other.span_id for other in ancestors if other.kind == "tool"), "")
        if span.kind == "model" and not any(other.kind == "model" for other in ancestors):
            _read_answer(draft, span, _call_id(spans[thread]) if thread else "", with_calls=not has_tools)
        elif span.kind == "tool" and not any(_tool_name(other) == _tool_name(span) for other in ancestors):
            _read_call(draft, span, _call_id(spans[thread]) if thread else "")
        draft.add_time(span.start_ms or None)
        draft.add_time(span.end_ms)
    draft.llm_calls = draft.answered
    _read_root(draft, ordered, spans)
    return draft.trace()


def _ancestors(span: Span, spans: dict[str, Span]) -> Iterable[Span]:
    """Yield the ancestors of a span, the nearest first."""
    for _ in range(_MAX_DEPTH):
        parent = spans.get(span.parent_id)
        if parent is None:
            return
        yield parent
        span = parent


def _read_answer(draft: DraftTrace, span: Span, thread: str, *, with_calls: bool) -> None:
    for message in span.asked:
        if message["role"] == "user" and not thread and not draft.input:
            draft.add_prompt(message["text"])
        for result in message["results"]:
            identity = result.get("id") or result.get("tool_call_id")
            call = draft.call_with_id(identity)
            if call and not call.has_result:
                content = result.get("response", result.get("result", result.get("content")))
                draft.add_result(identity, unpacked(content), True, exit_code=exit_code_in(content, call.name))
    draft.begin_answer(thread=thread, is_new=True)
    for message in span.answered:
        draft.add_text(message["text"], thread)
        for call in message["calls"] if with_calls else ():
            if call["name"] == ANSWER_TOOL:
                _read_final(draft, arguments(call["arguments"]), None, thread)
            else:
                draft.add_call(call["id"], call["name"], arguments(call["arguments"]), thread=thread)
    draft.add_usage(**_tokens(span))
    draft.model = name(span.first("gen_ai.response.model", "gen_ai.request.model", "llm.model_name")) or draft.model


def _read_call(draft: DraftTrace, span: Span, thread: str) -> None:
    given = span.first(
        "gen_ai.tool.call.arguments", "input.value", "traceloop.entity.input", "tool_arguments", "tool.parameters"
    )
    result = unpacked(span.first("gen_ai.tool.call.result", "output.value", "traceloop.entity.output", "tool_response"))
    tool = _tool_name(span)
    if tool == ANSWER_TOOL:
        if not span.is_error:
            _read_final(draft, arguments(given), result, thread)
        return
    draft.add_call(_call_id(span), tool, arguments(given), at_ms=span.start_ms, thread=thread)
    problem = span.error or text(span.attributes.get("error.type"))
    succeeded = not span.is_error and "error.type" not in span.attributes
    code = exit_code_in(result, tool)
    draft.add_result(_call_id(span), result, succeeded, at_ms=span.end_ms, error=problem or None, exit_code=code)


def _read_final(draft: DraftTrace, args: JSON, result: JSON, thread: str) -> None:
    """Take smolagents' final answer: the tool's result, else what it was called with; a sub-agent's is its own."""
    answer = final_answer(args) if result is None else result
    if not thread and answer is not None:
        draft.output = written(answer)


def _call_id(span: Span) -> str:
    return text(span.first("gen_ai.tool.call.id", "tool_call.id")) or span.span_id


def _tool_name(span: Span) -> str:
    if span.kind != "tool":
        return ""
    tool = text(span.first("gen_ai.tool.name", "tool.name", "traceloop.entity.name"))
    return tool or span.name.removeprefix("execute_tool ")


def _read_root(draft: DraftTrace, ordered: list[Span], spans: dict[str, Span]) -> None:
    """Read the span of the whole run: prompt, answer, error, and tokens that no model span has."""
    draft.session_id = name(_of_any(ordered, "gen_ai.conversation.id", "session.id"))
    roots = [span for span in ordered if span.kind == "agent" and not any(x.kind for x in _ancestors(span, spans))]
    if not roots:
        return
    root = roots[0]
    prompts = [message["text"] for message in root.asked if message["role"] == "user"]
    prompt = prompts[-1] if prompts else _text_in(root.first("input.value", "traceloop.entity.input"))
    draft.input = prompt or draft.input
    answers = [message["text"] for message in root.answered if message["text"]]
    answer = answers[-1] if answers else _text_in(root.first("output.value", "traceloop.entity.output"))
    draft.output = answer or draft.output
    if not draft.tokens:
        draft.add_usage(**_tokens(root))
    if root.is_error:
        draft.fail(root.error or text(root.attributes.get("error.type")) or "the run ended with an error")


def _of_any(spans: list[Span], *keys: str) -> JSON:
    return next((found for span in spans if (found := span.first(*keys)) is not None), None)


def _text_in(value: JSON) -> str:
    """Return the text in an input or output value: itself, or the last message in it."""
    value = unpacked(value)
    if value is None or isinstance(value, str):
        return value or ""
    messages = mappings(value.get("messages") if isinstance(value, dict) else value)
    if messages:
        return texts(messages[-1].get("content")) or written(value)
    only = [item for item in value.values() if isinstance(item, str)] if isinstance(value, dict) else []
    return only[0] if len(only) == 1 else written(value)


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


_NANOS = 1_000_000
_KIND_BY_OPERATION = {
    "chat": "model",
    "text_completion": "model",
    "generate_content": "model",
    "completion": "model",
    "execute_tool": "tool",
    "invoke_agent": "agent",
    "invoke_workflow": "agent",
    "llm": "model",
    "tool": "tool",
    "agent": "agent",
    "chain": "agent",
    "workflow": "agent",
}
"""Operations (OpenTelemetry) and span kinds (OpenInference, OpenLLMetry), and their kinds here."""
_KIND_KEYS = ("gen_ai.operation.name", "openinference.span.kind", "traceloop.span.kind", "llm.request.type")
_IN_MESSAGES = ("gen_ai.input.messages", "llm.input_messages", "gen_ai.prompt")
_OUT_MESSAGES = ("gen_ai.output.messages", "llm.output_messages", "gen_ai.completion")
_ASKING_EVENTS = ("gen_ai.system.message", "gen_ai.user.message", "gen_ai.assistant.message", "gen_ai.tool.message")


@dataclass(frozen=True)
class Span:
    """One span, whoever wrote it."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start_ms: float
    end_ms: float | None
    attributes: dict[str, Any]
    events: list[Item]
    is_error: bool
    error: str

    @cached_property
    def kind(self) -> str:
        """What it is to us: `model`, `tool`, `agent`, or nothing."""
        for key in _KIND_KEYS:
            if found := _KIND_BY_OPERATION.get(text(self.attributes.get(key)).lower()):
                return found
        return _KIND_BY_OPERATION.get(self.name.split(" ", 1)[0], "") if self.name.count(" ") else ""

    def first(self, *keys: str) -> JSON:
        """Return the first attribute that is there, or None."""
        return next((self.attributes[key] for key in keys if self.attributes.get(key) is not None), None)

    @cached_property
    def asked(self) -> list[Item]:
        """The messages that were sent to the model."""
        return self._messages(_IN_MESSAGES, _ASKING_EVENTS)

    @cached_property
    def answered(self) -> list[Item]:
        """The messages that came back from the model."""
        return self._messages(_OUT_MESSAGES, ("gen_ai.choice",))

    def _messages(self, keys: tuple[str, ...], event_names: tuple[str, ...]) -> list[Item]:
        for key in keys:
            value = unpacked(self.attributes.get(key))
            if found := mappings(value) or _unflattened(self.attributes, key):
                return [_message(item) for item in found]
        return [_message(_from_event(event)) for event in self.events if event.get("name") in event_names]


def spans_in(item: Item) -> Iterator[Span]:
    """Yield the spans of an OTLP export, or of one line of the console exporter."""
    for group in mappings(item.get("resourceSpans", item.get("resource_spans"))):
        scopes = group.get("scopeSpans", group.get("scope_spans", group.get("instrumentationLibrarySpans")))
        for scope in mappings(scopes):
            yield from map(_from_otlp, mappings(scope.get("spans")))
    if is_console_span(item):
        yield _from_console(item)


def is_console_span(item: Item) -> bool:
    """Return whether this is a span as the console exporter prints it."""
    context = mapping(item.get("context"))
    return "trace_id" in context and "span_id" in context and isinstance(item.get("attributes"), dict)


def unpacked(value: JSON) -> JSON:
    """Return JSON text as the value it is; anything else as it is."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return decode(value.encode("utf-8", "replace"))
        except ValueError:
            return value
    return value


def _from_otlp(span: Item) -> Span:
    status = mapping(span.get("status"))
    return Span(
        trace_id=text(span.get("traceId", span.get("trace_id"))),
        span_id=text(span.get("spanId", span.get("span_id"))),
        parent_id=text(span.get("parentSpanId", span.get("parent_span_id"))),
        name=text(span.get("name")),
        start_ms=_from_nanos(span.get("startTimeUnixNano", span.get("start_time_unix_nano"))) or 0.0,
        end_ms=_from_nanos(span.get("endTimeUnixNano", span.get("end_time_unix_nano"))),
        attributes=_attributes(span.get("attributes")),
        events=[event | {"attributes": _attributes(event.get("attributes"))} for event in mappings(span.get("events"))],
        is_error=status.get("code") in (2, "STATUS_CODE_ERROR"),
        error=text(status.get("message")),
    )


def _from_console(span: Item) -> Span:
    context, status = mapping(span.get("context")), mapping(span.get("status"))
    return Span(
        trace_id=text(context.get("trace_id")),
        span_id=text(context.get("span_id")),
        parent_id=text(span.get("parent_id")),
        name=text(span.get("name")),
        start_ms=millis(span.get("start_time")) or 0.0,
        end_ms=millis(span.get("end_time")),
        attributes=mapping(span.get("attributes")),
        events=mappings(span.get("events")),
        is_error=status.get("status_code") == "ERROR",
        error=text(status.get("description")),
    )


def _from_nanos(value: JSON) -> float | None:
    number = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 25 else amount(value)
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    return None if number is None else number / _NANOS


def _attributes(value: JSON) -> dict[str, Any]:
    return {text(pair.get("key")): _value(pair.get("value")) for pair in mappings(value)}


def _value(value: JSON) -> JSON:
    """Return an OTLP value as plain JSON."""
    match value:
        case {"intValue": str(number)} if number.lstrip("-").isdecimal() and len(number) < 25:
            return int(number)
        case {"arrayValue": {"values": [*values]}}:
            return [_value(item) for item in values]
        case {"kvlistValue": {"values": [*pairs]}}:
            return _attributes(pairs)
        case dict():
            return next(iter(value.values()), None)
    return value


def _unflattened(attributes: dict[str, Any], prefix: str) -> list[Item]:
    """Return the list that was written as `prefix.0.role`, `prefix.0.tool_calls.1.name`, …"""
    tree: dict[str, Any] = {}
    for key, value in attributes.items():
        if not key.startswith(prefix + "."):
            continue
        node = tree
        *path, last = key.removeprefix(prefix + ".").split(".")
        for part in path:
            child = node.setdefault(part, {})
            node = child if isinstance(child, dict) else {}
        node[last] = value
    return mappings(_listed(tree))


def _listed(tree: JSON) -> JSON:
    if not isinstance(tree, dict):
        return tree
    if tree and all(key.isdecimal() and len(key) < 7 for key in tree):
        return [_listed(tree[key]) for key in sorted(tree, key=int)]
    return {key: _listed(value) for key, value in tree.items()}


def _from_event(event: Item) -> Item:
    """Return the message of a span event; a choice has it under `message`."""
    fields = {key: unpacked(value) for key, value in mapping(event.get("attributes")).items()}
    inner = mapping(fields.get("message"))
    role = text(event.get("name")).removeprefix("gen_ai.").removesuffix(".message")
    return {"role": "assistant" if role == "choice" else role} | fields | inner


def _message(item: Item) -> Item:
    """Return role, text, calls and results of a message, whatever its shape."""
    inner = mapping(item.get("message")) or item
    parts = mappings(inner.get("parts")) or mappings(inner.get("content")) or _contents(inner)
    calls = [part for part in parts if part.get("type") == "tool_call"]
    calls += [mapping(call.get("tool_call", call)) for call in mappings(inner.get("tool_calls"))]
    content = inner.get("content")
    return {
        "role": text(inner.get("role")),
        "text": content
        if isinstance(content, str)
        else texts([part for part in parts if part.get("type", "text") == "text"]),
        "calls": [_call(call) for call in calls],
        "results": [part for part in parts if part.get("type") == "tool_call_response"]
        + ([inner] if inner.get("role") == "tool" else []),
    }


def _contents(inner: Item) -> list[Item]:
    """Return OpenInference's content parts as parts."""
    parts = [mapping(part.get("message_content")) for part in mappings(inner.get("contents"))]
    return [part for part in parts if part]


def _call(call: Item) -> Item:
    function = mapping(call.get("function")) or call
    return {"id": call.get("id"), "name": function.get("name"), "arguments": function.get("arguments")}
