"""A judge's pass rate corrected for the judge's error, from counts, with design effects for outputs of the same task.

A judge's pass rate is not the share that people would pass. Where people have judged a random sample of the outputs,
the share they would pass of all of them can be estimated, with an interval that reflects how few they judged. Two ways:

- prediction-powered inference (Angelopoulos, Duchi and Zrnic 2023, "PPI++"): the judge's rate on all outputs, corrected
  by how people and judge differ on the labelled ones; the judge is weighted by how well it agrees;
- Rogan and Gladen (1978): the rate corrected for the judge's sensitivity and specificity, with the interval of Lang and
  Reiczigel (2014).

Trials of one task are alike. A design effect of 2 means that the outputs are worth only as much as half of them from
separate tasks. It is the variance of an estimate with whole tasks as the units, divided by the variance with outputs as
the units; both come from what each output contributes to the estimate (its influence), which is the same for all
outputs in a cell.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

from msgspec import Struct

from waza.stats.agreement import Confusion
from waza.stats.intervals import clustered_share, student_t
from waza.stats.scores import Z95, Interval, wilson_bounds

Row = Sequence[int]
"""A task's outputs: both pass, only people pass, only the judge passes, both fail; unlabelled: judge passes, fails."""


class Effects(Struct, frozen=True, kw_only=True):
    """The design effect of each estimate: how many outputs are worth one of a separate task; at least 1."""

    agreement: float = 1.0
    prediction_powered: float = 1.0
    rogan_gladen: float = 1.0
    tasks: int | None = None
    """How many tasks there are; None where every output is of another task."""
    labelled_tasks: int | None = None
    """How many of them have a labelled output."""


ALONE = Effects()


def effects(rows: Sequence[Row], weight: float) -> Effects:
    """Return the design effects for tasks' outputs; `weight` is how much of the judge the tuned estimate uses.

    With a single task its outputs are the units.
    """
    if len(rows) < 2 or all(sum(row) < 2 for row in rows):
        return ALONE
    totals = [sum(column) for column in zip(*rows, strict=True)]
    n, rest = sum(totals[:4]), sum(totals[4:])
    if not n:
        return Effects(tasks=len(rows), labelled_tasks=0)
    both, people_only, judge_only, neither = totals[:4]
    agree, people, judge = (both + neither) / n, (both + people_only) / n, (both + judge_only) / n
    passing = totals[4] / rest if rest else 0.0
    moved = people - weight * judge
    labelled = [(says - weight * passes - moved) / n for says, passes in ((1, 1), (1, 0), (0, 1), (0, 0))]
    others = [weight * (1 - passing) / rest, -weight * passing / rest] if rest else [0.0, 0.0]
    return Effects(
        agreement=_effect(rows, totals, [1 - agree, -agree, -agree, 1 - agree, 0, 0]),
        prediction_powered=_effect(rows, totals, [*labelled, *others]),
        rogan_gladen=_effect(rows, totals, _divided(totals)),
        tasks=len(rows),
        labelled_tasks=sum(any(row[:4]) for row in rows),
    )


def _raw(totals: Row, outputs: int) -> list[float]:
    share = (totals[0] + totals[2] + totals[4]) / outputs
    return [1 - share, -share, 1 - share, -share, 1 - share, -share]


def _divided(totals: Row) -> list[float]:
    """Return what an output in each cell contributes to Rogan and Gladen's share, up to a common factor."""
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


class Tuned(Struct, frozen=True, kw_only=True):
    """A prediction-powered share, as in the authors' package ppi-python."""

    share: float
    std_error: float
    weight: float
    """How much of the judge is used: 0 for none, 1 for all of it."""


class Corrected(Struct, frozen=True, kw_only=True):
    """The share of outputs that pass, by each method; None where a method does not apply."""

    raw: Interval | None
    """The judge's pass rate, and its exact interval, which ignores the judge's error."""
    people: Interval | None
    """People's pass rate of the labelled outputs alone."""
    prediction_powered: Interval | None
    rogan_gladen: Interval | None


def corrected(counts: Confusion, passes: int, outputs: int, rows: Sequence[Row] = ()) -> Corrected:
    """Return the share that passes: `passes` of `outputs` by the judge, of which `counts` are labelled by people.

    `rows` tell which outputs belong to the same task, where several do: intervals are then wider.
    """
    rest = (passes - counts.true_pass - counts.false_pass, outputs - counts.n)
    less = effects_of(counts, passes, outputs, rows)
    people = clustered_share((row[0] + row[1], sum(row[:4])) for row in rows or [_row(counts, passes, outputs)])
    return Corrected(
        raw=clustered_share((row[0] + row[2] + row[4], sum(row)) for row in rows or [_row(counts, passes, outputs)]),
        people=people,
        prediction_powered=prediction_powered(counts, *rest, less) if rest[1] else people,
        rogan_gladen=rogan_gladen(counts, passes, outputs, less.rogan_gladen),
    )


def agreement_of(counts: Confusion, rows: Sequence[Row]) -> Interval | None:
    """Return the share of labelled outputs on which judge and people agree, with tasks as the units."""
    return clustered_share((row[0] + row[3], sum(row[:4])) for row in rows or [_row(counts, 0, counts.n)])


def _row(counts: Confusion, passes: int, outputs: int) -> Row:
    """Return outputs that each belong to another task as one row, whose outputs are then the units."""
    rest = passes - counts.true_pass - counts.false_pass
    return [counts.true_pass, counts.false_fail, counts.false_pass, counts.true_fail, rest, outputs - counts.n - rest]


def effects_of(counts: Confusion, passes: int, outputs: int, rows: Sequence[Row]) -> Effects:
    """Return the design effects of outputs of which several belong to one task."""
    if not rows:
        return ALONE
    rest = (passes - counts.true_pass - counts.false_pass, outputs - counts.n)
    return effects(rows, tuned(_cells(counts), *rest).weight if counts.n and rest[1] else 0.0)


def prediction_powered(counts: Confusion, passes: int, unlabelled: int, less: Effects = ALONE) -> Interval | None:
    """Return the prediction-powered share with its 95 % interval; `passes` are the judge's on the unlabelled outputs.

    The normal interval is too narrow for few labels and near 0 and 1. So the standard error, with half an output more
    in each cell, gives the effective number of labels, and the result is Wilson's interval for that number, with
    Student's t in place of the normal distribution. None without two labels.
    """
    units = counts.n if less.labelled_tasks is None else less.labelled_tasks
    if counts.n < 2 or units < 2 or not unlabelled:
        return None
    share = _within(tuned(_cells(counts), passes, unlabelled).share)
    wary = tuned(_cells(counts, 0.5), passes + 0.5, unlabelled + 1)
    middle = min(max(wary.share, 1e-9), 1 - 1e-9)
    worth = middle * (1 - middle) / (wary.std_error**2 * less.prediction_powered)
    lower, upper = wilson_bounds(share, worth, student_t(units - 1))
    return Interval(lower=lower, upper=upper, mean=share)


Cells = tuple[float, float, float, float]
"""Both pass, only people pass, only the judge passes, both fail."""


def _cells(counts: Confusion, more: float = 0.0) -> Cells:
    four = (counts.true_pass, counts.false_fail, counts.false_pass, counts.true_fail)
    return four[0] + more, four[1] + more, four[2] + more, four[3] + more


def tuned(cells: Cells, passes: float, unlabelled: float) -> Tuned:
    """Return the prediction-powered mean of 0s and 1s, with the judge's weight that makes the variance smallest."""
    both, people_only, judge_only, _ = cells
    n = math.fsum(cells)
    covariance = both / n - (both + people_only) / n * (both + judge_only) / n
    return _weighed(cells, passes, unlabelled, _weight(covariance, both + judge_only + passes, n, unlabelled))


def plain(cells: Cells, passes: float, unlabelled: float) -> Tuned:
    """Return the prediction-powered mean as first published (2023): the judge counts in full, whatever its worth."""
    return _weighed(cells, passes, unlabelled, 1.0)


def _weighed(cells: Cells, passes: float, unlabelled: float, weight: float) -> Tuned:
    both, people_only, judge_only, _ = cells
    n = math.fsum(cells)
    people, judge, rest = (both + people_only) / n, (both + judge_only) / n, passes / unlabelled
    share = weight * rest + people - weight * judge
    square = (both * (1 - weight) ** 2 + people_only + judge_only * weight**2) / n
    rectifier = max(0.0, square - (people - weight * judge) ** 2)
    variance = weight**2 * rest * (1 - rest) / unlabelled + rectifier / n
    return Tuned(share=share, std_error=math.sqrt(variance), weight=weight)


def _weight(covariance: float, passes: float, n: float, unlabelled: float) -> float:
    total = n + unlabelled
    variance = passes * (1 - passes / total) / (total - 1)
    return _within(covariance / ((1 + n / unlabelled) * variance)) if variance > 0 else 0.0


def rogan_gladen(counts: Confusion, passes: int, outputs: int, effect: float = 1.0) -> Interval | None:
    """Return Rogan and Gladen's share with the 95 % interval of Lang and Reiczigel.

    The labelled outputs are among the judged ones, so their errors partly cancel; the interval takes that into account.
    None where people passed none or failed none of the labelled outputs, or the judge is no better than chance.
    """
    positives, negatives = counts.true_pass + counts.false_fail, counts.true_fail + counts.false_pass
    if not positives or not negatives or not outputs:
        return None
    share, sensitivity, specificity = passes / outputs, counts.true_pass / positives, counts.true_fail / negatives
    if sensitivity + specificity <= 1:
        return None
    mean = _within((share + specificity - 1) / (sensitivity + specificity - 1))
    judged = ((share, outputs / effect), (sensitivity, positives / effect), (specificity, negatives / effect))
    lower, upper = lang_reiczigel(*judged, is_part=True)
    return Interval(lower=min(lower, mean), upper=max(upper, mean), mean=mean)


def transferred(counts: Confusion, share: float, outputs: int) -> Interval | None:
    """Return Rogan and Gladen's share of outputs other than the labelled ones, of which the judge passes `share`.

    None where sensitivity or specificity is not known, or the judge is no better than chance.
    """
    positives, negatives = counts.true_pass + counts.false_fail, counts.true_fail + counts.false_pass
    sensitivity, specificity = counts.sensitivity, counts.specificity
    if sensitivity is None or specificity is None or sensitivity + specificity <= 1 or not outputs:
        return None
    mean = _within((share + specificity - 1) / (sensitivity + specificity - 1))
    lower, upper = lang_reiczigel((share, outputs), (sensitivity, positives), (specificity, negatives))
    return Interval(lower=min(lower, mean), upper=max(upper, mean), mean=mean)


JudgeAgreement = tuple[float, float]
"""A share, and of how many."""


def lang_reiczigel(
    raw: JudgeAgreement, sensitivity: JudgeAgreement, specificity: JudgeAgreement, *, is_part: bool = False
) -> tuple[float, float]:
    """Return the interval of a share that was measured by a judge whose sensitivity and specificity are estimates.

    `is_part`: those were estimated on some of the same outputs, not on others.
    """
    z = Z95
    share, n = (raw[0] * raw[1] + z * z / 2) / (raw[1] + z * z), raw[1] + z * z
    sens, n_sens = (sensitivity[0] * sensitivity[1] + 1) / (sensitivity[1] + 2), sensitivity[1] + 2
    spec, n_spec = (specificity[0] * specificity[1] + 1) / (specificity[1] + 2), specificity[1] + 2
    power = sens + spec - 1
    if power <= 0:
        return 0.0, 1.0
    middle = (share + spec - 1) / power
    spread_sens, spread_spec = sens * (1 - sens) / n_sens, spec * (1 - spec) / n_spec
    shift = 2 * z * z * (middle * spread_sens - (1 - middle) * spread_spec)
    spread = share * (1 - share) / n + middle**2 * spread_sens + (1 - middle) ** 2 * spread_spec
    if is_part:
        inner = _within(middle)
        spread -= 2 * (inner * sens * (1 - sens) + (1 - inner) * spec * (1 - spec)) / n
    reach = z * math.sqrt(max(0.0, spread)) / power
    return _within(middle + shift - reach), _within(middle + shift + reach)


def labels_needed(counts: Confusion, passes: int, outputs: int, half_width: float, effect: float = 1.0) -> int | None:
    """Return how many labels in all bring the prediction-powered interval to about ± `half_width`.

    `effect` is the design effect of outputs that belong to the same tasks. None where no number of labels of these
    outputs does, or there are too few to estimate it.
    """
    if counts.n < 2:
        return None
    rest = outputs - counts.n
    share = (passes - counts.true_pass - counts.false_pass) / rest if rest else 0.5

    def is_narrow(labels: int) -> bool:
        both, people_only, judge_only, neither = (cell * labels / counts.n for cell in _cells(counts, 0.5))
        unlabelled = max(outputs - labels, 1)
        found = tuned((both, people_only, judge_only, neither), share * unlabelled, unlabelled)
        return student_t(labels - 1) * found.std_error * math.sqrt(effect) <= half_width

    numbers = range(counts.n, outputs + 1)
    place = bisect_left(numbers, True, key=is_narrow)
    return numbers[place] if place < len(numbers) else None


def _within(share: float) -> float:
    return min(max(share, 0.0), 1.0)
