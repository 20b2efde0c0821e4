"""Matchers for one argument of a tool call: each returns whether it matches, and the difference.

Matchers of whole calls are in `_expected_calls.py`, the assignment of calls to expectations in `_alignment.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import msgspec
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    PlainValidator,
    PrivateAttr,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from waza.errors import nearest, what
from waza.graders.base import PatternField
from waza.graders.text import excerpt
from waza.model import JSON
from waza.options import Options
from waza.untrusted.json_schema import Schema, compile_schema, refuse_slips, unknown_keywords
from waza.untrusted.patterns import Pattern, PatternTimeout
from waza.untrusted.text import fold_case

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
    fact: str = ""
    """The whole sentence, where it is not about a value that should be another one."""

    def __str__(self) -> str:
        if self.fact:
            return self.fact
        if self.undecided:
            return f"{self.path} could not be read within limits"
        if self.actual is _MISSING:
            return f"{self.path} is not given"
        expected = self.why or f"expected {excerpt(_in_words(self.expected))}"
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


TYPES: dict[str, Callable[[JSON], bool]] = {
    "string": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: not isinstance(value, bool) and isinstance(value, int | float) and value == value // 1,
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}
"""The types of JSON Schema: 3.0 is an integer, true is no number."""
_KINDS = ("equals", "regex", "contains", "range", "json_schema", "any_of", "not", "type", "present")
_MODIFIERS = {"tolerance", "optional", "ignore_case"}
Bindings = Mapping[str, list[JSON]]
"""The values that are bound to names in a rule of `trace_rules`."""
Test = Callable[[JSON], bool]
_NO_BINDINGS: Bindings = {}


def _type_words(value: Any) -> Any:
    words = value if isinstance(value, list) else [value]
    if not words:
        raise ValueError("must not be empty: a check of nothing cannot fail")
    known = list(TYPES)
    for word in words:
        if not isinstance(word, str) or word not in TYPES:
            close = nearest(word, known) if isinstance(word, str) else None
            hint = f"; did you mean '{close}'?" if close else ""
            raise ValueError(f"found {what(word)}; one of: {', '.join(known)}{hint}")
    return value


def inner_matcher(value: Any) -> Any:
    """Return what is written for a matcher that is not of an argument itself; raise ValueError for its own keys."""
    for key in ("optional", "present"):
        if isinstance(value, dict) and key in value:
            raise ValueError(f"'{key}' belongs to the argument itself")
    return value


def no_empty_list(value: Any) -> Any:
    """Return what is written under `any_of`; raise ValueError for an empty list."""
    if value == []:
        raise ValueError("'any_of' must not be empty: a check of nothing cannot fail")
    return value


def null_matcher(value: Any) -> Any:
    """Return what is written under `not`: null is a value there."""
    return {"equals": None} if value is None else value


_TYPE_SCHEMA: dict[str, Any] = {"enum": list(TYPES)}
TypeWords = Annotated[
    Any,
    PlainValidator(_type_words),
    WithJsonSchema({"anyOf": [_TYPE_SCHEMA, {"type": "array", "items": _TYPE_SCHEMA, "minItems": 1}]}),
]


class ArgMatcher(Options):
    """The value an argument must have; where several matchers are given, all must match.

    A bare text, number, list, true, false or null is short for `equals`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    kinds: ClassVar[tuple[str, ...]] = _KINDS
    """The keys of which a matcher needs at least one."""

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
    any_of: (
        Annotated[list[Annotated[ArgMatcher, BeforeValidator(inner_matcher)]], BeforeValidator(no_empty_list)] | None
    ) = None
    """Values or matchers of which one must match."""
    not_: Annotated[Annotated[ArgMatcher, BeforeValidator(inner_matcher)] | None, BeforeValidator(null_matcher)] = (
        Field(default=None, alias="not")
    )
    """A value or matcher that must not match; an argument that is not given does not match either."""
    type: TypeWords = None
    """The type: `string`, `number`, `integer`, `boolean`, `array`, `object`, `null`, or a list of them."""
    present: bool | None = None
    """Whether the argument is given at all, whatever its value; no other key goes with it."""
    optional: bool = False
    """Whether the argument may be left out; where it is given, even as null, it is checked."""
    ignore_case: bool = False
    """Whether texts are compared in any case: `equals`, `contains`, `regex`, bare texts of `any_of` and `not`."""

    _is_bare: bool = PrivateAttr(default=False)
    _is_name: bool = PrivateAttr(default=False)

    @classmethod
    def any_value(cls) -> ArgMatcher:
        """Return a matcher for an argument that may be given, with any value: `{optional: true}` alone."""
        matcher = cls.model_construct(optional=True)
        matcher._is_name = True
        return matcher

    @model_validator(mode="wrap")
    @classmethod
    def _from_literal(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(value, ArgMatcher):
            return value  # type: ignore[return-value]  # a plain matcher among those of a rule needs no `bound`
        if isinstance(value, dict):
            if "bound" in value and "bound" not in cls.model_fields:
                raise ValueError("'bound' belongs to the rules of trace_rules")
            return handler(value)
        matcher = handler({"equals": value})
        matcher._is_bare = True
        return matcher

    @model_serializer(mode="wrap")
    def _with_null(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Write `equals: null` too, which is its default: a matcher without it would check nothing."""
        data: dict[str, Any] = handler(self)
        is_wanted = info.include is None or "equals" in info.include
        if "equals" in self.model_fields_set and is_wanted and "equals" not in data:
            data["equals"] = self.equals
        return data

    @field_validator("json_schema")
    @classmethod
    def _compiles(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        if schema is not None:
            compile_schema(schema)
            refuse_slips(schema)
        return schema

    @model_validator(mode="after")
    def _checks_something(self) -> Self:
        given = {"not" if key == "not_" else key for key in self.model_fields_set}
        if not given - _MODIFIERS and not self._is_name:
            raise ValueError(f"a matcher needs at least one of: {', '.join(self.kinds)}")
        if "present" in given and len(given) > 1:
            raise ValueError("'present' cannot be combined with other keys")
        values = ((key, getattr(self, "not_" if key == "not" else key)) for key in given if key != "equals")
        if empty := next((key for key, value in values if value is None or value == ""), None):
            raise ValueError(f"'{empty}' must not be empty: a check of nothing cannot fail")
        if self.tolerance is not None and (isinstance(self.equals, str | bool) or self.equals is None):
            raise ValueError("'tolerance' needs a number under 'equals'")
        if self.ignore_case and not self._has_text(is_direct=True):
            raise ValueError("'ignore_case' needs a text to compare")
        return self

    def _has_text(self, *, is_direct: bool) -> bool:
        """Return whether `ignore_case` changes something here: a text, or a bare one under `any_of` or `not`."""
        own = is_direct and (self.regex is not None or _has_letters(self.contains))
        compares = is_direct or self._is_bare
        return (
            own
            or (compares and _has_letters(self.equals))
            or any(each._has_text(is_direct=False) for each in self._inner_matchers())
        )

    def _inner_matchers(self) -> list[ArgMatcher]:
        return [*(self.any_of or ()), *([] if self.not_ is None else [self.not_])]

    @property
    def unknown_keywords(self) -> list[str]:
        """The words in `json_schema`, as pointers, that its dialect does not know: they check nothing."""
        return [f"{place}/{word}" for place, word in unknown_keywords(self.json_schema or {})]

    @cached_property
    def _schema(self) -> Schema:
        return compile_schema(self.json_schema or {})

    @cached_property
    def _tests(self) -> list[tuple[str, Test]]:
        return list(self.tests(_NO_BINDINGS))

    def tests(self, bound: Bindings, *, folds: bool = False) -> Iterator[tuple[str, Test]]:
        """Yield a test for each kind of matcher given, by its key; `folds` is what an outer `ignore_case` says."""
        case = self.ignore_case
        if "equals" in self.model_fields_set:
            yield "equals", _equal_to(self.equals, self.tolerance, folds=case or (folds and self._is_bare))
        if self.regex is not None:
            pattern = Pattern(self.regex.source, ignore_case=True) if case else self.regex
            yield "regex", partial(_matches, pattern)
        if self.contains is not None:
            yield "contains", self._container(bound)
        if self.range is not None:
            yield "range", self.range.includes
        if self.json_schema is not None:
            yield "json_schema", partial(_fits_schema, self._schema)
        if self.any_of is not None:
            yield "any_of", partial(_any_of, [each.decider(bound, folds=case or folds) for each in self.any_of])
        if self.not_ is not None:
            yield "not", partial(_not, self.not_.decider(bound, folds=case or folds))
        if self.type is not None:
            words = self.type if isinstance(self.type, list) else [self.type]
            yield "type", partial(_is_of_type, [TYPES[word] for word in words])

    def _container(self, bound: Bindings) -> Test:
        return partial(contains_folded if self.ignore_case else contains, self.contains)

    def decider(self, bound: Bindings = _NO_BINDINGS, *, folds: bool = False) -> Test:
        """Return a function that says whether a value is as expected; it raises where that is undecided."""
        tests = [test for _, test in self.tests(bound, folds=folds)]
        return tests[0] if len(tests) == 1 else partial(_all_hold, tests)

    @cached_property
    def _checks(self) -> list[Test]:
        return [test for _, test in self._tests]

    def holds(self, value: JSON) -> bool | None:
        """Return whether a value that is given is as expected; None when undecided."""
        unknown = False
        for test in self._checks:
            try:
                if not test(value):
                    return False
            except (PatternTimeout, RecursionError):
                unknown = True
        return None if unknown else True

    def accepts(self, values: list[JSON]) -> bool | None:
        """Return whether one of the values at a path is as expected, or none is needed; None when undecided."""
        if self.present is not None:
            return self.present is bool(values)
        return self.matches_any(values) if values else self.optional

    def failing(self, value: JSON) -> list[str] | None:
        """Return the matchers that do not match `value`; None when undecided."""
        failing: list[str] = []
        unknown = False
        for key, test in self._tests:
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
        if self.present is not None:
            return self._presence(path, values)
        if not values:
            return None if self.optional else Mismatch(path, self.written())
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

    def _presence(self, path: str, values: list[JSON]) -> Mismatch | None:
        if self.present is bool(values):
            return None
        if self.present:
            return Mismatch(path, self.written())
        return Mismatch(path, self.written(), values[0], "expected not to be given")

    def written(self, keys: list[str] | None = None) -> dict[str, JSON]:
        """Return the matchers as an author would write them, all or those named."""
        wanted = self.model_fields_set
        if keys is not None:
            named = {"not_" if key == "not" else key for key in keys}
            folded = {"ignore_case"} if named - {"range", "json_schema", "type"} else set()
            wanted = wanted & (named | folded | ({"tolerance"} if "equals" in keys else set()))
        return self.model_dump(include=wanted, exclude_unset=True, by_alias=True)

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


def _in_words(expected: JSON) -> str:
    """Return what was expected for people: `not first` for `{not: first}`, else as it is written."""
    match expected:
        case {"not": {"equals": inner}} if len(expected) == 1 and len(expected["not"]) == 1:
            return f"not {_text_or_notice(inner)}"
        case {"not": inner} if len(expected) == 1:
            return f"not {_text_or_notice(inner)}"
        case _:
            return _text_or_notice(expected)


def _equal_to(expected: JSON, tolerance: float | None, *, folds: bool) -> Test:
    if folds:
        folded = fold_texts(expected)
        return lambda value: same(folded, fold_texts(value), tolerance=tolerance)
    if type(expected) is str:
        return lambda value: type(value) is str and value == expected
    if type(expected) in (int, float) and tolerance is None:
        return lambda value: type(value) in _NUMBERS and bool(value == expected)
    return partial(same, expected, tolerance=tolerance)


_NUMBERS = (int, float)


def _has_letters(value: JSON) -> bool:
    """Return whether there is a text in a value."""
    if isinstance(value, str):
        return True
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_has_letters(each) for each in inner)


def fold_texts(value: JSON) -> JSON:
    """Return a value with its texts folded for comparison in any case; keys stay as they are."""
    if isinstance(value, str):
        return fold_case(value)
    if isinstance(value, list):
        return [fold_texts(each) for each in value]
    return {key: fold_texts(each) for key, each in value.items()} if isinstance(value, dict) else value


def _any_of(deciders: list[Test], value: JSON) -> bool:
    unknown: Exception | None = None
    for decides in deciders:
        try:
            if decides(value):
                return True
        except (PatternTimeout, RecursionError) as error:
            unknown = error
    if unknown is not None:
        raise unknown
    return False


def _not(decides: Test, value: JSON) -> bool:
    return not decides(value)


def _all_hold(tests: list[Test], value: JSON) -> bool:
    """Return whether all tests pass; one that fails decides, whatever the others run into."""
    unknown: Exception | None = None
    for test in tests:
        try:
            if not test(value):
                return False
        except (PatternTimeout, RecursionError) as error:
            unknown = error
    if unknown is not None:
        raise unknown
    return True


def _is_of_type(tests: list[Test], value: JSON) -> bool:
    return any(test(value) for test in tests)


def _matches(pattern: Pattern, value: JSON) -> bool:
    return pattern.search(text_of(value))


def contains(part: JSON, value: JSON) -> bool:
    """Return whether a part is a member of a list, or in a text; anything else is read as compact JSON."""
    if isinstance(value, list):
        return any(same(part, member) for member in value)
    return text_of(part) in text_of(value)


def contains_folded(part: JSON, value: JSON) -> bool:
    """Return whether a value contains a part in any case; keys of a mapping count only as they are written."""
    return contains(part, value) or contains(fold_texts(part), fold_texts(value))


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
