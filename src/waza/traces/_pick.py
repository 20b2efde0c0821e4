"""Values out of foreign JSON by the type they should have; what has another type counts as absent."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from waza.model import JSON, numeric
from waza.spending import is_amount, sum_amounts
from waza.traces._json import decode

_MOST = 1 << 53


def mapping(value: JSON) -> dict[str, Any]:
    """Return an object, or an empty one."""
    return value if isinstance(value, dict) else {}


def listing(value: JSON) -> list[Any]:
    """Return a list, or an empty one."""
    return value if isinstance(value, list) else []


def mappings(value: JSON) -> list[dict[str, Any]]:
    """Return the objects in a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text(value: JSON) -> str:
    """Return a text, or an empty one."""
    return value if isinstance(value, str) else ""


def name(value: JSON) -> str | None:
    """Return a text that is not empty, or None."""
    return value if isinstance(value, str) and value else None


def count(value: JSON) -> int | None:
    """Return a whole number of 0 or more, or None; 3.0 and the text "3" are one."""
    value = numeric(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MOST or value != int(value):
        return None
    return int(value)


def amount(value: JSON) -> float | int | None:
    """Return a number of 0 or more, or None; the text "0.5" is one."""
    value = numeric(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST else None


def reported(value: JSON) -> int | None:
    """Return a count; one that cannot be true (negative, infinite, NaN) as it is, so that sums with it do not count."""
    number: JSON = numeric(value)
    if isinstance(number, int | float) and not isinstance(number, bool) and not is_amount(number):
        return number  # type: ignore[return-value]  # Usage takes it for what it is
    return count(number)


def reported_sum(needed: JSON, *more: JSON) -> int | None:
    """Return the sum of counts; None without the first one, one that cannot be true in place of a sum with it."""
    first, *others = [reported(value) for value in (needed, *more)]
    return None if first is None else sum_amounts([first, *(value for value in others if value is not None)])


def millis(value: JSON) -> float | None:
    """Return a point in time in milliseconds: from ISO 8601, or a number of milliseconds; None when it is neither."""
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value).timestamp() * 1000
        except (ValueError, OverflowError):
            return None
    return amount(value)


def arguments(value: JSON) -> JSON:
    """Return a call's arguments as an object; text that is JSON is read, other text stands under `input`."""
    if isinstance(value, str):
        try:
            parsed = decode(value.encode("utf-8", "replace")) if value.strip() else {}
        except ValueError:
            parsed = value
        value = parsed
    if value is None:
        return {}
    return value if isinstance(value, dict) else {"input": value}


def plain(value: JSON) -> JSON:
    """Return content blocks that are all text as one text; anything else as it is."""
    if isinstance(value, list) and value and all(isinstance(item, dict | str) for item in value):
        parts = [item if isinstance(item, str) else block_text(item) for item in value]
        if None not in parts:
            return "\n".join(part for part in parts if part is not None)
    return value


def block_text(block: dict[str, Any]) -> str | None:
    """Return the text of a content block, or None when it is of another kind."""
    for key in ("text", "content"):
        if isinstance(block.get(key), str) and block.get("type") not in ("thinking", "reasoning"):
            return str(block[key])
    return None


def texts(value: JSON) -> str:
    """Return the text in a message's content: a text, or the text blocks of a list, joined."""
    if isinstance(value, str):
        return value
    return "\n".join(found for block in listing(value) if (found := _text_in(block)))


def _text_in(block: JSON) -> str | None:
    return block if isinstance(block, str) else block_text(block) if isinstance(block, dict) else None


def written(value: JSON) -> str:
    """Return a value as text: itself, or its JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
