"""Operands of rules over a trace: which calls, messages and skills a rule is about, with values bound by a trigger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeVar

import msgspec
from pydantic import BaseModel, BeforeValidator, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from waza.errors import did_you_mean
from waza.graders._expected_calls import CallMatcher, Places, find
from waza.graders._windows import Message
from waza.graders.base import SkillName, Text
from waza.graders.matchers import (
    PATIENCE,
    ArgMatcher,
    Bindings,
    Mismatch,
    Test,
    contains,
    contains_folded,
    inner_matcher,
    no_empty_list,
    null_matcher,
    or_bare,
    parse_path,
    same,
    values_at,
)
from waza.model import JSON, ToolEvent
from waza.traces.aliases import Dialect
from waza.untrusted.patterns import PatternTimeout, fits_name

Made = TypeVar("Made", bound=BaseModel)
MATCHES_EVERYTHING = "this matches everything; name a tool or say what the call is like"


class RuleMatcher(ArgMatcher):
    """The value that something must have; `bound` is a value of the rule's trigger."""

    kinds: ClassVar[tuple[str, ...]] = (*ArgMatcher.kinds, "bound")

    any_of: (
        Annotated[list[Annotated[RuleMatcher, BeforeValidator(inner_matcher)]], BeforeValidator(no_empty_list)] | None
    ) = None  # type: ignore[assignment]
    """Values or matchers of which one must match."""
    not_: Annotated[Annotated[RuleMatcher, BeforeValidator(inner_matcher)] | None, BeforeValidator(null_matcher)] = (
        Field(default=None, alias="not")
    )
    """A value or matcher that must not match."""
    bound: Text | None = None
    """The name under which the trigger's `bind` has a value: it is equal to that."""

    def tests(self, bound: Bindings, *, folds: bool = False) -> Iterator[tuple[str, Test]]:
        """Yield a test for each kind of matcher given, by its key."""
        yield from super().tests(bound, folds=folds)
        if self.bound is not None:
            yield "bound", partial(_is_one_of, bound.get(self.bound, []))

    def _container(self, bound: Bindings) -> Test:
        name = _bound_part(self.contains)
        if name is None:
            return super()._container(bound)
        return partial(_contains_one, contains_folded if self.ignore_case else contains, bound.get(name, []))

    @cached_property
    def names_used(self) -> set[str]:
        """The bound names in it, those of inner matchers too."""
        inner = [*(self.any_of or ()), *([] if self.not_ is None else [self.not_])]
        own = {name for name in (self.bound, _bound_part(self.contains)) if name is not None}
        return own.union(*(each.names_used for each in inner if isinstance(each, RuleMatcher)))

    @property
    def is_lookup(self) -> bool:
        """Whether a bound value can be looked up: it is the only one here, and neither inside another matcher."""
        return self.bound is not None and self.names_used == {self.bound} and not (self.any_of or self.not_)

    @cached_property
    def without_bound(self) -> RuleMatcher | None:
        """The rest of a matcher whose bound value is looked up; None where there is none."""
        kept = {name: getattr(self, name) for name in self.model_fields_set - {"bound"}}
        return _made(RuleMatcher, kept) if kept.keys() - {"optional"} else None


def _made(cls: type[Made], fields: dict[str, Any]) -> Made:
    """Return a model with these fields; `model_copy` would copy what was computed from the old ones too."""
    return cls.model_construct(_fields_set=set(fields), **fields)


def _bound_part(value: JSON) -> str | None:
    match value:
        case {"bound": str(name)} if len(value) == 1:
            return name
    return None


def _is_one_of(values: list[JSON], value: JSON) -> bool:
    return any(same(one, value) for one in values)


def _contains_one(test: Callable[[JSON, JSON], bool], values: list[JSON], value: JSON) -> bool:
    return any(test(one, value) for one in values)


class BindPath(NamedTuple):
    """Where a value to bind is: in the arguments or the result of a call."""

    root: Literal["args", "result"]
    rest: str

    def values(self, event: ToolEvent) -> list[JSON]:
        """Return the values at the path; several where it has `[*]`, none where there is none."""
        if self.root == "args":
            args = event.args if isinstance(event.args, dict) else {}
            return values_at(args, self.rest, parse_path(self.rest))
        return [event.result] if not self.rest else values_in(opened(event.result), self.rest)


def parse_bind_path(path: str) -> BindPath:
    """Return a path such as `args.id` or `result.items[*].id`; raise ValueError for another one."""
    if path.startswith("args.") and len(path) > 5:
        return BindPath("args", path[5:])
    if path == "result" or (path.startswith(("result.", "result[")) and len(path) > 7):
        return BindPath("result", path[6:].removeprefix("."))
    raise ValueError(f"a path starts with 'args.' or 'result', found '{path}'")


def values_in(value: JSON, key: str) -> list[JSON]:
    """Return the value at a key or path of an object or list, several where the path has `[*]`."""
    if isinstance(value, dict) and key in value:
        return [value[key]]
    path = f"value{key}" if key.startswith("[") else f"value.{key}"
    return values_at({"value": value}, path, parse_path(path))


def opened(result: JSON) -> JSON:
    """Return a result; a text that holds a JSON object or list as that."""
    if isinstance(result, str) and result.lstrip()[:1] in ("{", "["):
        try:
            return msgspec.json.decode(result)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return result
    return result


class Operand(CallMatcher):
    """What a rule is about: calls, messages or skills; a bare text is a tool's exact name, or a glob."""

    args: dict[Text, RuleMatcher] = {}  # type: ignore[assignment]
    """Matchers by argument; a key may be a path such as `user.city`, `items[0].id` or `items[*].id`."""
    result: RuleMatcher | None = None
    """A matcher for the call's result as it was recorded."""
    result_fields: dict[Text, RuleMatcher] = {}
    """Matchers by a key or path of the result; a text that holds a JSON object or list is read as that."""
    message: RuleMatcher | None = None
    """A matcher for the text of a message, instead of a call."""
    sender: Literal["assistant", "user"] = Field(default="assistant", alias="from")
    """Whose message."""
    skill: SkillName | None = None
    """A skill that is invoked, instead of a tool's name."""
    bind: Annotated[dict[Text, str], Field(min_length=1)] | None = None
    """Names for values of the trigger, each with a path: `args.id`, `result.items[*].id`; only where it is one."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        if value == "":
            raise ValueError("must not be empty: a name is needed")
        if isinstance(value, dict):
            for key in ("result", "message"):
                inner_matcher(value.get(key))
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _names_a_tool(self) -> Self:
        given = {"from" if key == "sender" else key for key in self.model_fields_set}
        for kind, others in (("message", {"from"}), ("skill", {"bind"})):
            if kind in given and (more := sorted(given - {kind} - others)):
                raise ValueError(f"unknown key '{more[0]}'; next to '{kind}' there may be: {', '.join(others)}")
        if "from" in given and "message" not in given:
            raise ValueError("'from' belongs to 'message'")
        if self.tool is not None and self.name is not None:
            raise ValueError("give 'tool' or 'name', one of them")
        stated = self.tool, self.name, self.message, self.skill, self.where, self.result
        if not (any(each is not None for each in stated) or self.states_arguments or self.result_fields):
            raise ValueError(MATCHES_EVERYTHING)
        for path in (self.bind or {}).values():
            parse_bind_path(path)
        return self

    @cached_property
    def tool_text(self) -> str:
        """The tool, message or skill as the author wrote it."""
        if self.skill is not None:
            return f"skill {self.skill}"
        if self.message is not None:
            return f"{self.sender} message"  # no article: it follows "no", "each" and numbers
        return super().tool_text or "any call"

    @cached_property
    def declared(self) -> str:
        """The name that other programs may have another one for."""
        return super().declared if self.tool is not None or self.name is not None else ""

    @cached_property
    def text(self) -> str:
        """The operand for people: the tool, and what else a call must be like."""
        shown = [f"{key} {_short(matcher)}" for key, matcher in self.args.items()]
        shown += [f"result {_short(self.result)}"] if self.result else []
        shown += [f"result.{key} {_short(matcher)}" for key, matcher in self.result_fields.items()]
        shown += [_short(self.message)] if self.message else []
        words = f" ({', '.join(shown)})" if shown else ""
        failed = {"success": " that succeeded", "failed": " that failed", None: ""}[self.where]
        return f"{self.tool_text}{words}{' without other args' if self.extra_args == 'forbid' else ''}{failed}"

    def matches_name(self, name: str) -> bool | None:
        """Return whether a tool's name is the expected one; None when undecided."""
        return True if self.tool is None and self.name is None else super().matches_name(name)

    @cached_property
    def names_used(self) -> set[str]:
        """The bound names in it."""
        matchers = [*self.args.values(), *self.result_fields.values(), self.result, self.message]
        return set[str]().union(*(each.names_used for each in matchers if isinstance(each, RuleMatcher)))

    @cached_property
    def _free(self) -> Operand:
        """The operand without the matchers that use bound values."""
        if not self.names_used:
            return self

        def rest(matchers: dict[str, RuleMatcher]) -> dict[str, RuleMatcher]:
            kept = {key: each.without_bound if each.is_lookup else each for key, each in matchers.items()}
            return {key: each for key, each in kept.items() if each is not None and not each.names_used}

        result = None if self.result is not None and self.result.names_used else self.result
        kept = {name: getattr(self, name) for name in self.model_fields_set - {"extra_args"}}
        changes = {"args": rest(self.args), "result_fields": rest(self.result_fields), "result": result}
        return _made(Operand, kept | changes)

    @cached_property
    def is_plain(self) -> bool:
        """Whether nothing but the tool's name counts."""
        return not (self.states_arguments or self.where or self.result or self.result_fields)

    def fits(self, event: ToolEvent) -> bool | None:
        """Return whether a call of the tool is as expected; None when undecided."""
        fits = super().fits(event)
        if fits is False or not (self.result or self.result_fields):
            return fits
        verdicts = [fits] + ([] if self.result is None else [self.result.accepts([event.result])])
        if self.result_fields:
            root = opened(event.result)
            verdicts += [matcher.accepts(values_in(root, key)) for key, matcher in self.result_fields.items()]
        return False if False in verdicts else None if None in verdicts else True

    def event_differences(self, event: ToolEvent) -> Iterator[Mismatch]:
        """Yield what is not as expected of a call: whether it succeeded, its arguments and its result."""
        yield from super().event_differences(event)
        if self.result is not None and (difference := self.result.difference("result", [event.result])):
            yield difference
        for key, matcher in self.result_fields.items():
            if difference := matcher.difference(f"result.{key}", values_in(opened(event.result), key)):
                yield difference

    def bound_values(self, event: ToolEvent) -> dict[str, list[JSON]]:
        """Return the values of a trigger by the names they are bound to; a name without any has an empty list."""
        return {name: parse_bind_path(path).values(event) for name, path in (self.bind or {}).items()}

    def fits_bound(self, event: ToolEvent, bound: Bindings) -> bool:
        """Return whether the matchers that use bound values match a call; raise where that is undecided."""
        args = event.args if isinstance(event.args, dict) else {}
        pairs = [(each, values_at(args, key, parse_path(key))) for key, each in self.args.items() if each.names_used]
        fields = [(key, each) for key, each in self.result_fields.items() if each.names_used]
        pairs += [(each, values_in(opened(event.result), key)) for key, each in fields]
        pairs += [(self.result, [event.result])] if self.result is not None and self.result.names_used else []
        if self.extra_args == "forbid" and any(self._extra(event.args)):
            return False
        return all(_one_fits(matcher, values, bound) for matcher, values in pairs)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the schema of the mapping or of a bare name."""
        return or_bare(handler.resolve_ref_schema(handler(core)), "string")


def _short(matcher: ArgMatcher | None) -> str:
    """Return a matcher for people, in few words."""
    if matcher is None:
        return ""
    match matcher.written():
        case {"equals": value, **rest} if not rest:
            return f"= {value!r}" if isinstance(value, str) else f"= {value}"
        case {"bound": name, **rest} if not rest:
            return f"= bound {name}"
        case written:
            return str(msgspec.json.encode(written, order="deterministic").decode())


def _one_fits(matcher: RuleMatcher, values: list[JSON], bound: Bindings) -> bool:
    if matcher.present is not None:
        return matcher.present is bool(values)
    if not values:
        return matcher.optional
    test = matcher.decider(bound)
    unknown: Exception | None = None
    for value in values:
        try:
            if test(value):
                return True
        except (PatternTimeout, RecursionError) as error:
            unknown = error
    if unknown is not None:
        raise unknown
    return False


def _as_list(value: Any) -> Any:
    if isinstance(value, list):
        if not value:
            raise ValueError("must not be empty: a check of nothing cannot fail")
        return value
    return [value]


class _OneOrSeveral:
    """In `Annotated`: the schema of a list that may also be one of its entries."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core)
        return {"anyOf": [schema["items"], {**schema, "minItems": 1}]}


Operands = Annotated[list[Operand], BeforeValidator(_as_list), _OneOrSeveral()]
"""One operand, or a list of which any counts."""


def operands_text(operands: Sequence[Operand]) -> str:
    """Return operands for people."""
    return " or ".join(each.text for each in operands)


class Found(NamedTuple):
    """The calls and messages that fit an operand: those that do, and those of which it cannot be determined."""

    sure: list[int]
    maybe: list[int]


class Source(NamedTuple):
    """What operands are matched against."""

    names: list[str]
    calls: list[ToolEvent]
    words: Dialect | None
    messages: list[Message]
    skill_tools: Sequence[str]
    places: Places | None = None
    """The calls of each tool, by its name."""


def find_all(operands: Sequence[Operand], source: Source) -> Found:
    """Return what fits one of the operands, without regard to bound values; messages are negative numbers from -1."""
    if len(operands) == 1:
        return _find(operands[0]._free, source)
    found = [_find(each._free, source) for each in operands]
    sure = {item for each in found for item in each.sure}
    return Found(sorted(sure), sorted({item for each in found for item in each.maybe} - sure))


def _find(operand: Operand, source: Source) -> Found:
    if operand.message is not None:
        return _find_messages(operand, source.messages)
    if operand.skill is not None:
        return Found([place for place, call in enumerate(source.calls) if _invokes(operand.skill, call, source)], [])
    found = find(operand, source.names, source.calls, source.words, source.places)
    return Found(found.sure, found.maybe)


def _find_messages(operand: Operand, messages: list[Message]) -> Found:
    matcher = operand.message
    found = Found([], [])
    for number, message in enumerate(messages):
        if message.sender != operand.sender or matcher is None:
            continue
        if matcher.names_used:
            found.sure.append(-1 - number)
            continue
        fits = matcher.matches_any([message.content]) if len(found.maybe) < PATIENCE else None
        if fits is not False:
            (found.sure if fits else found.maybe).append(-1 - number)
    return found


def _invokes(skill: str, call: ToolEvent, source: Source) -> bool:
    if not call.success or call.tool_name not in source.skill_tools or not isinstance(call.args, dict):
        return False
    names = [call.args[key] for key in ("skill", "name") if isinstance(call.args.get(key), str)]
    return any(name == skill or fits_name(skill, name) for name in names)


class BoundOperands:
    """Operands that use bound values: what fits them for each set of values, found once each."""

    def __init__(self, operands: Sequence[Operand], source: Source) -> None:
        self._operands = operands
        self._source = source
        self._known: dict[JSON, Found] = {}
        self._candidates = [_find(each._free, source) for each in operands]
        self._index = [_index(each, found, source) for each, found in zip(operands, self._candidates, strict=True)]

    @property
    def maybe(self) -> bool:
        """Whether something was found of which it cannot be determined whether it fits."""
        return any(found.maybe for found in self._known.values())

    def find(self, bound: Bindings, key: JSON) -> Found:
        """Return what fits one of the operands with these values; `key` identifies the values."""
        if key not in self._known:
            self._known[key] = self._find(bound)
        return self._known[key]

    def _find(self, bound: Bindings) -> Found:
        sure: set[int] = set()
        maybe: set[int] = set()
        for operand, candidates, index in zip(self._operands, self._candidates, self._index, strict=True):
            unsure = set(candidates.maybe)
            wanted: Sequence[int] = [*candidates.sure, *candidates.maybe]
            if index is not None:
                name, places = index
                wanted = [item for value in bound[name] for item in places.get(hashable(value), ())]
            for item in wanted:
                fits = self._fits(operand, item, bound, is_looked_up=index is not None)
                if fits is not False:
                    (maybe if fits is None or item in unsure else sure).add(item)
        return Found(sorted(sure), sorted(maybe - sure))

    def _fits(self, operand: Operand, item: int, bound: Bindings, *, is_looked_up: bool) -> bool | None:
        if is_looked_up and len(operand.names_used) == 1 and operand.extra_args == "allow":
            matchers = [*operand.args.values(), *operand.result_fields.values()]
            if sum(bool(each.names_used) for each in matchers) == 1:
                return True
        try:
            if item < 0:
                message = self._source.messages[-1 - item].content
                return operand.message is None or _one_fits(operand.message, [message], bound)
            return operand.fits_bound(self._source.calls[item], bound)
        except (PatternTimeout, RecursionError):
            return None


def _index(operand: Operand, found: Found, source: Source) -> tuple[str, dict[JSON, list[int]]] | None:
    """Return a name and the calls by the value they have for it; None where values cannot be looked up."""
    keys = [(key, each, False) for key, each in operand.args.items()]
    keys += [(key, each, True) for key, each in operand.result_fields.items()]
    chosen = next(((key, each, of_result) for key, each, of_result in keys if each.is_lookup), None)
    if chosen is None or operand.message is not None or chosen[1].optional:
        return None
    key, matcher, of_result = chosen
    steps = parse_path(key)
    places: dict[JSON, list[int]] = {}
    for item in [*found.sure, *found.maybe]:
        event = source.calls[item]
        if of_result:
            values = values_in(opened(event.result), key)
        else:
            values = values_at(event.args if isinstance(event.args, dict) else {}, key, steps)
        for value in dict.fromkeys(map(hashable, values)):
            places.setdefault(value, []).append(item)
    return str(matcher.bound), places


def hashable(value: JSON) -> JSON:
    """Return a value that can be a key, equal for values that are the same: numbers by value, true is not 1."""
    if isinstance(value, bool):
        return ("truth", value)
    if isinstance(value, list):
        return ("list", *map(hashable, value))
    if isinstance(value, dict):
        return ("object", frozenset((key, hashable(each)) for key, each in value.items()))
    return value


def unknown_names(used: set[str], known: Sequence[str]) -> str:
    """Return the message about a bound name that nothing is bound to; empty where there is none."""
    wrong = sorted(used - set(known))
    if not wrong:
        return ""
    hint = f"; {did_you_mean(wrong[0], list(known))}" if known else "; the trigger's 'bind' gives values names"
    return f"nothing is bound as '{wrong[0]}'{hint}"
