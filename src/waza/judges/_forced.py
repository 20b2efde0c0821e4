"""A verdict as JSON that follows a schema, for servers that do not force tool calls.

The schema holds a ticket that is nowhere else: JSON that the judge only repeats from the text it judges cannot have
it, so it is no verdict. A code fence or a `<think>` part around the JSON is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from waza.judges._base import Call, Request, Tool
from waza.judges._fence import keyed_hash
from waza.model import JSON
from waza.sandbox.strict_json import parse_json

_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*)\n[ \t]*```", re.DOTALL | re.IGNORECASE)
_CRITERION = "criterion"


def ticket_of(request: Request) -> str:
    """Return the ticket of a request: the same for equal requests, and in no text that is judged."""
    return keyed_hash("ticket", [message.content for message in request.messages])


def forced_schema(request: Request, ticket: str) -> dict[str, JSON]:
    """Return the schema of a reply with its ticket: one call of one of the tools, or one for each criterion."""
    call = _call_schema(request.tools)
    if request.criteria:
        properties: dict[str, JSON] = {f"{_CRITERION}_{number}": call for number in range(1, request.criteria + 1)}
    else:
        properties = call["properties"]
    return _closed({"type": "object", "properties": {"ticket": {"type": "string", "enum": [ticket]}, **properties}})


def _call_schema(tools: Sequence[Tool]) -> dict[str, JSON]:
    """Return the schema of one call; the criterion is in the reply's own keys."""
    shapes = [_closed(tool.parameters) for tool in tools]
    arguments = shapes[0] if all(shape == shapes[0] for shape in shapes) else {"anyOf": shapes}
    names = {"type": "string", "enum": [tool.name for tool in tools]}
    return _closed({"type": "object", "properties": {"arguments": arguments, "tool": names}})


def _closed(schema: dict[str, Any]) -> dict[str, JSON]:
    """Return an object's schema with every property required, as strict modes want it."""
    properties = {key: value for key, value in schema["properties"].items() if key != _CRITERION}
    return schema | {"properties": properties, "required": [*properties], "additionalProperties": False}


def read_forced(text: str, request: Request, ticket: str) -> tuple[Call, ...]:
    """Return the calls a text holds, if all of it is JSON with the ticket; otherwise none."""
    try:
        found = parse_json(_inside(text))
    except ValueError:
        return ()
    if not isinstance(found, dict) or found.pop("ticket", None) != ticket:
        return ()
    if not request.criteria:
        call = _call(found)
        return (call,) if call else ()
    numbers = {f"{_CRITERION}_{number}": number for number in range(1, request.criteria + 1)}
    if not set(found) <= set(numbers):
        return ()
    calls = [_call(value, numbers[key]) for key, value in found.items()]
    return tuple(call for call in calls if call) if all(calls) else ()


def _inside(text: str) -> str:
    """Return what is left of a reply without a `<think>` part before the JSON and a code fence around it."""
    text = text.strip()
    if not text.startswith(("{", "```")) and "</think>" in text:
        text = text.split("</think>", 1)[1].strip()
    fenced = _FENCED.fullmatch(text)
    return fenced[1].strip() if fenced else text


def _call(found: Any, criterion: int = 0) -> Call | None:
    if not isinstance(found, dict) or set(found) != {"arguments", "tool"} or not isinstance(found["tool"], str):
        return None
    arguments = found["arguments"]
    if criterion and isinstance(arguments, dict):
        arguments = arguments | {_CRITERION: criterion}
    return Call(found["tool"], arguments)
