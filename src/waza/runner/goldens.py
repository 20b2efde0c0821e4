"""A rubric's goldens put to a judge: does it come to the verdicts its author expects?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from waza.graders.prompt import PromptGrader
from waza.judges.rubrics import Golden, Rubric, golden_trace
from waza.judges.scripted import ScriptedJudge
from waza.model import Grade
from waza.results.scores import Interval, wilson

MOST_APART = 1
"""A score agrees with the expected one if it is on the same side of `pass_at` and at most so far away."""


class Opinion(Struct, frozen=True, kw_only=True):
    """What a judge said about one golden."""

    golden: str
    expected: str | int
    said: str | int | None
    """`pass`, `fail` or a score; None where the judge gave no verdict."""
    agrees: bool | None
    """None where nobody can tell."""
    reason: str = ""


class Agreement(Struct, frozen=True, kw_only=True):
    """How often a judge came to the expected verdict; what it left open is counted apart."""

    agreed: int
    decided: int
    undecided: int
    interval: Interval | None
    """The Wilson 95 % interval of the share of the decided goldens that agree."""


def agreement(opinions: Sequence[Opinion]) -> Agreement:
    """Return how often the judge agreed."""
    agreed = sum(opinion.agrees is True for opinion in opinions)
    undecided = sum(opinion.agrees is None for opinion in opinions)
    decided = len(opinions) - undecided
    return Agreement(agreed=agreed, decided=decided, undecided=undecided, interval=wilson(agreed, decided))


def oracle(rubric: Rubric, golden: Golden) -> ScriptedJudge:
    """Return a judge that answers one golden as expected: it proves that everything around a judge works, no more."""
    if rubric.scale == "1-5":
        expected = golden.expected
        score = expected if isinstance(expected, int) else 5 if expected == "pass" else 1
        call: dict[str, Any] = {"name": "set_waza_grade_score", "arguments": {"score": score, "reason": golden.name}}
    else:
        call = {"name": f"set_waza_grade_{golden.expected}", "arguments": {"reason": golden.name}}
    return ScriptedJudge([{"tool_calls": [call]}])


def put_goldens(
    rubric: Rubric,
    grader: PromptGrader,
    judge_for: Callable[[Rubric, Golden], Any],
    on_opinion: Callable[[Opinion], None] = lambda opinion: None,
) -> list[Opinion]:
    """Return what the judge says about each golden of a rubric, through the grader that uses it."""

    async def ask(golden: Golden) -> Opinion:
        grade = await grader.agrade(golden_trace(golden), judge=judge_for(rubric, golden))
        opinion = opinion_of(rubric, golden, grade)
        on_opinion(opinion)
        return opinion

    async def ask_all() -> list[Opinion]:
        return await asyncio.gather(*(ask(golden) for golden in rubric.goldens))

    return asyncio.run(ask_all())


def opinion_of(rubric: Rubric, golden: Golden, grade: Grade) -> Opinion:
    """Return what a grade says about a golden."""
    said = _said(rubric, grade)
    agrees = None if said is None else _agree(rubric, golden.expected, said)
    reason = "; ".join(check.claim for check in grade.checks) if said == "pass" else grade.feedback
    return Opinion(golden=golden.name, expected=golden.expected, said=said, agrees=agrees, reason=reason)


def _said(rubric: Rubric, grade: Grade) -> str | int | None:
    if grade.status == "error":
        return None
    if rubric.scale == "1-5":
        return round(grade.score * 4) + 1
    return "pass" if grade.passed else "fail"


def _agree(rubric: Rubric, expected: str | int, said: str | int) -> bool:
    if rubric.passes(expected) != rubric.passes(said):
        return False
    return isinstance(expected, str) or isinstance(said, str) or abs(expected - said) <= MOST_APART
