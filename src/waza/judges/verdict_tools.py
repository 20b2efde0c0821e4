"""The tools a judge gives its verdict with, and what their calls mean. Text is never read.

A reply counts only if every call in it is one of the offered tools with arguments that fit its schema: to leave out the
calls that do not fit could turn a clumsy "fail" beside a "pass" into a pass. Slips that change no meaning are accepted:
a whole number written as `4.0`, one extra argument, a `functions.` prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct

from waza.errors import decoding_fact
from waza.judges.base import Call, Tool
from waza.model import JSON

R = TypeVar("R")
Args = TypeVar("Args", bound=Struct)

NO_REASON = "no reason given"
"""What marks a verdict whose reason is blank, though the judge was asked for one twice."""
_PREFIX = "functions."
"""What some servers put before a tool's name."""


class NoVerdict(Exception):
    """A reply that decides nothing, and why."""


class _Told(Struct, frozen=True):
    reason: str = ""
    description: str = ""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.description.strip(), reason_or_mark(self.reason)) if part)


class ScoreVerdict(Struct, frozen=True):
    """A verdict on the scale from 1 to 5."""

    score: Annotated[int, Meta(ge=1, le=5)]
    reason: str = ""


class Winner(Struct, frozen=True):
    """Which of two outputs is better."""

    winner: Literal["A", "B", "tie"]
    magnitude: Literal["much-better", "slightly-better", "equal"]
    reasoning: str = ""


class _OneVerdict(_Told, frozen=True):
    criterion: int | float | str | None = None


class _ScoreOfOne(Struct, frozen=True):
    score: Annotated[int, Meta(ge=1, le=5)]
    reason: str = ""
    description: str = ""
    criterion: int | float | str | None = None


class PassFail(NamedTuple):
    """What each call said: `description: reason`."""

    passes: list[str]
    failures: list[str]
    lacks_reason: bool = False


class OnCriterion(NamedTuple):
    """A verdict on one criterion: whether it is met, or its score from 1 to 5."""

    verdict: bool | int
    reason: str


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
    """Return a reason, or the mark of a verdict that has none."""
    return reason.strip() or NO_REASON


def _object(properties: dict[str, JSON], required: list[str]) -> dict[str, JSON]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _words(about: str, **more: JSON) -> dict[str, JSON]:
    return {"type": "string", "description": about, **more}


# Models write arguments in the order of the schema: the reason first, so that the verdict follows from it.
_REASON = _words("Why, in a sentence. Think about this first.", minLength=1)
_CHECKED = _words("What was checked.")
_ONE_TO_FIVE: dict[str, JSON] = {"type": "integer", "minimum": 1, "maximum": 5}
_TOLD = _object({"reason": _REASON, "description": _CHECKED}, ["reason"])
PASS = Tool("set_waza_grade_pass", "Say that a criterion is met. Call it once for each criterion that is met.", _TOLD)
FAIL = Tool(
    "set_waza_grade_fail", "Say that a criterion is not met. Call it once for each criterion that is not met.", _TOLD
)
SCORE = Tool(
    "set_waza_grade_score",
    "Give the score from 1 (worst) to 5 (best). Call it exactly once.",
    _object({"reason": _REASON, "score": _ONE_TO_FIVE}, ["reason", "score"]),
)
WINNER = Tool(
    "set_pairwise_winner",
    "Say which of the two outputs is better. Call it exactly once.",
    _object(
        {
            "reasoning": _REASON,
            "winner": {"type": "string", "enum": ["A", "B", "tie"]},
            "magnitude": {"type": "string", "enum": ["much-better", "slightly-better", "equal"]},
        },
        ["reasoning", "winner", "magnitude"],
    ),
)


def _fitting(call: Call, shape: type[Args]) -> Args:
    """Return a call's arguments; raise NoVerdict where they do not fit the tool's schema."""
    if not isinstance(call.arguments, dict):
        raise NoVerdict(f"{call.name} was called with arguments that are no JSON object")
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
    """Return the calls by their plain names; raise NoVerdict where there are none, or one was not offered."""
    if not calls:
        raise NoVerdict("the judge called no tool")
    names = {tool.name for tool in tools}
    plain = [Call(call.name.removeprefix(_PREFIX), call.arguments) for call in calls]
    for call in plain:
        if call.name not in names:
            raise NoVerdict(f"the judge called '{call.name[:60]}', which is no verdict")
    return plain


def _read_pass_fail(calls: Sequence[Call]) -> PassFail:
    told = [(call.name == PASS.name, _fitting(call, _Told)) for call in _offered(calls, PASS, FAIL)]
    passes, failures = ([str(one) for good, one in told if good is wanted] for wanted in (True, False))
    return PassFail(passes, failures, any(not one.reason.strip() for _, one in told))


def _read_one(calls: Sequence[Call], tool: Tool, shape: type[Args], decisive: Callable[[Args], Any]) -> Args:
    """Return what all calls say; raise NoVerdict where they do not agree."""
    found = [_fitting(call, shape) for call in _offered(calls, tool)]
    if len({decisive(item) for item in found}) > 1:
        raise NoVerdict(f"the judge called {tool.name} several times with different verdicts")
    return found[0]


PASS_FAIL: Kind[PassFail] = Kind((PASS, FAIL), _read_pass_fail, lambda found: found.lacks_reason)
ONE_TO_FIVE: Kind[ScoreVerdict] = Kind(
    (SCORE,),
    lambda calls: _read_one(calls, SCORE, ScoreVerdict, lambda one: one.score),
    lambda found: not found.reason.strip(),
)
PAIRWISE: Kind[Winner] = Kind(
    (WINNER,),
    lambda calls: _read_one(calls, WINNER, Winner, lambda one: one.winner),
    lambda found: not found.reasoning.strip(),
)


def same_words(text: str) -> str:
    """Return a criterion as it is compared: white space and case do not count."""
    return " ".join(text.split()).lower()


def on_each(criteria: Sequence[str], *, is_scored: bool) -> Kind[list[OnCriterion]]:
    """Return the kind of verdict that holds one on each criterion: met or not met, or a score from 1 to 5.

    A call names its criterion by number, or by its own words (`description` counts where `criterion` is left out). A
    reply that leaves one out, names one that is not there or contradicts itself decides nothing.
    """
    which: dict[str, JSON] = {"type": "integer", "minimum": 1, "maximum": len(criteria)}
    which["description"] = "The number of the criterion that this verdict is about."
    if is_scored:
        wanted = _object(
            {"reason": _REASON, "criterion": which, "score": _ONE_TO_FIVE}, ["reason", "criterion", "score"]
        )
        tools: tuple[Tool, ...] = (
            Tool(SCORE.name, "Give a criterion its score from 1 to 5. Call it once for each criterion.", wanted),
        )
    else:
        wanted = _object({"reason": _REASON, "criterion": which}, ["reason", "criterion"])
        tools = (Tool(PASS.name, PASS.description, wanted), Tool(FAIL.name, FAIL.description, wanted))
    shape: type[_ScoreOfOne] | type[_OneVerdict] = _ScoreOfOne if is_scored else _OneVerdict
    places = {str(number): number - 1 for number in range(1, len(criteria) + 1)}
    places |= {same_words(f"{place + 1}. {text}"): place for place, text in enumerate(criteria)}
    places |= {same_words(text): place for place, text in enumerate(criteria)}

    def read(calls: Sequence[Call]) -> list[OnCriterion]:
        found: dict[int, OnCriterion] = {}
        for call in _offered(calls, *tools):
            told = _fitting(call, shape)
            place = _place_of(told, len(criteria), places)
            given = OnCriterion(told.score if isinstance(told, _ScoreOfOne) else call.name == PASS.name, told.reason)
            if found.setdefault(place, given).verdict != given.verdict:
                raise NoVerdict(f"the judge contradicts itself on criterion {place + 1} ({criteria[place][:60]})")
        if left := [f"{place + 1} ({text[:60]})" for place, text in enumerate(criteria) if place not in found]:
            raise NoVerdict(f"no verdict on criterion {', '.join(left)}")
        return [found[place] for place in range(len(criteria))]

    return Kind(tools, read, lambda found: any(not one.reason.strip() for one in found), len(criteria))


def _place_of(told: _ScoreOfOne | _OneVerdict, count: int, places: dict[str, int]) -> int:
    """Return the place of the criterion that a call is about; raise NoVerdict where there is no such criterion."""
    named = told.criterion
    if named is None and (not told.description.strip() or count == 1):
        if count == 1:
            return 0
        raise NoVerdict("the judge gave a verdict without saying on which criterion")
    if isinstance(named, int | float):
        if named in range(1, count + 1):
            return int(named) - 1
    else:
        place = places.get(same_words(told.description if named is None else named))
        if place is not None:
            return place
    raise NoVerdict(f"the judge gave a verdict on '{str(named or told.description)[:60]}', which is no criterion")
