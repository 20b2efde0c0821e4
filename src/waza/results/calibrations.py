"""What was measured about a judge: how its verdicts compare with people's, kept in the project, one file a judge.

A calibration belongs to a rubric (or, where a grader has none, to the grader's name) and to the judge's model: another
rubric or another model is another judge. The files stand in `.waza/calibration/` of the project's root; they hold
counts and names, no outputs, and are made to be shared.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
from msgspec import Struct, field

from waza.results.shelf import read_all, read_one, write_one
from waza.results.stats.agreement import Confusion

FOLDER = ".waza/calibration"
"""Where calibrations stand below a project's root."""


class Calibration(Struct, frozen=True, kw_only=True):
    """How a judge's verdicts by one rubric compare with people's."""

    grader: str
    """The grader whose verdicts were compared."""
    rubric: str = ""
    """The rubric's hash; empty where the grader has a prompt and no rubric."""
    rubric_name: str = ""
    model: str = ""
    """The judge's model as it was asked for; empty where it has none."""
    counts: Confusion = field(default_factory=Confusion)
    when: str = ""
    """When it was measured, in UTC."""
    reviewers: list[str] = field(default_factory=list)
    """The people whose verdicts were compared with; no name where none was given."""

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
        """Cohen's kappa; None where it says nothing."""
        return self.counts.kappa

    @property
    def accuracy(self) -> float | None:
        """The share of items that both say the same about."""
        return self.counts.accuracy

    @property
    def constant_accuracy(self) -> float | None:
        """How often the best constant answer would have agreed with people."""
        return self.counts.constant_accuracy


_DECODER = msgspec.json.Decoder(Calibration)
_WHAT = "calibration: waza calibrate"


def read_calibration(root: str | Path, *, grader: str = "", rubric: str = "", model: str = "") -> Calibration | None:
    """Return what was measured about a judge, or None: by the rubric's hash where there is one, else by grader's name.

    Raises StoreError when the file is there and cannot be read.
    """
    return read_one(_place(root, grader, rubric, model), _DECODER, _WHAT)


def read_calibrations(root: str | Path) -> list[Calibration]:
    """Return every calibration of a project, sorted by grader and model; raise StoreError for one that is damaged."""
    found = read_all(Path(root) / FOLDER, _DECODER, _WHAT)
    return sorted(found, key=lambda one: (one.grader, one.rubric_name, one.model))


def write_calibration(root: str | Path, calibration: Calibration) -> Path:
    """Keep what was measured, in place of what was known about the same judge before, and return the file's path."""
    path = _place(root, calibration.grader, calibration.rubric, calibration.model)
    numbers = ("n", "accuracy", "constant_accuracy", "kappa", "sensitivity", "specificity")
    told = msgspec.to_builtins(calibration) | {name: getattr(calibration, name) for name in numbers}
    return write_one(path, told, _WHAT)


def _place(root: str | Path, grader: str, rubric: str, model: str) -> Path:
    """Return the file of a judge; names are hashed, since they may hold anything."""
    key = msgspec.json.encode(["rubric", rubric, model] if rubric else ["grader", grader, model])
    return Path(root) / FOLDER / f"{hashlib.sha256(key).hexdigest()[:16]}.json"
