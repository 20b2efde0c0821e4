"""A verdict as JSON that follows a schema, for servers that do not force tool calls.

The schema holds a ticket that stands nowhere else: JSON that the judge only repeats from the text it judges cannot
have it, so it is no verdict.
"""

from __future__ import annotations

from collections.abc import Sequence

from waza.judges._base import Call, Tool
from waza.model import JSON
from waza.sandbox.strict_json import parse_json


def forced_schema(tools: Sequence[Tool], ticket: str) -> dict[str, JSON]:
    """Return the schema of one call of one of the tools, with its ticket."""
    shapes = [_closed(tool.parameters) for tool in tools]
    arguments = shapes[0] if all(shape == shapes[0] for shape in shapes) else {"anyOf": shapes}
    properties = {
        "ticket": {"type": "string", "enum": [ticket]},
        "arguments": arguments,
        "tool": {"type": "string", "enum": [tool.name for tool in tools]},
    }
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _closed(schema: dict[str, JSON]) -> dict[str, JSON]:
    """Return an object's schema with every property required, as strict modes want it."""
    return schema | {"required": [*schema["properties"]], "additionalProperties": False}


def read_forced(text: str, tools: Sequence[Tool], ticket: str) -> tuple[Call, ...]:
    """Return the call a text holds, if all of it is JSON with the ticket; otherwise none."""
    try:
        found = parse_json(text.strip())
    except ValueError:
        return ()
    if not isinstance(found, dict) or set(found) != {"ticket", "arguments", "tool"} or found["ticket"] != ticket:
        return ()
    return (Call(found["tool"], found["arguments"]),) if isinstance(found["tool"], str) else ()
