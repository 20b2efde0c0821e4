"""Read JSON of unknown origin strictly, within bounds of size and depth, and write any value as strict JSON.

Reading raises only ValueError. It refuses NaN and infinities, numbers that overflow, a duplicate key in one object, a
lone surrogate, a byte order mark. `encode` accepts what agents return: lone surrogates, NaN, odd keys, endless nesting.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec

from waza.compact import CompactDict, CompactList, CompactView
from waza.model import JSON
from waza.untrusted.text import well_formed

MAX_JSON_CHARS = 32 * 1024 * 1024
MAX_DEPTH = 200
MAX_SEARCH_WORK = 5_000_000
"""How many characters may be read without success while searching for a JSON value in a text."""
_ATTEMPT_WORK = 200
_FIRST_WINDOW = 4096
_LONGEST_WORD = 16

_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_OPENING = re.compile(r"""\{(?=[ \t\n\r]*["}])|\[(?=[ \t\n\r]*["\[\]{0-9tfnNI-])""")
"""A bracket followed by something that JSON allows there."""


def parse_json(text: str) -> Any:
    """Return the value of a JSON text, white space around it allowed; raise ValueError with the reason."""
    _refuse_size(text)
    if text.startswith("\ufeff"):
        raise ValueError("the JSON begins with a byte order mark")
    try:
        value = _decode(text)
    except RecursionError:
        raise _too_deep() from None
    _refuse_odd_values(value, text)
    return value


def extract_json(text: str) -> Any:
    """Return the only JSON object or array in a text; raise ValueError if there is none or several."""
    _refuse_size(text)
    found: list[Any] = []
    at = work = 0
    while len(found) < 2 and (opening := _OPENING.search(text, at)):
        start = opening.start()
        values, end = _decode_at(text, start)
        found += values
        at = end if values else start + 1
        work += 0 if values else end - start + _ATTEMPT_WORK
        if work > MAX_SEARCH_WORK:
            raise ValueError("too many brackets that lead to no JSON value")
    if len(found) != 1:
        raise ValueError(f"found {'multiple' if found else 'zero'} JSON object or array documents")
    _refuse_odd_values(found[0], text)
    return found[0]


def _decode_at(text: str, start: int) -> tuple[list[Any], int]:
    """Return the value that begins at `start`, if one does, and how far the text was read.

    The text is read in growing windows, because an error of the decoder costs time in proportion to the text before it.
    """
    constants: list[str] = []
    decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=constants.append)
    size = _FIRST_WINDOW
    while True:
        window = text[start : start + size]
        try:
            value, end = decoder.raw_decode(window)
            return ([] if constants else [value]), start + end
        except json.JSONDecodeError as error:
            cut = error.pos > size - _LONGEST_WORD or error.msg.startswith("Unterminated string")
            if not cut or len(window) < size:
                return [], start + (len(window) if cut else error.pos)
        except RecursionError:
            raise _too_deep() from None
        constants.clear()
        size *= 4


def refuse_depth(value: Any) -> None:
    """Raise ValueError for a value nested deeper than MAX_DEPTH."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return
    if any(isinstance(node, dict | list) for node in level):
        raise _too_deep()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        duplicate = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {duplicate[:100]!r} is in one object twice")
    return unique


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


_STRICT = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_refuse_constant)


def _decode(text: str) -> Any:
    """Return the value of a text, without searching for white space around it unless there is some."""
    try:
        value, end = _STRICT.raw_decode(text)
    except json.JSONDecodeError:
        return _STRICT.decode(text)
    return value if end == len(text) else _STRICT.decode(text)


def _refuse_size(text: str) -> None:
    if len(text) > MAX_JSON_CHARS:
        raise ValueError(f"more than {MAX_JSON_CHARS} characters")


def _refuse_odd_values(value: Any, text: str) -> None:
    if text.count("[") + text.count("{") > MAX_DEPTH:
        refuse_depth(value)
    suspicious = ("\\u" in text and _ESCAPED_SURROGATE.search(text)) or not _is_unicode(text)
    if suspicious and not _is_unicode(json.dumps(value, ensure_ascii=False)):
        raise ValueError("a text contains a lone surrogate, which is not a character")


def _is_unicode(text: str) -> bool:
    """Return whether every character of a text can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _too_deep() -> ValueError:
    return ValueError(f"nested deeper than {MAX_DEPTH}")


MAX_ENCODED_DEPTH = 100
"""Levels that are written; deeper values are replaced by a note, so that every reader can parse the result."""
_ENCODER = msgspec.json.Encoder()
_BATCH = 64
"""Entries of a long list that are written at once."""


def encode(value: Any) -> bytes:
    """Return compact JSON text that any strict parser accepts."""
    try:
        return _ENCODER.encode(value)
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError, RecursionError):
        return _ENCODER.encode(to_json(value))


def json_pieces(value: Any) -> Iterator[bytes]:
    """Yield the text that `encode` returns, in pieces where a list or mapping is too long for memory."""
    if isinstance(value, CompactList | CompactView):
        yield b"["
        for number, some in enumerate(_batches(value)):
            yield (b"," if number else b"") + encode(some)[1:-1]
        yield b"]"
    elif isinstance(value, CompactDict):
        yield b"{"
        for number, some in enumerate(_batches(value.pairs())):
            yield (b"," if number else b"") + encode(dict(some))[1:-1]
        yield b"}"
    else:
        yield encode(value)


def _batches(entries: Iterable[Any]) -> Iterator[list[Any]]:
    rest = iter(entries)
    while some := list(islice(rest, _BATCH)):
        yield some


def encode_shallow(value: Any) -> bytes:
    """Return compact JSON text that any parser accepts, also one that limits nesting."""
    text = encode(value)
    may_be_deep = text.count(b"{") + text.count(b"[") > MAX_ENCODED_DEPTH
    return _ENCODER.encode(to_json(value)) if may_be_deep and _is_deep(text) else text


def to_json(value: Any, depth: int = 0) -> JSON:
    """Return `value` made of JSON's own types; records become mappings."""
    if isinstance(value, str):
        return well_formed(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return _number(value)
    if depth >= MAX_ENCODED_DEPTH:
        return "[nested too deeply to be stored]"
    if isinstance(value, msgspec.Struct):
        return {key: to_json(item, depth + 1) for key, item in _fields(value)}
    if isinstance(value, dict | CompactDict):
        return {well_formed(str(key)): to_json(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset, CompactList, CompactView)):
        return [to_json(item, depth + 1) for item in value]
    return well_formed(str(value))


def _number(value: float) -> float | None:
    if isinstance(value, int):
        return value if value.bit_length() <= 1024 else None
    return value if math.isfinite(value) else None


def _fields(record: msgspec.Struct) -> list[tuple[str, Any]]:
    """Return a record's fields by their JSON names, without defaults where the record omits them."""
    config = record.__struct_config__
    tag = [(config.tag_field, config.tag)] if config.tag_field else []
    values = [(info, getattr(record, info.name)) for info in msgspec.structs.fields(record)]
    return tag + [(i.encode_name, value) for i, value in values if not (config.omit_defaults and _is_default(i, value))]


def _is_default(info: msgspec.structs.FieldInfo, value: Any) -> bool:
    if info.default_factory is not msgspec.NODEFAULT:
        return value in ([], {})
    return info.default is not msgspec.NODEFAULT and value is info.default


def _is_deep(text: bytes) -> bool:
    """Return whether brackets nest deeper than MAX_ENCODED_DEPTH; those inside strings do not count."""
    brackets = _STRING.sub(b"", text).translate(None, _NOT_BRACKETS)
    for _ in range(MAX_ENCODED_DEPTH):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    return bool(brackets)


_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
