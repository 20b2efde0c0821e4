"""Canaries put to the judge before a run's first trial: a few goldens of each rubric in use, never from the cache."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from typing import NamedTuple

from waza.graders._base import Grader
from waza.graders._composite import CompositeGrader
from waza.graders._judged import JudgedGrader
from waza.graders._turn import AfterTurnGrader
from waza.graders.prompt import PromptGrader
from waza.judges._base import Judge
from waza.judges._loop import wait_for_judge
from waza.judges.rubrics import Golden, Rubric, golden_trace
from waza.results.canaries import Canary
from waza.results.costs import judge_spending
from waza.runner.goldens import opinion_of
from waza.spec.suite import EvalSpec

MOST = 12
"""How many canaries a run asks at most, whatever its rubrics."""


class Seat(NamedTuple):
    """A rubric before one of the judges that use it."""

    rubric: Rubric
    grader: PromptGrader
    judge: Judge


def put_canaries(spec: EvalSpec, judge: Judge | None) -> list[Canary]:
    """Return what the judges of a suite say about a few goldens of its rubrics; none where nobody is to be asked.

    A judge whose verdicts are written down beforehand is not asked: that would use them up.
    """
    asked = planned_canaries(spec, judge)

    async def all_of() -> list[Canary]:
        return list(await asyncio.gather(*(_put(seat, golden) for seat, golden in asked)))

    return wait_for_judge(all_of()) if asked else []


def planned_canaries(spec: EvalSpec, judge: Judge | None) -> list[tuple[Seat, Golden]]:
    """Return who would be asked about which golden."""
    if judge is None or not spec.config.canaries:
        return []
    return list(islice(_asked(seats(spec, judge), spec.config.canaries), MOST))


def seats(spec: EvalSpec, judge: Judge) -> list[Seat]:
    """Return each rubric with goldens that a suite uses, before each judge that judges by it."""
    found: dict[tuple[str, str, str], Seat] = {}
    for grader in judged_graders(spec.asking):
        rubric = grader.rubric_in_use
        if rubric is None or not rubric.goldens:
            continue
        for juror in grader.jurors:
            asked = (juror.judge or judge).model_copy(update={"cache": None})
            model = juror.model or asked.model
            if asked.is_remembered:
                seat = Seat(rubric, PromptGrader(rubric=grader.rubric, model=model, folder=grader.folder), asked)
                found.setdefault((rubric.hash, asked.endpoint, model), seat)
    return list(found.values())


def judged_graders(graders: Iterable[Grader]) -> Iterator[JudgedGrader]:
    """Yield the graders that ask a judge, those inside others too."""
    for grader in graders:
        if isinstance(grader, JudgedGrader):
            yield grader
        elif isinstance(grader, AfterTurnGrader):
            yield from judged_graders([grader.grader])
        elif isinstance(grader, CompositeGrader):
            yield from judged_graders(grader.graders)


def _asked(seated: Sequence[Seat], each: int) -> Iterator[tuple[Seat, Golden]]:
    """Yield who is asked about what: of every rubric a golden that passes and one that fails, in turn."""
    chosen = [[(seat, golden) for golden in some(seat.rubric, each)] for seat in seated]
    for row in zip_longest(*chosen):
        yield from (item for item in row if item is not None)


def some(rubric: Rubric, count: int) -> list[Golden]:
    """Return so many goldens of a rubric: one that fails, one that passes, and so on; the same ones every time."""
    passing = [golden for golden in rubric.goldens if rubric.passes(golden.expected)]
    failing = [golden for golden in rubric.goldens if not rubric.passes(golden.expected)]
    mixed = [golden for pair in zip_longest(failing, passing) for golden in pair if golden is not None]
    return mixed[:count]


async def _put(seat: Seat, golden: Golden) -> Canary:
    grade = await seat.grader.agrade(golden_trace(golden), judge=seat.judge)
    opinion = opinion_of(seat.rubric, golden, grade)
    asking = grade.details.get("judge") or {}
    return Canary(
        rubric=seat.rubric.name,
        rubric_hash=seat.rubric.hash,
        golden=golden.name,
        judge=seat.judge.type_name(),
        model=seat.grader.model,
        expected=golden.expected,
        said=opinion.said,
        passes=None if opinion.said is None else seat.rubric.passes(opinion.said),
        agrees=opinion.agrees,
        answered_by=asking.get("answered_by"),
        cost_usd=asking.get("cost_usd"),
        reason=opinion.reason,
        spending=judge_spending([grade]),
    )
