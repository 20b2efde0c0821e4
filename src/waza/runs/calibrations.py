"""Calibrations: how a judge's verdicts compare with people's, stored in the project, one file per judge.

A calibration belongs to what is asked (a rubric, or the question of a grader's prompt) and to the judge's model, at
the address that a jury names for it: another question or another model is another judge. The files are in
`.waza/calibration/` of the project's root; they have counts and names, no outputs, and can be shared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct, field

from waza.model import Run
from waza.runs.json_records import read_all, read_one, write_one
from waza.runs.verdicts import question_of
from waza.stats.agreement import Confusion

FOLDER = ".waza/calibration"
"""The folder of calibrations below a project's root."""


class Calibration(Struct, frozen=True, kw_only=True):
    """How a judge's verdicts by one rubric compare with people's."""

    grader: str
    """The grader whose verdicts were compared."""
    rubric: str = ""
    """The rubric's hash; empty where the grader has a prompt and no rubric."""
    rubric_name: str = ""
    question: str = ""
    """The name of a prompt's question, as in `questions_in`; empty where a rubric asks."""
    model: str = ""
    """The judge's model as requested; empty where it has none."""
    address: str = ""
    """Where a juror's model is served, if the jury names it."""
    counts: Confusion = field(default_factory=Confusion)
    when: str = ""
    """When it was calibrated, in UTC."""
    reviewers: list[str] = field(default_factory=list)
    """The people whose verdicts were compared with; no name where none was given."""

    @property
    def asked(self) -> str:
        """The question's name or the rubric's hash; empty for one that may be about anything."""
        return self.question or self.rubric

    @property
    def n(self) -> int:
        """How many items both people and the judge decided."""
        return self.counts.n

    @property
    def sensitivity(self) -> float | None:
        """Of what people pass, the share that the judge passes; None where they pass nothing."""
        return self.counts.sensitivity

    @property
    def specificity(self) -> float | None:
        """Of what people fail, the share that the judge fails; None where they fail nothing."""
        return self.counts.specificity

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa; None where it is undefined."""
        return self.counts.kappa

    @property
    def accuracy(self) -> float | None:
        """The share of items that both agree on."""
        return self.counts.accuracy

    @property
    def constant_accuracy(self) -> float | None:
        """How often the best constant answer would have agreed with people."""
        return self.counts.constant_accuracy


_DECODER = msgspec.json.Decoder(Calibration)
_WHAT = "calibration: waza calibrate"


def read_calibration(
    root: str | Path, *, grader: str = "", rubric: str = "", question: str = "", model: str = "", address: str = ""
) -> Calibration | None:
    """Return the calibration of a judge, or None; the grader's name counts only where there is no question or rubric.

    Raises StoreError when the file is there and cannot be read.
    """
    key = Calibration(grader=grader, rubric=rubric, question=question, model=model, address=address)
    return read_one(_place(root, key), _DECODER, _WHAT)


def read_calibrations(root: str | Path) -> list[Calibration]:
    """Return every calibration of a project, sorted by grader and model; raise StoreError for one that is damaged."""
    found = read_all(Path(root) / FOLDER, _DECODER, _WHAT)
    return sorted(found, key=lambda one: (one.grader, one.rubric_name, one.model))


def asked_in(run: Run, known: Iterable[Calibration]) -> set[str]:
    """Return the questions to the judges of a run: hashes of rubrics, and names of questions that are known.

    Results are read only where some calibration is about a question: there may be any number of them.
    """
    rubrics = {one for task in run.suite.judged.values() for one in task}
    if not (questions := {one.question for one in known if one.question}):
        return rubrics
    return rubrics | questions.intersection(questions_in(run).values())


def questions_in(run: Run) -> dict[str, str]:
    """Return, by grader, the name of what it asks in a run; of a grader that asks several things, of all together."""
    found: dict[str, set[str]] = {}
    for result in run.results:
        for grade in result.grades:
            if isinstance(question := grade.details.get("question"), str):
                found.setdefault(grade.name, set()).add(question)
    return {name: questions.pop() if len(questions) == 1 else question_of(*sorted(questions))
            for name, questions in found.items()}  # fmt: skip


def write_calibration(root: str | Path, calibration: Calibration) -> Path:
    """Write a calibration in place of an older one of the same judge, and return the file's path."""
    path = _place(root, calibration)
    numbers = ("n", "accuracy", "constant_accuracy", "kappa", "sensitivity", "specificity")
    record = msgspec.to_builtins(calibration) | {name: getattr(calibration, name) for name in numbers}
    return write_one(path, record, _WHAT)


def _place(root: str | Path, one: Calibration) -> Path:
    """Return the file of a judge; names are hashed, since they may have any characters."""
    identity = ["question", one.question, one.rubric] if one.question else ["rubric", one.rubric]
    key = [*(identity if one.question or one.rubric else ["grader", one.grader]), one.model]
    name = hashlib.sha256(msgspec.json.encode([*key, one.address] if one.address else key)).hexdigest()[:16]
    return Path(root) / FOLDER / f"{name}.json"
