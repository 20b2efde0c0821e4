"""Verdicts of judges and people on the outputs of stored runs, read from journals and label files, and compared."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from waza.analysis.judge_agreement import (
    HALF_WIDTH,
    Alpha,
    JudgeAgreement,
    MeasuredOutput,
    Rater,
    StatedVerdict,
    between,
    measure,
)
from waza.errors import UsageError, did_you_mean
from waza.files.paths import SpecFolder
from waza.model import JSON, Grade, Run, Task
from waza.runner.reviewing import with_files
from waza.runs.judge_card import JURY, Calibration, jury_name, questions_in
from waza.runs.verdicts import Answer, HumanVerdict, evidence_of, standing
from waza.suites.sources import source_of


class JudgedOutputs(Struct):
    """The outputs of runs and the verdicts of judges on them; the same output counts once."""

    outputs: dict[str, MeasuredOutput] = field(default_factory=dict)
    """By evidence."""
    verdicts: dict[Rater, dict[str, StatedVerdict]] = field(default_factory=dict)
    not_asked: dict[Rater, int] = field(default_factory=dict)
    """How many outputs a jury decided without asking a juror."""
    graders: set[str] = field(default_factory=set)
    """Every grader that has a grade."""
    asking_people: set[str] = field(default_factory=set)
    """Graders whose grades are people's verdicts."""
    undecided: dict[str, set[str]] = field(default_factory=dict)
    """By grader: the outputs it left undecided."""
    places: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    """By task and trial: the evidence, of every run."""


class Calibrated(Struct, frozen=True, kw_only=True):
    """Judges compared with people and with each other."""

    judges: list[JudgeAgreement]
    between_judges: list[Alpha]
    between_people: list[Alpha]


def collect_verdicts(
    runs: Iterable[Run], graders: Collection[str] = (), folder: SpecFolder | None = None
) -> JudgedOutputs:
    """Return the verdicts of the named graders, without names of all that ask a judge; jurors count one by one.

    `folder` has the files that tasks name as their source.
    """
    found = JudgedOutputs()
    seats: dict[tuple[str, str], Rater] = {}
    passed_over: Counter[tuple[str, str]] = Counter()
    for run in runs:
        questions = questions_in(run)
        sources = _sources(run, folder or SpecFolder())
        for result in run.results:
            if result.trace.status == "error" or not result.grades:
                continue
            evidence = evidence_of(with_files(run, result), sources.get(result.task_id, ""))
            place = MeasuredOutput(evidence=evidence, run=run.id, task=result.task_id, trial=result.trial)
            found.outputs.setdefault(evidence, place)
            found.places.setdefault((result.task_id, result.trial), []).append(evidence)
            for grade in result.grades:
                found.graders.add(grade.name)
                if "human" in grade.details:
                    found.asking_people.add(grade.name)
                if grade.status == "error":
                    found.undecided.setdefault(grade.name, set()).add(evidence)
                if grade.name not in graders and (graders or "judge" not in grade.details):
                    continue
                passed_over.update((grade.name, _text(name)) for name in _listed(grade, "not_asked"))
                for rater, seat, verdict in _votes(grade, questions.get(grade.name, "")):
                    seats[grade.name, seat] = rater
                    found.verdicts.setdefault(rater, {}).setdefault(evidence, verdict)
    found.not_asked = {seats[key]: count for key, count in passed_over.items() if key in seats}
    return found


def _sources(run: Run, folder: SpecFolder) -> dict[str, str]:
    """Return the source context of each task of a stored run that has one."""
    tasks = map(_mapping, run.suite.tasks)
    contexts = {_text(task.get("id")): dict(_mapping(task["context"])) for task in tasks if task.get("context")}
    return {
        name: source_of(Task(id=name, prompt="", context=context), folder)
        for name, context in contexts.items()
        if "source" in context
    }


def _votes(grade: Grade, question: str) -> Iterator[tuple[Rater, str, StatedVerdict]]:
    """Yield the verdicts in a grade: the judge's, or the jury's and each juror's with its name in the jury."""
    rubric = _mapping(grade.details.get("rubric"))
    by = (_text(rubric.get("hash")), _text(rubric.get("name")), question)
    if "jury" not in grade.details:
        if grade.status != "error":
            reason = "; ".join(check.claim for check in grade.checks) if grade.passed else grade.feedback
            yield Rater(grade.name, _model(grade.details), *by), "", StatedVerdict(grade.passed, reason)
        return
    if grade.status != "error":
        yield Rater(grade.name, jury_name(grade.details), *by), "", StatedVerdict(grade.passed, grade.feedback)
    for vote in map(_mapping, _listed(grade, "votes")):
        if vote.get("status") in ("passed", "failed"):
            verdict = StatedVerdict(vote["status"] == "passed", _text(vote.get("feedback")))
            model, address = _model(_mapping(vote.get("details"))), _text(vote.get("address"))
            yield Rater(grade.name, model, *by, address), _text(vote.get("juror")), verdict


def _model(details: Mapping[str, JSON]) -> str:
    return _text(_mapping(details.get("judge")).get("model"))


def _listed(grade: Grade, key: str) -> list[JSON]:
    """Return a list that a jury left in a grade."""
    found = _mapping(grade.details.get("jury")).get(key)
    return found if isinstance(found, list) else []


def _mapping(value: JSON) -> Mapping[str, JSON]:
    """Return a mapping of a stored run as it is; anything else is none: a run folder may come from anywhere."""
    return value if isinstance(value, dict) else {}


def _text(value: JSON) -> str:
    return value if isinstance(value, str) else ""


def opinions_of(verdicts: Iterable[HumanVerdict], grader: str) -> dict[str, dict[str, StatedVerdict]]:
    """Return people's verdicts on a grader's question: by name, by evidence."""
    found: dict[str, dict[str, StatedVerdict]] = {}
    for (name, evidence), given in standing(verdicts).items():
        if name == grader:
            for one in given:
                found.setdefault(one.reviewer, {})[evidence] = StatedVerdict(one.verdict == "pass", one.reason)
    return found


def calibrate(
    collected: JudgedOutputs, verdicts: Sequence[HumanVerdict], people: str = "", half_width: float = HALF_WIDTH
) -> Calibrated:
    """Return every judge compared with people's verdicts on its own grader, or on the grader `people`."""
    asked = {rater: people or rater.grader for rater in collected.verdicts}
    opinions = {name: opinions_of(verdicts, name) for name in dict.fromkeys(asked.values())}
    judges = [
        measure(rater, given, opinions[asked[rater]], collected.outputs, half_width, collected.not_asked.get(rater, 0))
        for rater, given in collected.verdicts.items()
    ]
    alike: dict[str, dict[str, Any]] = {}
    for rater, given in collected.verdicts.items():
        if rater.model.startswith(JURY):  # its verdicts are made of its jurors'
            continue
        alike.setdefault(asked[rater], {})[_called(rater)] = given
    return Calibrated(
        judges=judges,
        between_judges=[alpha for raters in alike.values() if (alpha := between(raters))],
        between_people=[alpha for raters in opinions.values() if (alpha := between(raters))],
    )


def _called(rater: Rater) -> str:
    parts = [rater.grader, rater.model, rater.address, rater.rubric[:8], rater.question[:8]]
    return " · ".join(part for part in parts if part)


def kept_form(measured: JudgeAgreement) -> Calibration:
    """Return a judge's agreement in the form that the project stores."""
    return Calibration(
        grader=measured.grader,
        rubric=measured.rubric,
        rubric_name=measured.rubric_name,
        question=measured.question,
        address=measured.address,
        model=measured.model,
        counts=measured.counts,
        when=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        reviewers=measured.people,
    )


COLUMNS = ("task", "trial", "evidence", "verdict", "label", "reviewer", "reason", "grader")
_OURS = ("at", "question", "said", "model", "rubric", "run")
"""Keys of our own verdicts file that are not part of a label."""
_WORDS: dict[str, Answer] = dict.fromkeys(("pass", "passed", "true", "yes", "1", "1.0"), "pass")
_WORDS |= dict.fromkeys(("fail", "failed", "false", "no", "0", "0.0"), "fail")


def read_labels(path: Path, grader: str, places: Mapping[tuple[str, int], list[str]]) -> list[HumanVerdict]:
    """Return the labels of a file as verdicts on a grader's question; `places` says which outputs there are.

    A row names its output by `task` (and `trial`, where there are several) or by `evidence`. Raises UsageError that
    names the row which is wrong, or which says otherwise about an output than another row of the same person.
    """
    found: dict[tuple[str, str, str], tuple[HumanVerdict, int]] = {}
    for number, row in _rows(path):
        if row.get("grader") not in (None, "", grader):
            continue
        for verdict in _verdicts(row, f"{path}:{number}", grader, places):
            key = (verdict.evidence, verdict.reviewer, verdict.at)
            before, line = found.setdefault(key, (verdict, number))
            if before.verdict != verdict.verdict:
                fact = f"says {verdict.verdict} of the same output that line {line} says {before.verdict} of"
                raise UsageError(f"{path}:{number}: {fact}; keep one of them, or name two people in 'reviewer'")
    return [verdict for verdict, _ in found.values()]


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is no UTF-8 text: {error.reason}") from None
    yield from _from_csv(path, text) if path.suffix.lower() == ".csv" else _from_jsonl(path, text)


def _from_csv(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text), restkey="", strict=True)
    try:
        for row in reader:
            if "" in row:
                raise UsageError(f"{path}:{reader.line_num}: has more fields than the header")
            yield reader.line_num, {key: value for key, value in row.items() if value not in (None, "")}
    except csv.Error as error:
        raise UsageError(f"{path}:{reader.line_num}: is no CSV: {error}") from None


def _from_jsonl(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path}:{number}: is no JSON: {error}") from None
        if not isinstance(row, dict):
            raise UsageError(f"{path}:{number}: an object is needed, found {type(row).__name__}")
        yield number, row


def _verdicts(
    row: dict[str, Any], here: str, grader: str, places: Mapping[tuple[str, int], list[str]]
) -> Iterator[HumanVerdict]:
    for key in row:
        if key not in COLUMNS and key not in _OURS:
            raise UsageError(f"{here}: unknown column '{key}'; {did_you_mean(str(key), COLUMNS)}")
    word = str(row.get("verdict", row.get("label", ""))).strip().lower()
    if word not in _WORDS:
        raise UsageError(f"{here}: the verdict is pass or fail, found '{word[:40]}'")
    who, why = str(row.get("reviewer", "")), str(row.get("reason", ""))
    for evidence in _evidence(row, here, places):
        at = str(row.get("at", ""))
        yield HumanVerdict(grader=grader, evidence=evidence, verdict=_WORDS[word], reason=why, reviewer=who, at=at)


def _evidence(row: dict[str, Any], here: str, places: Mapping[tuple[str, int], list[str]]) -> list[str]:
    """Return the outputs a row is about: one for each run that has that trial."""
    if row.get("evidence"):
        return [str(row["evidence"])]
    task = str(row.get("task", ""))
    trials = sorted(trial for name, trial in places if name == task)
    if not trials:
        known = list(dict.fromkeys(name for name, _ in places))
        raise UsageError(f"{here}: no output of task '{task[:60]}' in these runs; {did_you_mean(task, known)}")
    if "trial" not in row and len(trials) > 1:
        raise UsageError(f"{here}: task '{task}' has {len(trials)} trials; say which with a column 'trial'")
    trial = _whole(row.get("trial", trials[0]), here)
    if trial not in trials:
        raise UsageError(f"{here}: task '{task}' has no trial {trial}")
    return list(dict.fromkeys(places[task, trial]))


def _whole(value: Any, here: str) -> int:
    """Return the number of a trial, as CSV or JSON has it; raise UsageError for what is none."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not number.is_integer():
        raise UsageError(f"{here}: a trial is a whole number, found '{str(value)[:40]}'")
    return int(number)
