"""The tools a judge gives its verdict with, and how their calls are read. Text is never read.

A reply counts only if every call in it is one of the offered tools with arguments that match its schema: skipping
invalid calls could turn a malformed "fail" next to a "pass" into a pass. Deviations that do not change the meaning are
accepted: a whole number written as `4.0`, one extra argument, a `functions.` prefix, evidence as bare text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct

from waza.errors import decoding_fact
from waza.judges.base import Call, Tool
from waza.judges.quotes import Evidence, Quote, quotes_of
from waza.model import JSON

R = TypeVar("R")
Args = TypeVar("Args", bound=Struct)

NO_REASON = "no reason given"
"""Replaces a blank reason, though the judge was asked for one twice."""
_PREFIX = "functions."
"""Added to a tool's name by some servers."""


class NoVerdict(Exception):
    """Raised for a reply without a valid verdict, with the reason."""


class _Reasoned(Struct, frozen=True):
    reason: str = ""
    description: str = ""
    evidence: Evidence = None

    def __str__(self) -> str:
        return ": ".join(part for part in (self.description.strip(), reason_or_mark(self.reason)) if part)


class ScoreVerdict(Struct, frozen=True):
    """A verdict on the scale from 1 to 5."""

    score: Annotated[int, Meta(ge=1, le=5)]
    reason: str = ""
    evidence: Evidence = None


class Winner(Struct, frozen=True):
    """Which of two outputs is better."""

    winner: Literal["A", "B", "tie"]
    magnitude: Literal["much-better", "slightly-better", "equal"]
    reasoning: str = ""
    evidence: Evidence = None


class _OneVerdict(_Reasoned, frozen=True):
    criterion: int | float | str | None = None


class _ScoreOfOne(Struct, frozen=True):
    score: Annotated[int, Meta(ge=1, le=5)]
    reason: str = ""
    description: str = ""
    evidence: Evidence = None
    criterion: int | float | str | None = None


class PassFail(NamedTuple):
    """The calls of each kind, as `description: reason`."""

    passes: list[str]
    failures: list[str]
    lacks_reason: bool = False
    quotes: tuple[Quote, ...] = ()
    """What the judge quotes as evidence."""


class OnCriterion(NamedTuple):
    """A verdict on one criterion: whether it is met, or its score from 1 to 5."""

    verdict: bool | int
    reason: str
    quotes: tuple[Quote, ...] = ()


class Kind(NamedTuple, Generic[R]):
    """A kind of verdict: the tools offered, and how their calls are read."""

    tools: tuple[Tool, ...]
    read: Callable[[Sequence[Call]], R]
    """Raises NoVerdict."""
    lacks_reason: Callable[[R], bool] = lambda verdict: False
    """Whether a verdict comes without a reason."""
    criteria: int = 0
    """How many criteria need a verdict each; 0 where none are declared."""


def reason_or_mark(reason: str) -> str:
    """Return a reason, or the text for a verdict without one."""
    return reason.strip() or NO_REASON


def _object(properties: dict[str, JSON], required: list[str]) -> dict[str, JSON]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _text_schema(about: str, **more: JSON) -> dict[str, JSON]:
    return {"type": "string", "description": about, **more}


# Models write arguments in the order of the schema: the reason first, so that the verdict follows from it.
_REASON = _text_schema("Why, in a sentence. Think about this first.", minLength=1)
_CHECKED = _text_schema("What was checked.")
_QUOTE = _object(
    {
        "place": _text_schema("The heading it is under, such as Candidate output."),
        "quote": _text_schema("The words, exactly as they are there."),
    },
    ["place", "quote"],
)
_EVIDENCE: dict[str, JSON] = {
    "type": "array",
    "items": _QUOTE,
    "description": "One to three short quotes from the data that the reason rests on; none for what is absent.",
}
_ONE_TO_FIVE: dict[str, JSON] = {"type": "integer", "minimum": 1, "maximum": 5}
_REASONED = _object({"reason": _REASON, "evidence": _EVIDENCE, "description": _CHECKED}, ["reason"])
PASS = Tool(
    "set_waza_grade_pass", "Say that a criterion is met. Call it once for each criterion that is met.", _REASONED
)
FAIL = Tool(
    "set_waza_grade_fail",
    "Say that a criterion is not met. Call it once for each criterion that is not met.",
    _REASONED,
)
SCORE = Tool(
    "set_waza_grade_score",
    "Give the score from 1 (worst) to 5 (best). Call it exactly once.",
    _object({"reason": _REASON, "evidence": _EVIDENCE, "score": _ONE_TO_FIVE}, ["reason", "score"]),
)
WINNER = Tool(
    "set_pairwise_winner",
    "Say which of the two outputs is better. Call it exactly once.",
    _object(
        {
            "reasoning": _REASON,
            "evidence": _EVIDENCE,
            "winner": {"type": "string", "enum": ["A", "B", "tie"]},
            "magnitude": {"type": "string", "enum": ["much-better", "slightly-better", "equal"]},
        },
        ["reasoning", "winner", "magnitude"],
    ),
)


def _arguments(call: Call, shape: type[Args]) -> Args:
    """Return a call's arguments; raise NoVerdict where they do not match the tool's schema."""
    if not isinstance(call.arguments, dict):
        raise NoVerdict(f"{call.name} was called with arguments that are not a JSON object")
    known = {field.name for field in msgspec.structs.fields(shape)}
    if len(unknown := [str(key)[:60] for key in call.arguments if key not in known]) > 1:
        raise NoVerdict(f"{call.name} was called with unknown arguments: {', '.join(unknown[:5])}")
    given = {key: _whole(value) for key, value in call.arguments.items() if key in known}
    try:
        return msgspec.convert(given, shape)
    except msgspec.ValidationError as error:
        raise NoVerdict(f"{call.name} was called with wrong arguments: {decoding_fact(error, given)}") from None


def _whole(value: JSON) -> JSON:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _offered(calls: Sequence[Call], *tools: Tool) -> Sequence[Call]:
    """Return the calls without name prefixes; raise NoVerdict where there are none, or one was not offered."""
    if not calls:
        raise NoVerdict("the judge called no tool")
    names = {tool.name for tool in tools}
    offered = [Call(call.name.removeprefix(_PREFIX), call.arguments) for call in calls]
    for call in offered:
        if call.name not in names:
            raise NoVerdict(f"the judge called '{call.name[:60]}', which is not a verdict")
    return offered


def _read_pass_fail(calls: Sequence[Call]) -> PassFail:
    verdicts = [(call.name == PASS.name, _arguments(call, _Reasoned)) for call in _offered(calls, PASS, FAIL)]
    passes, failures = ([str(one) for is_pass, one in verdicts if is_pass is wanted] for wanted in (True, False))
    quotes = tuple(quote for _, one in verdicts for quote in quotes_of(one.evidence))
    return PassFail(passes, failures, any(not one.reason.strip() for _, one in verdicts), quotes)


def _read_one(calls: Sequence[Call], tool: Tool, shape: type[Args], decisive: Callable[[Args], Any]) -> Args:
    """Return the arguments of the calls; raise NoVerdict where their verdicts differ."""
    verdicts = [_arguments(call, shape) for call in _offered(calls, tool)]
    if len({decisive(item) for item in verdicts}) > 1:
        raise NoVerdict(f"the judge called {tool.name} several times with different verdicts")
    return verdicts[0]


PASS_FAIL: Kind[PassFail] = Kind((PASS, FAIL), _read_pass_fail, lambda verdict: verdict.lacks_reason)
ONE_TO_FIVE: Kind[ScoreVerdict] = Kind(
    (SCORE,),
    lambda calls: _read_one(calls, SCORE, ScoreVerdict, lambda one: one.score),
    lambda verdict: not verdict.reason.strip(),
)
PAIRWISE: Kind[Winner] = Kind(
    (WINNER,),
    lambda calls: _read_one(calls, WINNER, Winner, lambda one: one.winner),
    lambda verdict: not verdict.reasoning.strip(),
)


def same_words(text: str) -> str:
    """Return a criterion for comparison: white space and case are ignored."""
    return " ".join(text.split()).lower()


def on_each(criteria: Sequence[str], *, is_scored: bool) -> Kind[list[OnCriterion]]:
    """Return the kind of verdict with one entry per criterion: met or not met, or a score from 1 to 5.

    A call names its criterion by number or by its text (`description` is used where `criterion` is left out). A reply
    that omits a criterion, names an unknown one or contradicts itself is not a verdict.
    """
    which: dict[str, JSON] = {"type": "integer", "minimum": 1, "maximum": len(criteria)}
    which["description"] = "The number of the criterion that this verdict is about."
    if is_scored:
        wanted = _object(
            {"reason": _REASON, "evidence": _EVIDENCE, "criterion": which, "score": _ONE_TO_FIVE},
            ["reason", "criterion", "score"],
        )
        tools: tuple[Tool, ...] = (
            Tool(SCORE.name, "Give a criterion its score from 1 to 5. Call it once for each criterion.", wanted),
        )
    else:
        wanted = _object({"reason": _REASON, "evidence": _EVIDENCE, "criterion": which}, ["reason", "criterion"])
        tools = (Tool(PASS.name, PASS.description, wanted), Tool(FAIL.name, FAIL.description, wanted))
    shape: type[_ScoreOfOne] | type[_OneVerdict] = _ScoreOfOne if is_scored else _OneVerdict
    places = {str(number): number - 1 for number in range(1, len(criteria) + 1)}
    places |= {same_words(f"{place + 1}. {text}"): place for place, text in enumerate(criteria)}
    places |= {same_words(text): place for place, text in enumerate(criteria)}

    def read(calls: Sequence[Call]) -> list[OnCriterion]:
        verdicts: dict[int, OnCriterion] = {}
        for call in _offered(calls, *tools):
            given = _arguments(call, shape)
            place = _place_of(given, len(criteria), places)
            score = given.score if isinstance(given, _ScoreOfOne) else call.name == PASS.name
            if verdicts.setdefault(place, OnCriterion(score, given.reason, quotes_of(given.evidence))).verdict != score:
                raise NoVerdict(f"the judge contradicts itself on criterion {place + 1} ({criteria[place][:60]})")
        if missing := [f"{place + 1} ({text[:60]})" for place, text in enumerate(criteria) if place not in verdicts]:
            raise NoVerdict(f"no verdict on criterion {', '.join(missing)}")
        return [verdicts[place] for place in range(len(criteria))]

    return Kind(tools, read, lambda verdicts: any(not one.reason.strip() for one in verdicts), len(criteria))


def _place_of(given: _ScoreOfOne | _OneVerdict, count: int, places: dict[str, int]) -> int:
    """Return the place of the criterion that a call is about; raise NoVerdict where there is no such criterion."""
    named = given.criterion
    if named is None and (not given.description.strip() or count == 1):
        if count == 1:
            return 0
        raise NoVerdict("the judge gave a verdict without saying on which criterion")
    if isinstance(named, int | float):
        if named in range(1, count + 1):
            return int(named) - 1
    else:
        place = places.get(same_words(given.description if named is None else named))
        if place is not None:
            return place
    raise NoVerdict(f"the judge gave a verdict on '{str(named or given.description)[:60]}', which is not a criterion")
