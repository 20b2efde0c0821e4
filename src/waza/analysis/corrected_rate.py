"""The pass rate of a run's judges corrected by their calibrations: what people would pass, with its interval.

A calibration has how often a judge agrees with people. Rogan and Gladen's estimate (1978) divides its error out of the
pass rate; Lang and Reiczigel's interval (2014) includes that sensitivity and specificity are estimates too.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from waza.errors import StoreError
from waza.files.paths import project_root
from waza.model import JSON, Run
from waza.runs.judge_card import JURY, Calibration, asked_in, jury_name, read_calibrations
from waza.stats.corrected import transferred
from waza.stats.intervals import clustered_share
from waza.stats.scores import Interval


class CorrectedRate(Struct, frozen=True, kw_only=True):
    """The pass rate of one judge in a run, as it is and corrected."""

    grader: str
    model: str
    raw: Interval
    corrected: Interval | None
    """None where the calibration cannot correct it; `reason` says why."""
    reason: str = ""
    labels: int = 0
    """How many outputs people have labelled for the calibration."""


def known_calibrations(run: Run) -> list[Calibration]:
    """Return the calibrations of the project that are about a judge of the run, whatever it was asked."""
    if not run.suite.judged:
        return []
    graders = {str(grader.get("name")): grader for grader in run.suite.every_grader}
    usual = (run.suite.judge or {}).get("model") or ""
    root = project_root((Path(run.folder).resolve().parent / run.suite.file).resolve().parent)
    try:
        every = read_calibrations(root)
    except (StoreError, OSError):
        return []
    juries = _juries(run) if any(one.model.startswith(JURY) for one in every) else {}
    return [
        one
        for one in every
        if one.grader in graders and one.model in (*_models(graders[one.grader], usual), juries.get(one.grader))
    ]


def usable_calibrations(run: Run) -> list[Calibration]:
    """Return the calibrations that are about what the run's judges are asked."""
    known = known_calibrations(run)
    questions = asked_in(run, known)
    return [one for one in known if one.asked in questions]


def corrected_rates(run: Run) -> list[CorrectedRate]:
    """Return the pass rate of each calibrated judge or jury of a run; jurors have none of their own."""
    usable, juries = usable_calibrations(run), _juries(run)
    found = []
    for one in usable:
        if juries.get(one.grader, one.model) != one.model:
            continue
        tasks: dict[str, list[bool]] = {}
        for result in run.results:
            for grade in result.grades:
                if grade.name == one.grader and grade.status != "error":
                    tasks.setdefault(result.task_id, []).append(grade.passed)
        raw = clustered_share((sum(passed), len(passed)) for passed in tasks.values())
        if raw is None:
            continue
        interval = transferred(one.counts, raw.mean, len(tasks))
        reason = "" if interval else _reason(one)
        found.append(
            CorrectedRate(
                grader=one.grader, model=one.model, raw=raw, corrected=interval, reason=reason, labels=one.counts.n
            )
        )
    return found


def _reason(calibration: Calibration) -> str:
    if calibration.sensitivity is None or calibration.specificity is None:
        return "people passed none, or failed none, of the labelled outputs"
    return "the judge agrees with people no better than chance"


def _juries(run: Run) -> dict[str, str]:
    """Return the name of the jury of each grader that has one."""
    return {grade.name: name for result in run.results for grade in result.grades if (name := jury_name(grade.details))}


def _models(grader: dict[str, JSON], usual: str) -> list[str]:
    """Return the models a grader asks: its own, those of its jury, else the suite's."""
    config = grader.get("config") or {}
    jury = [one if isinstance(one, str) else str(one.get("model", "")) for one in config.get("judges") or ()]
    return jury or [config.get("model") or usual]
