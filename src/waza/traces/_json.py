"""JSON that other programs wrote: decoded leniently where nothing is guessed, and mended where it was cut off."""

from __future__ import annotations

import json
import re

import msgspec

from waza.model import JSON, decode_any_numbers

MAX_DEPTH = 200
"""How deeply values may be nested; what is deeper is refused, so that nothing that walks them runs out of stack."""

_TOKEN = re.compile(r'\s*(?:"(?:[^"\\\x00-\x1f]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+)')
_CLOSED_BY = {"{": "}", "[": "]"}


def decode(text: bytes) -> JSON:
    """Return the value; raise ValueError when it is no JSON or nested too deeply.

    What Python and JavaScript programs print against the standard is read: NaN as null, half a surrogate pair as "?",
    and a number that is too large as the largest one.
    """
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        value = _decode_sloppy(text, error)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH and _is_deep(value):
        raise ValueError(_TOO_DEEP)
    return value


_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"


def _decode_sloppy(text: bytes, error: Exception) -> JSON:
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


def mend(text: bytes) -> JSON:
    """Return what stands before the place where a document was cut off or broken; None when that is nothing.

    Every object and list that was open is closed after its last whole member.
    """
    source = text.decode("utf-8", "replace")
    end, closing = _last_whole(source)
    if not end:
        return None
    try:
        return decode((source[:end] + closing).encode())
    except ValueError:
        return None


def _last_whole(source: str) -> tuple[int, str]:
    """Return where the last whole member of the outermost value ends, and the brackets to close there.

    Only brackets change what is open, and every bracket ends a whole member: so what is open at last was open there.
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
        if token in "{}[]" or (_is_value(previous, stack) and _is_whole(token, place < len(source))):
            end = place
        if not stack:
            break
        previous = token
    return end, "".join(_CLOSED_BY[bracket] for bracket in reversed(stack))


def _is_value(previous: str, stack: list[str]) -> bool:
    """Say whether what follows a token is a value, and not a key."""
    return previous in (":", "[") or (previous == "," and stack[-1:] == ["["])


def _is_whole(token: str, has_more: bool) -> bool:
    """Say whether a token is a whole text, number or word; at the very end a number may go on."""
    return (token[0] == '"' or has_more) and _is_scalar(token)


def _is_scalar(token: str) -> bool:
    try:
        msgspec.json.decode(token)
    except msgspec.DecodeError:
        return False
    return True
