"""Matchers for one argument of a tool call: each returns whether it matches, and the difference.

Matchers of whole calls are in `_expected_calls.py`, the assignment of calls to expectations in `_alignment.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cached_property, partial
from typing import Annotated, Any, NamedTuple, Self

import msgspec
from pydantic import ConfigDict, Field, GetJsonSchemaHandler, field_validator, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from waza.graders.fields import PatternField
from waza.graders.text_checks import excerpt
from waza.model import JSON
from waza.options import Options
from waza.untrusted.json_schema import Schema, compile_schema, refuse_slips, unknown_keywords
from waza.untrusted.patterns import Pattern, PatternTimeout

Number = Annotated[float, Field(allow_inf_nan=False)]
_MISSING = object()
PATIENCE = 2
"""How many values that cannot be read within limits are enough; each may have cost a second."""


class Mismatch(NamedTuple):
    """One argument that was not as expected."""

    path: str
    expected: JSON
    actual: JSON = _MISSING
    why: str = ""
    """The problems that a schema reports."""
    undecided: bool = False
    """Whether it is undecided: a pattern ran out of time, or the value is nested too deeply."""

    def __str__(self) -> str:
        if self.undecided:
            return f"{self.path} could not be read within limits"
        if self.actual is _MISSING:
            return f"{self.path} is not given"
        expected = self.why or f"expected {excerpt(_text_or_notice(self.expected))}"
        return f"{self.path} is {excerpt(_text_or_notice(self.actual))}, {expected}"

    def as_json(self) -> dict[str, JSON]:
        """Return the difference as data; an argument that was not given has no `actual`."""
        facts: dict[str, JSON] = {"path": self.path, "expected": self.expected}
        if self.undecided:
            return facts | {"undecided": True}
        if self.actual is _MISSING:
            return facts | {"missing": True}
        text = _text_or_notice(self.actual)
        short = excerpt(text)
        facts["actual"] = self.actual if short == text else short
        return facts | ({"why": self.why} if self.why else {})


class Range(Options):
    """Bounds for a number; at least one."""

    gte: Number | None = None
    """The number is at least this."""
    lte: Number | None = None
    """The number is at most this."""
    gt: Number | None = None
    """The number is above this."""
    lt: Number | None = None
    """The number is below this."""

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        lows = [bound for bound in (self.gte, self.gt) if bound is not None]
        highs = [bound for bound in (self.lte, self.lt) if bound is not None]
        if not lows and not highs:
            raise ValueError("a range needs at least one of: gte, lte, gt, lt")
        if lows and highs:
            low, high = max(lows), min(highs)
            if low > high or (low == high and (low == self.gt or high == self.lt)):
                raise ValueError(f"no number lies between {low:g} and {high:g}")
        return self

    def includes(self, value: JSON) -> bool:
        """Return whether `value` is a number within the bounds; true and numbers in quotes are none."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return (
            (self.gte is None or value >= self.gte)
            and (self.lte is None or value <= self.lte)
            and (self.gt is None or value > self.gt)
            and (self.lt is None or value < self.lt)
        )


class ArgMatcher(Options):
    """The value an argument must have; where several matchers are given, all must match.

    A bare text, number, list, true, false or null is short for `equals`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    equals: Any = None
    """The argument is this value: `10` is `10.0`, but `true` is not 1 and `"10"` is not 10."""
    tolerance: Annotated[Number, Field(ge=0)] | None = None
    """How far a number may be from `equals`, inclusive."""
    regex: PatternField | None = None
    """A pattern that matches somewhere in the argument; what is not a text is read as compact JSON."""
    contains: Any = None
    """A member of a list, or a part of a text; anything else is read as compact JSON."""
    range: Range | None = None
    """Bounds for a number: `gte`, `lte`, `gt`, `lt`."""
    json_schema: Annotated[dict[str, Any], Field(min_length=1)] | None = None
    """A JSON Schema the argument fits."""

    @model_validator(mode="before")
    @classmethod
    def _from_literal(cls, value: Any) -> Any:
        return value if isinstance(value, dict | ArgMatcher) else {"equals": value}

    @field_validator("json_schema")
    @classmethod
    def _compiles(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        if schema is not None:
            compile_schema(schema)
            refuse_slips(schema)
        return schema

    @model_validator(mode="after")
    def _checks_something(self) -> Self:
        given = self.model_fields_set
        if not given - {"tolerance"}:
            raise ValueError("a matcher needs at least one of: equals, regex, contains, range, json_schema")
        if empty := next((key for key in given if key != "equals" and getattr(self, key) in (None, "")), None):
            raise ValueError(f"'{empty}' must not be empty: a check of nothing cannot fail")
        if self.tolerance is not None and (isinstance(self.equals, str | bool) or self.equals is None):
            raise ValueError("'tolerance' needs a number under 'equals'")
        return self

    @property
    def unknown_keywords(self) -> list[str]:
        """The words in `json_schema`, as pointers, that its dialect does not know: they check nothing."""
        return [f"{place}/{word}" for place, word in unknown_keywords(self.json_schema or {})]

    @cached_property
    def _schema(self) -> Schema:
        return compile_schema(self.json_schema or {})

    @cached_property
    def _tests(self) -> dict[str, Callable[[JSON], bool]]:
        return dict(self._make_tests())

    def _make_tests(self) -> Iterator[tuple[str, Callable[[JSON], bool]]]:
        if "equals" in self.model_fields_set:
            yield "equals", partial(same, self.equals, tolerance=self.tolerance)
        if self.regex is not None:
            yield "regex", partial(_matches, self.regex)
        if self.contains is not None:
            yield "contains", partial(_contains, self.contains)
        if self.range is not None:
            yield "range", self.range.includes
        if self.json_schema is not None:
            yield "json_schema", partial(_fits_schema, self._schema)

    def failing(self, value: JSON) -> list[str] | None:
        """Return the matchers that do not match `value`; None when undecided."""
        failing: list[str] = []
        unknown = False
        for key, test in self._tests.items():
            try:
                if not test(value):
                    failing.append(key)
            except (PatternTimeout, RecursionError):
                unknown = True
        return None if unknown and not failing else failing

    def matches_any(self, values: list[JSON]) -> bool | None:
        """Return whether one of the values is as expected; None when undecided."""
        unknown = 0
        for value in values:
            failing = self.failing(value)
            if failing == []:
                return True
            unknown += failing is None
            if unknown == PATIENCE:
                break
        return None if unknown else False

    def difference(self, path: str, values: list[JSON]) -> Mismatch | None:
        """Return the mismatch at a path, or None; several values are those of any element."""
        if not values:
            return Mismatch(path, self.written())
        matched = self.matches_any(values)
        if matched:
            return None
        if matched is None:
            return Mismatch(path, self.written(), undecided=True)
        if len(values) > 1:
            return Mismatch(path, self.written(), values)
        failing = self.failing(values[0])
        why = "; ".join(self._schema.problems(values[0])) if failing == ["json_schema"] else ""
        return Mismatch(path, self.written(failing), values[0], why)

    def written(self, keys: list[str] | None = None) -> dict[str, JSON]:
        """Return the matchers as an author would write them, all or those named."""
        wanted = self.model_fields_set if keys is None else {*keys, *(["tolerance"] if "equals" in keys else [])}
        return self.model_dump(include=wanted & self.model_fields_set, exclude_unset=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the schema of the mapping or of a bare value."""
        return or_bare(handler.resolve_ref_schema(handler(core)), ["string", "number", "boolean", "null", "array"])


def or_bare(schema: JsonSchemaValue, types: JSON) -> JsonSchemaValue:
    """Return the schema of a mapping, in place, as one that also takes bare values of these types."""
    mapping = dict(schema)
    schema.clear()
    schema["anyOf"] = [mapping, {"type": types}]
    return schema


def _text_or_notice(value: JSON) -> str:
    try:
        return shown(value)
    except RecursionError:
        return "(nested too deeply to show)"


def _matches(pattern: Pattern, value: JSON) -> bool:
    return pattern.search(text_of(value))


def _contains(part: JSON, value: JSON) -> bool:
    if isinstance(value, list):
        return any(same(part, member) for member in value)
    return text_of(part) in text_of(value)


def _fits_schema(schema: Schema, value: JSON) -> bool:
    try:
        return not schema.problems(value)
    except ValueError as error:  # the library's own limit on depth
        raise RecursionError(str(error)) from None


Steps = tuple[str | int | None, ...]
"""A path into nested values: a key, an index, or None for any element."""


def same(one: JSON, other: JSON, *, tolerance: float | None = None) -> bool:
    """Return whether two JSON values are equal: numbers by value, true is not 1, the order of keys does not matter."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other or (tolerance is not None and _near(one, other, tolerance))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key], tolerance=tolerance) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(a, b, tolerance=tolerance) for a, b in zip(one, other, strict=True))
    return type(one) is type(other) and bool(one == other)


def _near(one: float, other: float, tolerance: float) -> bool:
    # In decimals, as people write them: 1.1 is within 0.1 of 1.
    try:
        return abs(Decimal(str(one)) - Decimal(str(other))) <= Decimal(str(tolerance))
    except (ArithmeticError, ValueError):  # infinite, or thousands of digits
        return False


def text_of(value: JSON) -> str:
    """Return the text that patterns are matched against: a text itself, nothing for null, else compact JSON.

    Its keys are sorted, and `<`, `>` and `&` are escaped as the original does it.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    text = shown(value)
    for letter, escape in _ESCAPES:
        text = text.replace(letter, escape)
    return text


def shown(value: JSON) -> str:
    """Return a value for people: a text as it is, anything else as compact JSON with sorted keys."""
    return value if isinstance(value, str) else _JSON.encode(_WHOLE.decode(_JSON.encode(value))).decode()


def _whole(text: str) -> float:
    """Return a number without a fraction as an integer: 3.0 is written 3."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 1e21 else number


_JSON = msgspec.json.Encoder(order="deterministic")
_WHOLE = msgspec.json.Decoder(float_hook=_whole)
_ESCAPES = [(letter, f"\\u{ord(letter):04x}") for letter in "<>&\u2028\u2029"]


def parse_path(key: str) -> Steps | None:
    """Return the steps of a path such as `items[*].id`; None for a plain name (`filter[name]` is one)."""
    steps: list[str | int | None] = []
    for part in key.split("."):
        name, *indexes = part.split("[")
        if not name:
            return None
        steps.append(name)
        for index in indexes:
            inner = index.removesuffix("]")
            if inner == index or not (inner == "*" or inner.removeprefix("-").isdecimal()):
                return None
            steps.append(None if inner == "*" else int(inner))
    return tuple(steps) if len(steps) > 1 else None


def values_at(args: dict[str, JSON], key: str, steps: Steps | None) -> list[JSON]:
    """Return the value at a key or path, several where the path has `[*]`; a literal key takes precedence."""
    if key in args or steps is None:
        return [args[key]] if key in args else []
    found: list[JSON] = [args]
    for step in steps:
        found = [inner for value in found for inner in _step_into(value, step)]
    return found


def _step_into(value: JSON, step: str | int | None) -> list[JSON]:
    if isinstance(step, str):
        return [value[step]] if isinstance(value, dict) and step in value else []
    if not isinstance(value, list):
        return []
    if step is None:
        return value
    return [value[step]] if -len(value) <= step < len(value) else []
