"""Check a value against a JSON Schema of unknown origin.

Nothing is ever fetched for a `$ref`, patterns run in linear time, and a schema whose references multiply is refused.
The dialect is 2020-12 unless `$schema` names another; `format` is asserted up to draft-07, as the dialects specify,
with `uuid` and `duration` of the later ones. `unknown_keywords` finds keywords that no dialect has, which a validator
ignores.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from waza.errors import typo_of
from waza.untrusted.json import extract_json, parse_json, refuse_depth

if TYPE_CHECKING:  # a native library that takes 6 ms to load, for the suites that have a schema
    import jsonschema_rs

__all__ = ["Schema", "compile_schema", "extract_json", "parse_json", "refuse_slips", "unknown_keywords"]

MAX_PROBLEMS = 20
MAX_PROBLEM_CHARS = 300
MAX_BRANCHES = 100_000
_SMALL = 20_000
_DIALECTS = ("draft-04", "draft-06", "draft-07", "2019-09", "2020-12")
_SCHEMA_KEYS = {
    *("additionalItems", "additionalProperties", "allOf", "anyOf", "contains", "contentSchema", "else", "if", "items"),
    *("not", "oneOf", "prefixItems", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
}
"""Keywords whose value is a schema or a list of schemas."""
_MAP_KEYS = {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
"""Keywords whose value has schemas under names of the author's own."""
_FIRST = {
    "draft-06": {"const", "contains", "examples", "propertyNames"},
    "draft-07": {"contentEncoding", "contentMediaType", "else", "if", "readOnly", "then", "writeOnly"},
    "2019-09": {
        *("$anchor", "$recursiveAnchor", "$recursiveRef", "$vocabulary", "contentSchema", "dependentRequired"),
        *("dependentSchemas", "deprecated", "maxContains", "minContains", "unevaluatedItems", "unevaluatedProperties"),
    },
    "2020-12": {"$dynamicAnchor", "$dynamicRef", "prefixItems"},
}
"""The dialect that introduced a keyword, where it was not the first one."""
_LAST = {"dependencies": "draft-07", "additionalItems": "2019-09", "$recursiveRef": "2019-09"}
_KEYWORDS = {
    *("$comment", "$id", "$ref", "$schema", "default", "description", "enum", "exclusiveMaximum", "exclusiveMinimum"),
    *("format", "id", "maxItems", "maxLength", "maxProperties", "maximum", "minItems", "minLength", "minProperties"),
    *("minimum", "multipleOf", "pattern", "required", "title", "type", "uniqueItems"),
}.union(_SCHEMA_KEYS, _MAP_KEYS, *_FIRST.values())
"""The keywords of all dialects."""
_ANNOTATIONS = {"id", "example", "nullable", "note", "comment"}
"""Common words that validators ignore, though they are close to a keyword."""
_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "$ref", "$dynamicRef")


class Schema:
    """A compiled JSON Schema."""

    __slots__ = ("_source", "_validator")

    def __init__(self, schema: dict[str, Any] | bool) -> None:
        self._source = schema
        self._validator = _compile(schema)

    def __reduce__(self) -> tuple[Any, ...]:
        return Schema, (self._source,)

    def problems(self, value: Any) -> list[str]:
        """Return a short message for each of the first problems of `value`; empty when it is valid."""
        try:
            if self._validator.is_valid(value):
                return []
        except ValueError as error:
            return [f"not a JSON value: {error}"]
        errors = self._validator.iter_errors(value) if _is_small(value) else self._first(value)
        messages = [_message(error) for error in islice(errors, MAX_PROBLEMS + 1)]
        return messages if len(messages) <= MAX_PROBLEMS else [*messages[:MAX_PROBLEMS], "and more"]

    def _first(self, value: Any) -> Iterator[jsonschema_rs.ValidationError]:
        """Yield only the first error of a large value: the library collects all errors before it returns one."""
        import jsonschema_rs  # as in `_compile`

        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            yield error


def compile_schema(schema: dict[str, Any] | bool) -> Schema:
    """Return the schema, ready to check values; raise ValueError with the reason it is refused."""
    return Schema(schema)


def unknown_keywords(schema: dict[str, Any] | bool) -> list[tuple[str, str]]:
    """Return the keywords that the dialect does not have, each after the JSON pointer of its schema."""
    unknown: list[tuple[str, str]] = []
    known = _keywords_of(schema.get("$schema") if isinstance(schema, dict) else None) | _ANNOTATIONS
    visited: set[int] = set()
    places = _named(schema) if isinstance(schema, dict) else {}
    waiting: list[tuple[str, Any]] = [("", schema)]
    while waiting:
        place, node = waiting.pop()
        if not isinstance(node, dict) or id(node) in visited:
            continue
        visited.add(id(node))
        for word, value in node.items():
            below = f"{place}/{word}"
            if word not in known and not word.startswith("x-"):
                unknown.append((place, word))
            elif word in _SCHEMA_KEYS:
                members = list(enumerate(value)) if isinstance(value, list) else []
                waiting += [(f"{below}/{index}", inner) for index, inner in members] or [(below, value)]
            elif word in _MAP_KEYS and isinstance(value, dict):
                waiting += [(f"{below}/{name}", inner) for name, inner in value.items()]
            elif word in ("$ref", "$dynamicRef", "$recursiveRef") and isinstance(value, str):
                waiting.append((value.removeprefix("#"), places.get(value)))
    return sorted(unknown)


def _keywords_of(dialect: Any) -> set[str]:
    """Return the keywords of the dialect that `$schema` names, or of all dialects if it names an unknown one."""
    number = len(_DIALECTS) - 1
    if isinstance(dialect, str):
        number = next((number for number, name in enumerate(_DIALECTS) if name in dialect), -1)
    if number < 0:
        return _KEYWORDS
    later = set().union(*(_FIRST.get(name, ()) for name in _DIALECTS[number + 1 :]))
    return {word for word in _KEYWORDS - later if _DIALECTS.index(_LAST.get(word, "2020-12")) >= number}


def refuse_slips(schema: dict[str, Any] | bool) -> None:
    """Raise ValueError for misspelled keywords in a schema, with the keyword meant."""
    slips = [
        f"{place or 'the schema'}: unknown keyword '{word}'; did you mean '{meant}'?"
        for place, word in unknown_keywords(schema)
        if word not in _KEYWORDS and (meant := typo_of(word, _KEYWORDS))
    ]
    if slips:
        raise ValueError(f"{'; '.join(slips)} (write x-… for a keyword of your own)")


@cache
def _formats() -> dict[str, Any]:
    import jsonschema_rs  # as in `_compile`

    return {
        name: jsonschema_rs.Draft202012Validator({"format": name}, validate_formats=True).is_valid
        for name in ("uuid", "duration")
    }


def _compile(schema: dict[str, Any] | bool) -> jsonschema_rs.Validator:
    import jsonschema_rs  # a native library that takes 6 ms to load, for the suites that have a schema

    requested: list[str] = []

    def refuse(uri: str) -> Any:
        requested.append(uri.removeprefix("json-schema:///"))
        raise ValueError("nothing is fetched")

    if not isinstance(schema, dict | bool):
        raise ValueError(f"a JSON Schema is a mapping, found {type(schema).__name__}")
    _require_json(schema)
    try:
        validator = jsonschema_rs.validator_for(
            schema,
            retriever=refuse,
            pattern_options=jsonschema_rs.RegexOptions(),
            ignore_unknown_formats=True,
            formats=_formats(),
        )
    except ValueError as error:
        raise ValueError(_why_refused(error, requested)) from None
    if requested:
        raise ValueError(_why_refused(ValueError(), requested))
    if isinstance(schema, dict) and _branches(schema) > MAX_BRANCHES:
        raise ValueError(f"the schema's references multiply to more than {MAX_BRANCHES} branches for one value")
    return validator


def _why_refused(error: ValueError, requested: list[str]) -> str:
    if requested:
        return f"'{requested[0]}' is outside the schema, and nothing is ever fetched; put it under '$defs'"
    import jsonschema_rs  # as in `_compile`

    if not isinstance(error, jsonschema_rs.ValidationError):
        return f"not a JSON Schema: {error}"
    reason = error.message
    if reason.endswith('is not a "regex"'):
        reason = f"{_short(repr(error.instance))} is not a linear-time pattern (no lookaround, no backreferences)"
    return f"not a valid JSON Schema: {_at(error.instance_path)}{_short(reason)}"


def _message(error: jsonschema_rs.ValidationError) -> str:
    return f"{_at(error.instance_path)}{_short(error.message)}"


def _at(path: list[str | int]) -> str:
    """Return the place of a problem as the beginning of its message: `/items/0: `."""
    return _short("/" + "/".join(map(str, path))) + ": " if path else ""


def _short(text: str) -> str:
    if len(text) <= MAX_PROBLEM_CHARS:
        return text
    half = MAX_PROBLEM_CHARS // 2
    return f"{text[:half]} … {text[-half:]}"


def _is_small(value: Any) -> bool:
    """Return whether a value is small enough that listing all its errors is cheap."""
    weight, waiting = 0, [value]
    while waiting and weight <= _SMALL:
        node = waiting.pop()
        weight += 1 + (len(node) if isinstance(node, str | list | dict) else 0)
        if isinstance(node, dict):
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    return weight <= _SMALL


def _require_json(schema: Any) -> None:
    try:
        json.dumps(schema, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"not a JSON Schema: {error}") from None
    refuse_depth(schema)


def _branches(root: dict[str, Any]) -> int:
    """Return the number of subschemas that apply to one and the same value, references followed, cycles cut."""
    places = _named(root)
    counts: dict[int, int] = {}

    def count(node: Any) -> int:
        if not isinstance(node, dict) or id(node) in counts:
            return counts.get(id(node), 1)
        counts[id(node)] = 1
        counts[id(node)] = 1 + sum(count(child) for child in _applied(node, places))
        return counts[id(node)]

    try:
        return max(count(node) for node in _subschemas(root))
    except RecursionError:
        return MAX_BRANCHES + 1


def _applied(node: dict[str, Any], places: dict[str, Any]) -> Iterator[Any]:
    """Yield the subschemas that apply to the same value as `node`."""
    for key in _IN_PLACE:
        inner = node.get(key)
        if isinstance(inner, str):
            yield places.get(inner)
        elif isinstance(inner, list):
            yield from inner
        elif isinstance(inner, dict):
            yield from inner.values() if key == "dependentSchemas" else [inner]


def _named(root: dict[str, Any]) -> dict[str, Any]:
    """Return the subschemas by the names a `$ref` may use: a pointer, an anchor, an id."""
    places: dict[str, Any] = {"#": root}
    waiting: list[tuple[str, Any]] = [("#", root)]
    while waiting:
        pointer, node = waiting.pop()
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, child in items:
            below = f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"
            places[below] = child
            waiting.append((below, child))
        if isinstance(node, dict):
            for key, mark in (("$anchor", "#"), ("$dynamicAnchor", "#"), ("$id", ""), ("id", "")):
                if isinstance(name := node.get(key), str):
                    places[mark + name] = node
    return places


def _subschemas(root: Any) -> Iterator[dict[str, Any]]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
