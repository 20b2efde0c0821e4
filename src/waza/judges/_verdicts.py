"""The tools a judge gives its verdict with, and what their calls mean. Text is never read.

A reply counts only if every call in it is one of the offered tools with arguments that fit its schema: to leave out the
calls that do not fit could turn a clumsy "fail" beside a "pass" into a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct

from waza.judges._base import Call, Tool
from waza.model import JSON

R = TypeVar("R")
Args = TypeVar("Args", bound=Struct)


class NoVerdict(Exception):
    """A reply that decides nothing, and why."""


class _Told(Struct, frozen=True, forbid_unknown_fields=True):
    description: str = ""
    reason: str = ""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.description.strip(), self.reason.strip()) if part)


class Score(Struct, frozen=True, forbid_unknown_fields=True):
    """A verdict on the scale from 1 to 5."""

    score: Annotated[int, Meta(ge=1, le=5)]
    reason: str = ""


class Winner(Struct, frozen=True, forbid_unknown_fields=True):
    """Which of two outputs is better."""

    winner: Literal["A", "B", "tie"]
    magnitude: Literal["much-better", "slightly-better", "equal"]
    reasoning: str


class PassFail(NamedTuple):
    """What each call said: `description: reason`."""

    passes: list[str]
    failures: list[str]


class Kind(NamedTuple, Generic[R]):
    """A kind of verdict: the tools offered, and how their calls are read."""

    tools: tuple[Tool, ...]
    read: Callable[[Sequence[Call]], R]
    """Raises NoVerdict."""


def _object(properties: dict[str, JSON], required: list[str]) -> dict[str, JSON]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _words(about: str) -> dict[str, JSON]:
    return {"type": "string", "description": about}


_TOLD = _object({"description": _words("What was checked."), "reason": _words("Why, in a sentence.")}, [])
PASS = Tool("set_waza_grade_pass", "Say that a criterion is met. Call it once for each criterion that is met.", _TOLD)
FAIL = Tool(
    "set_waza_grade_fail", "Say that a criterion is not met. Call it once for each criterion that is not met.", _TOLD
)
SCORE = Tool(
    "set_waza_grade_score",
    "Give the score from 1 (worst) to 5 (best). Call it exactly once.",
    _object(
        {"score": {"type": "integer", "minimum": 1, "maximum": 5}, "reason": _words("Why, in a sentence.")}, ["score"]
    ),
)
WINNER = Tool(
    "set_pairwise_winner",
    "Say which of the two outputs is better. Call it exactly once.",
    _object(
        {
            "winner": {"type": "string", "enum": ["A", "B", "tie"]},
            "magnitude": {"type": "string", "enum": ["much-better", "slightly-better", "equal"]},
            "reasoning": _words("Why, in a sentence."),
        },
        ["winner", "magnitude", "reasoning"],
    ),
)


def _fitting(call: Call, shape: type[Args]) -> Args:
    """Return a call's arguments; raise NoVerdict where they do not fit the tool's schema."""
    if not isinstance(call.arguments, dict):
        raise NoVerdict(f"{call.name} was called with arguments that are no JSON object")
    try:
        return msgspec.convert(call.arguments, shape)
    except msgspec.ValidationError as error:
        raise NoVerdict(f"{call.name} was called with wrong arguments: {error}") from None


def _offered(calls: Sequence[Call], *tools: Tool) -> Sequence[Call]:
    """Return the calls; raise NoVerdict where there are none, or one is of a tool that was not offered."""
    if not calls:
        raise NoVerdict("the judge called no tool")
    names = {tool.name for tool in tools}
    for call in calls:
        if call.name not in names:
            raise NoVerdict(f"the judge called '{call.name[:60]}', which is no verdict")
    return calls


def _read_pass_fail(calls: Sequence[Call]) -> PassFail:
    told = [(call.name == PASS.name, str(_fitting(call, _Told))) for call in _offered(calls, PASS, FAIL)]
    return PassFail([text for good, text in told if good], [text for good, text in told if not good])


def _read_one(calls: Sequence[Call], tool: Tool, shape: type[Args], decisive: Callable[[Args], Any]) -> Args:
    """Return what all calls say; raise NoVerdict where they do not agree."""
    found = [_fitting(call, shape) for call in _offered(calls, tool)]
    if len({decisive(item) for item in found}) > 1:
        raise NoVerdict(f"the judge called {tool.name} several times with different verdicts")
    return found[0]


PASS_FAIL: Kind[PassFail] = Kind((PASS, FAIL), _read_pass_fail)
ONE_TO_FIVE: Kind[Score] = Kind((SCORE,), lambda calls: _read_one(calls, SCORE, Score, lambda one: one.score))
PAIRWISE: Kind[Winner] = Kind((WINNER,), lambda calls: _read_one(calls, WINNER, Winner, lambda one: one.winner))
