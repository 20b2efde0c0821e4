"""How much less outputs tell when several belong to one task: trials of one task are alike.

A design effect of 2 says that so many outputs tell only as much as half of them would, each of a task of its own. It is
the variance of an estimate with whole tasks as the units, divided by the variance with outputs as the units; both come
from what each output contributes to the estimate (its influence), which is the same for all outputs in a cell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from waza.results.stats.agreement import Confusion

Row = Sequence[int]
"""A task's outputs: both pass, only people pass, only the judge passes, both fail; unlabelled: judge passes, fails."""


class Effects(Struct, frozen=True, kw_only=True):
    """How many outputs of these tasks tell as much as one of a task of its own, for each estimate; at least 1."""

    agreement: float = 1.0
    people: float = 1.0
    raw: float = 1.0
    prediction_powered: float = 1.0
    rogan_gladen: float = 1.0
    tasks: int | None = None
    """How many tasks there are; None where every output has a task of its own."""
    labelled_tasks: int | None = None
    """How many of them have a labelled output."""


ALONE = Effects()


def effects(rows: Sequence[Row], weight: float) -> Effects:
    """Return the design effects for tasks' outputs; `weight` is how much of the judge the tuned estimate uses.

    Of a single task its outputs are what is counted.
    """
    if len(rows) < 2 or all(sum(row) < 2 for row in rows):
        return ALONE
    totals = [sum(column) for column in zip(*rows, strict=True)]
    n, rest = sum(totals[:4]), sum(totals[4:])
    if not n:
        return Effects(raw=_effect(rows, totals, _raw(totals, rest)), tasks=len(rows), labelled_tasks=0)
    both, people_only, judge_only, neither = totals[:4]
    agree, people, judge = (both + neither) / n, (both + people_only) / n, (both + judge_only) / n
    passing = totals[4] / rest if rest else 0.0
    moved = people - weight * judge
    labelled = [(says - weight * passes - moved) / n for says, passes in ((1, 1), (1, 0), (0, 1), (0, 0))]
    others = [weight * (1 - passing) / rest, -weight * passing / rest] if rest else [0.0, 0.0]
    return Effects(
        agreement=_effect(rows, totals, [1 - agree, -agree, -agree, 1 - agree, 0, 0]),
        people=_effect(rows, totals, [1 - people, 1 - people, -people, -people, 0, 0]),
        raw=_effect(rows, totals, _raw(totals, n + rest)),
        prediction_powered=_effect(rows, totals, [*labelled, *others]),
        rogan_gladen=_effect(rows, totals, _divided(totals)),
        tasks=len(rows),
        labelled_tasks=sum(any(row[:4]) for row in rows),
    )


def _raw(totals: Row, outputs: int) -> list[float]:
    share = (totals[0] + totals[2] + totals[4]) / outputs
    return [1 - share, -share, 1 - share, -share, 1 - share, -share]


def _divided(totals: Row) -> list[float]:
    """Return what an output in each cell contributes to Rogan and Gladen's share, but for a common factor."""
    both, people_only, judge_only, neither = totals[:4]
    counts = Confusion(true_pass=both, false_fail=people_only, false_pass=judge_only, true_fail=neither)
    sensitivity, specificity = counts.sensitivity, counts.specificity
    if sensitivity is None or specificity is None or sensitivity + specificity <= 1:
        return [0.0] * 6
    outputs = sum(totals)
    raw = [value / outputs for value in _raw(totals, outputs)]
    share = (both + judge_only + totals[4]) / outputs
    true = min(max((share + specificity - 1) / (sensitivity + specificity - 1), 0.0), 1.0)
    good, bad = true / (both + people_only), (1 - true) / (judge_only + neither)
    own = [-good * (1 - sensitivity), good * sensitivity, -bad * specificity, bad * (1 - specificity), 0.0, 0.0]
    return [one + other for one, other in zip(raw, own, strict=True)]


def _effect(rows: Sequence[Row], totals: Row, influence: Sequence[float]) -> float:
    """Return the variance with tasks as units over that with outputs as units; 1 where there is none."""
    alone = math.fsum(count * value * value for count, value in zip(totals, influence, strict=True))
    counted = [row for row in rows if any(count and value for count, value in zip(row, influence, strict=True))]
    if alone <= 0 or len(counted) < 2:
        return 1.0
    sums = (math.fsum(count * value for count, value in zip(row, influence, strict=True)) for row in counted)
    together = math.fsum(one * one for one in sums) * len(counted) / (len(counted) - 1)
    return max(1.0, together / alone)
