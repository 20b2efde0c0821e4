"""Any value as strict JSON: what agents hand over may hold lone surrogates, NaN, odd keys, or nest without end."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec

from waza.compact import CompactDict, CompactList, CompactView
from waza.model import JSON

MAX_DEPTH = 100
"""Levels that are kept; what lies deeper is replaced by a note, so that every reader can read what was written."""
_ENCODER = msgspec.json.Encoder()
_SEVERAL = 64
"""So many entries of a long list are written at once."""


def encode(value: Any) -> bytes:
    """Return compact JSON text that any strict reader takes."""
    try:
        return _ENCODER.encode(value)
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError, RecursionError):
        return _ENCODER.encode(plain(value))


def json_pieces(value: Any) -> Iterator[bytes]:
    """Yield the text that `encode` returns, a long list or mapping in pieces: all of it would be large."""
    if isinstance(value, CompactList | CompactView):
        yield b"["
        for number, some in enumerate(_by_several(value)):
            yield (b"," if number else b"") + encode(some)[1:-1]
        yield b"]"
    elif isinstance(value, CompactDict):
        yield b"{"
        for number, some in enumerate(_by_several(value.pairs())):
            yield (b"," if number else b"") + encode(dict(some))[1:-1]
        yield b"}"
    else:
        yield encode(value)


def _by_several(entries: Iterable[Any]) -> Iterator[list[Any]]:
    rest = iter(entries)
    while some := list(islice(rest, _SEVERAL)):
        yield some


def encode_shallow(value: Any) -> bytes:
    """Return compact JSON text that any reader takes, also one that cannot follow deep nesting."""
    text = encode(value)
    may_be_deep = text.count(b"{") + text.count(b"[") > MAX_DEPTH
    return _ENCODER.encode(plain(value)) if may_be_deep and _is_deep(text) else text


def plain(value: Any, depth: int = 0) -> JSON:
    """Return `value` made of JSON's own types only; records become mappings."""
    if isinstance(value, str):
        return whole_text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return _number(value)
    if depth >= MAX_DEPTH:
        return "[nested too deeply to be kept]"
    if isinstance(value, msgspec.Struct):
        return {key: plain(item, depth + 1) for key, item in _fields(value)}
    if isinstance(value, dict | CompactDict):
        return {whole_text(str(key)): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset, CompactList, CompactView)):
        return [plain(item, depth + 1) for item in value]
    return whole_text(str(value))


def whole_text(text: str) -> str:
    """Return the text with each lone half of a surrogate pair replaced, so that it can be written as UTF-8."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _number(value: float) -> float | None:
    if isinstance(value, int):
        return value if value.bit_length() <= 1024 else None
    return value if math.isfinite(value) else None


def _fields(record: msgspec.Struct) -> list[tuple[str, Any]]:
    """Return a record's fields as they are called in JSON; what is not set is left out, as the record says."""
    config = record.__struct_config__
    tag = [(config.tag_field, config.tag)] if config.tag_field else []
    values = [(info, getattr(record, info.name)) for info in msgspec.structs.fields(record)]
    return tag + [(i.encode_name, value) for i, value in values if not (config.omit_defaults and _is_default(i, value))]


def _is_default(info: msgspec.structs.FieldInfo, value: Any) -> bool:
    if info.default_factory is not msgspec.NODEFAULT:
        return value in ([], {})
    return info.default is not msgspec.NODEFAULT and value is info.default


def _is_deep(text: bytes) -> bool:
    """Say whether brackets nest deeper than is kept; those inside strings do not count."""
    brackets = _STRING.sub(b"", text).translate(None, _NOT_BRACKETS)
    for _ in range(MAX_DEPTH):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    return bool(brackets)


_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
