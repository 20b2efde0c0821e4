"""Spans of a trace, from OTLP JSON or the console exporter, and what their attributes say under old and new names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from waza.model import JSON
from waza.traces._json import decode
from waza.traces._pick import amount, mapping, mappings, millis, text, texts
from waza.traces._reader import Item

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
"""Operations (OpenTelemetry) and span kinds (OpenInference, OpenLLMetry), and what they are to us."""
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
            told = unpacked(self.attributes.get(key))
            if found := mappings(told) or _unflattened(self.attributes, key):
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
    """Say whether this is a span as the console exporter prints it."""
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
    told = {key: unpacked(value) for key, value in mapping(event.get("attributes")).items()}
    inner = mapping(told.get("message"))
    role = text(event.get("name")).removeprefix("gen_ai.").removesuffix(".message")
    return {"role": "assistant" if role == "choice" else role} | told | inner


def _message(item: Item) -> Item:
    """Return role, text, calls and results of a message, whatever its shape."""
    inner = mapping(item.get("message")) or item
    parts = mappings(inner.get("parts")) or mappings(inner.get("content")) or _contents(inner)
    calls = [part for part in parts if part.get("type") == "tool_call"]
    calls += [mapping(call.get("tool_call", call)) for call in mappings(inner.get("tool_calls"))]
    said = inner.get("content")
    return {
        "role": text(inner.get("role")),
        "text": said
        if isinstance(said, str)
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
