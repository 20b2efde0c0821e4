"""Values in foreign JSON: fields by their expected type, and decoding of lenient or truncated JSON.

A value of another type counts as absent. Decoding never guesses: what it accepts beyond the standard is listed at
`decode`; `repair` closes a document that was cut off after its last complete member.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

import msgspec

from waza.model import JSON, decode_any_numbers, numeric
from waza.spending import is_amount, sum_amounts

MAX_DEPTH = 200
"""How deeply values may be nested; deeper ones are refused, so that recursive code does not run out of stack."""
_LIMIT = 1 << 53
_TOKEN = re.compile(r'\s*(?:"(?:[^"\\\x00-\x1f]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+)')
_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"
_CLOSED_BY = {"{": "}", "[": "]"}


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
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LIMIT or value != int(value):
        return None
    return int(value)


def amount(value: JSON) -> float | int | None:
    """Return a number of 0 or more, or None; the text "0.5" is one."""
    value = numeric(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _LIMIT else None


def reported(value: JSON) -> int | None:
    """Return a count; an invalid one (negative, infinite, NaN) unchanged, which makes sums with it invalid too."""
    number: JSON = numeric(value)
    if isinstance(number, int | float) and not isinstance(number, bool) and not is_amount(number):
        return number  # type: ignore[return-value]  # Usage records it as invalid
    return count(number)


def reported_sum(needed: JSON, *more: JSON) -> int | None:
    """Return the sum of counts; None without the first one, an invalid count if one is in it."""
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
    """Return a call's arguments as an object; text that is JSON is read, other text is put under `input`."""
    if isinstance(value, str):
        try:
            parsed = decode(value.encode("utf-8", "replace")) if value.strip() else {}
        except ValueError:
            parsed = value
        value = parsed
    if value is None:
        return {}
    return value if isinstance(value, dict) else {"input": value}


def text_of_blocks(value: JSON) -> JSON:
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
    return "\n".join(part for block in listing(value) if (part := _text_in(block)))


def _text_in(block: JSON) -> str | None:
    return block if isinstance(block, str) else block_text(block) if isinstance(block, dict) else None


def written(value: JSON) -> str:
    """Return a value as text: itself, or its JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def decode(text: bytes) -> JSON:
    """Return the value; raise ValueError when it is not JSON or nested too deeply.

    Non-standard output of Python and JavaScript programs is accepted: NaN as null, half a surrogate pair as "?", and a
    number that is too large as the largest one.
    """
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        value = _decode_lenient(text, error)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH and _is_deep(value):
        raise ValueError(_TOO_DEEP)
    return value


def _decode_lenient(text: bytes, error: Exception) -> JSON:
    is_too_large = "out of range" in str(error)
    if not is_too_large and b"\\u" not in text and b"NaN" not in text and b"Infinity" not in text:
        raise ValueError(str(error)) from None
    try:
        value = decode_any_numbers(text)
        return msgspec.json.decode(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise ValueError(str(error)) from None


def _is_deep(value: JSON) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
    return bool(level)


def repair(text: bytes) -> JSON:
    """Return the part of a document before it was cut off or broken; None when there is none.

    Every open object and list is closed after its last complete member.
    """
    source = text.decode("utf-8", "replace")
    end, closing = _last_complete(source)
    if not end:
        return None
    try:
        return decode((source[:end] + closing).encode())
    except ValueError:
        return None


def _last_complete(source: str) -> tuple[int, str]:
    """Return where the last complete member of the outermost value ends, and the brackets to close there.

    Only brackets change which values are open, and after every bracket there is such an end: so the values open at the
    last token were open at that end too.
    """
    stack: list[str] = []
    end = place = 0
    previous = ""
    while match := _TOKEN.match(source, place):
        token = match.group().lstrip()
        if token in _CLOSED_BY:
            if len(stack) == MAX_DEPTH:
                break
            stack.append(token)
        elif token in ("}", "]"):
            if not stack or _CLOSED_BY[stack[-1]] != token:
                break
            stack.pop()
        place = match.end()
        if token in "{}[]" or (_is_value(previous, stack) and _is_complete(token, place < len(source))):
            end = place
        if not stack:
            break
        previous = token
    return end, "".join(_CLOSED_BY[bracket] for bracket in reversed(stack))


def _is_value(previous: str, stack: list[str]) -> bool:
    """Return whether the token after `previous` is a value, and not a key."""
    return previous in (":", "[") or (previous == "," and stack[-1:] == ["["])


def _is_complete(token: str, has_more: bool) -> bool:
    """Return whether a token is a complete text, number or word; a number at the very end may be truncated."""
    return (token[0] == '"' or has_more) and _is_scalar(token)


def _is_scalar(token: str) -> bool:
    try:
        msgspec.json.decode(token)
    except msgspec.DecodeError:
        return False
    return True
