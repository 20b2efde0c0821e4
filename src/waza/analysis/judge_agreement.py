"""The agreement of a judge with people: both verdicts on the same outputs, in numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from waza.stats.agreement import Confusion, confusion, kappa_interval, kappa_remark, krippendorff_alpha
from waza.stats.corrected import Corrected, agreement_of, corrected, effects_of, labels_needed
from waza.stats.scores import Interval

HALF_WIDTH = 0.05
"""The default half width of the corrected interval."""
NEXT = 10
"""How many outputs to label next are named."""


class MeasuredOutput(Struct, frozen=True, kw_only=True):
    """One distinct output, and the trial in which it occurred first."""

    evidence: str
    run: str
    task: str
    trial: int


class Rater(NamedTuple):
    """A judge: a grader's question, answered by one model."""

    grader: str
    model: str = ""
    rubric: str = ""
    rubric_name: str = ""
    question: str = ""
    """What a prompt asks; empty where the rubric's text does, or no judge is asked."""
    address: str = ""
    """Where a juror's model is served, if the jury records it."""


class StatedVerdict(NamedTuple):
    """A verdict with its reason."""

    passes: bool
    reason: str = ""


Opinions = Mapping[str, StatedVerdict]
"""By evidence: a judge's verdict, or one person's."""


class Disagreement(Struct, frozen=True, kw_only=True):
    """An output that people and judge do not agree on."""

    output: MeasuredOutput
    people: str
    judge: str
    people_reason: str
    judge_reason: str


class Alpha(Struct, frozen=True, kw_only=True):
    """Krippendorff's alpha between several raters."""

    alpha: float | None
    raters: list[str]
    outputs: int
    """Outputs that at least two of them judged."""
    unnamed: int = 0
    """Verdicts that were left out: they have no name, so one person cannot be distinguished from several."""


class JudgeAgreement(Struct, frozen=True, kw_only=True):
    """One judge compared with people."""

    grader: str
    model: str
    rubric: str
    rubric_name: str
    question: str
    address: str
    outputs: int
    """Distinct outputs that the judge decided."""
    tasks: int
    not_asked: int
    """Outputs that a jury decided without this juror: those it was asked about are then no fair sample."""
    people: list[str]
    divided: int
    """Outputs on which people are evenly divided; they count for nothing."""
    counts: Confusion
    agreement: Interval | None
    kappa: Interval | None
    """None where there is no kappa, or no interval of it."""
    kappa_value: float | None
    kappa_remark: str
    """Why there is none."""
    base_rate: float | None
    constant_answer: str
    constant_agreement: float | None
    fail_precision: float | None
    fail_recall: float | None
    sensitivity: float | None
    specificity: float | None
    score: Corrected
    differ: list[Disagreement]
    half_width: float
    labels_needed: int | None
    label_next: list[MeasuredOutput]
    """Ordered by a hash, so that any beginning of the list is a fair sample."""


def measure(
    rater: Rater,
    said: Opinions,
    people: Mapping[str, Opinions],
    outputs: Mapping[str, MeasuredOutput],
    half_width: float = HALF_WIDTH,
    not_asked: int = 0,
) -> JudgeAgreement:
    """Return a judge's agreement with the majority of people; `people` are their verdicts by name."""
    labels = {evidence: label(people, evidence) for evidence in said}
    known = {evidence: passes for evidence, passes in labels.items() if passes is not None}
    counts = confusion((passes, said[evidence].passes) for evidence, passes in known.items())
    passed = sum(one.passes for one in said.values())
    rows = _rows(said, known, outputs)
    less = effects_of(counts, passed, len(said), rows)
    open_ones = sorted(evidence for evidence in said if not _given(people, evidence))
    return JudgeAgreement(
        **rater._asdict(),
        outputs=len(said),
        tasks=len({outputs[evidence].task for evidence in said}),
        not_asked=not_asked,
        people=sorted(name for name, opinions in people.items() if opinions.keys() & said.keys()),
        divided=sum(passes is None for passes in labels.values()) - len(open_ones),
        counts=counts,
        agreement=agreement_of(counts, rows),
        kappa=kappa_interval(counts.table, less.agreement),
        kappa_value=counts.kappa,
        kappa_remark=kappa_remark(counts.table),
        base_rate=counts.base_rate,
        constant_answer="pass" if (counts.base_rate or 0.0) >= 0.5 else "fail",
        constant_agreement=counts.constant_accuracy,
        fail_precision=counts.fail_precision,
        fail_recall=counts.fail_recall,
        sensitivity=counts.sensitivity,
        specificity=counts.specificity,
        score=corrected(counts, passed, len(said), rows),
        differ=_differences(known, said, people, outputs),
        half_width=half_width,
        labels_needed=labels_needed(counts, passed, len(said), half_width, less.prediction_powered),
        label_next=[outputs[evidence] for evidence in open_ones[:NEXT]],
    )


def _rows(said: Opinions, known: Mapping[str, bool], outputs: Mapping[str, MeasuredOutput]) -> list[list[int]]:
    """Return each task's outputs, counted as `clusters.Row` says."""
    rows: dict[str, list[int]] = {}
    for evidence, one in said.items():
        row = rows.setdefault(outputs[evidence].task, [0] * 6)
        if evidence in known:
            row[2 * (not known[evidence]) + (not one.passes)] += 1
        else:
            row[4 + (not one.passes)] += 1
    return list(rows.values())


def _given(people: Mapping[str, Opinions], evidence: str) -> list[StatedVerdict]:
    return [opinions[evidence] for opinions in people.values() if evidence in opinions]


def label(people: Mapping[str, Opinions], evidence: str) -> bool | None:
    """Return the majority's verdict on an output; None where people are evenly divided, or there is no verdict."""
    given = [one.passes for one in _given(people, evidence)]
    return None if 2 * sum(given) == len(given) else 2 * sum(given) > len(given)


def _differences(
    known: Mapping[str, bool], said: Opinions, people: Mapping[str, Opinions], outputs: Mapping[str, MeasuredOutput]
) -> list[Disagreement]:
    found = [
        Disagreement(
            output=outputs[evidence],
            people=_word(passes),
            judge=_word(not passes),
            people_reason="; ".join(one.reason for one in _given(people, evidence) if one.reason),
            judge_reason=said[evidence].reason,
        )
        for evidence, passes in known.items()
        if said[evidence].passes is not passes
    ]
    return sorted(found, key=lambda one: (one.output.task, one.output.trial, one.output.evidence))


def _word(passes: bool) -> str:
    return "pass" if passes else "fail"


def between(raters: Mapping[str, Opinions]) -> Alpha | None:
    """Return how far several raters agree; None where no two judged the same. Those without a name do not count."""
    names = sorted(name for name, opinions in raters.items() if opinions and name)
    unnamed = len(raters.get("", ()))
    if len(names) + bool(unnamed) < 2:
        return None
    every = sorted({evidence for name in names for evidence in raters[name]})
    rows: Sequence[list[bool | None]] = [
        [raters[name][evidence].passes if evidence in raters[name] else None for name in names] for evidence in every
    ]
    shared = sum(len(row) - row.count(None) > 1 for row in rows)
    if not shared and not unnamed:
        return None
    return Alpha(alpha=krippendorff_alpha(rows), raters=names, outputs=shared, unnamed=unnamed)
