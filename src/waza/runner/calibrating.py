"""What judges and people said about the outputs of stored runs, gathered from their journals and files of labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct, field

from waza.model import JSON, Grade, Run, Task
from waza.results.calibrations import Calibration, questions_in
from waza.results.measured import HALF_WIDTH, Alpha, Measured, Output, Rater, Said, between, measure
from waza.results.verdicts import Verdict, evidence_of, standing
from waza.runner.reviewing import with_files
from waza.sandbox.folders import SpecFolder
from waza.spec.sources import source_of


class Gathered(Struct):
    """The outputs of runs and what judges said about them; the same output counts once."""

    outputs: dict[str, Output] = field(default_factory=dict)
    """By evidence."""
    said: dict[Rater, dict[str, Said]] = field(default_factory=dict)
    not_asked: dict[Rater, int] = field(default_factory=dict)
    """How many outputs a jury settled without asking a juror."""
    graders: set[str] = field(default_factory=set)
    """Every grader there is a grade of."""
    asking_people: set[str] = field(default_factory=set)
    """Those whose grades are what people say."""
    undecided: dict[str, set[str]] = field(default_factory=dict)
    """By grader: the outputs it decided nothing about."""
    places: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    """By task and trial: the evidence, of every run."""


class Calibrated(Struct, frozen=True, kw_only=True):
    """Judges measured against people and against each other."""

    judges: list[Measured]
    between_judges: list[Alpha]
    between_people: list[Alpha]


def gather(runs: Iterable[Run], graders: Collection[str] = (), folder: SpecFolder | None = None) -> Gathered:
    """Return what the named graders said, or without names every grader that asks a judge; jurors count one by one.

    `folder` is where files stand that tasks name as their source.
    """
    found = Gathered()
    seats: dict[tuple[str, str], Rater] = {}
    passed_over: Counter[tuple[str, str]] = Counter()
    for run in runs:
        questions = questions_in(run)
        sources = _sources(run, folder or SpecFolder())
        for result in run.results:
            if result.trace.status == "error" or not result.grades:
                continue
            evidence = evidence_of(with_files(run, result), sources.get(result.task_id, ""))
            place = Output(evidence=evidence, run=run.id, task=result.task_id, trial=result.trial)
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
                for rater, seat, said in _votes(grade, questions.get(grade.name, "")):
                    seats[grade.name, seat] = rater
                    found.said.setdefault(rater, {}).setdefault(evidence, said)
    found.not_asked = {seats[key]: count for key, count in passed_over.items() if key in seats}
    return found


def _sources(run: Run, folder: SpecFolder) -> dict[str, str]:
    """Return the source context of each task of a stored run that has one."""
    listed = run.spec.get("tasks")
    tasks = map(_mapping, listed or ())
    contexts = {_text(task.get("id")): dict(_mapping(task["context"])) for task in tasks if task.get("context")}
    return {
        name: source_of(Task(id=name, prompt="", context=context), folder)
        for name, context in contexts.items()
        if "source" in context
    }


def _votes(grade: Grade, question: str) -> Iterator[tuple[Rater, str, Said]]:
    """Yield who said what in a grade: the judge, or each juror who voted, with its name in the jury."""
    rubric = _mapping(grade.details.get("rubric"))
    by = (_text(rubric.get("hash")), _text(rubric.get("name")), question)
    if "jury" not in grade.details:
        if grade.status != "error":
            reason = "; ".join(check.claim for check in grade.checks) if grade.passed else grade.feedback
            yield Rater(grade.name, _model(grade.details), *by), "", Said(grade.passed, reason)
        return
    for vote in map(_mapping, _listed(grade, "votes")):
        if vote.get("status") in ("passed", "failed"):
            said = Said(vote["status"] == "passed", _text(vote.get("feedback")))
            model, address = _model(_mapping(vote.get("details"))), _text(vote.get("address"))
            yield Rater(grade.name, model, *by, address), _text(vote.get("juror")), said


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


def opinions_of(verdicts: Iterable[Verdict], grader: str) -> dict[str, dict[str, Said]]:
    """Return people's verdicts on a grader's question: by name, by evidence."""
    found: dict[str, dict[str, Said]] = {}
    for (name, evidence), given in standing(verdicts).items():
        if name == grader:
            for one in given:
                found.setdefault(one.reviewer, {})[evidence] = Said(one.verdict == "pass", one.reason)
    return found


def calibrate(
    gathered: Gathered, verdicts: Sequence[Verdict], people: str = "", half_width: float = HALF_WIDTH
) -> Calibrated:
    """Return every judge measured against the verdicts of people on its own grader, or on the grader `people`."""
    asked = {rater: people or rater.grader for rater in gathered.said}
    opinions = {name: opinions_of(verdicts, name) for name in dict.fromkeys(asked.values())}
    judges = [
        measure(rater, said, opinions[asked[rater]], gathered.outputs, half_width, gathered.not_asked.get(rater, 0))
        for rater, said in gathered.said.items()
    ]
    alike: dict[str, dict[str, Any]] = {}
    for rater, said in gathered.said.items():
        alike.setdefault(asked[rater], {})[_called(rater)] = said
    return Calibrated(
        judges=judges,
        between_judges=[alpha for raters in alike.values() if (alpha := between(raters))],
        between_people=[alpha for raters in opinions.values() if (alpha := between(raters))],
    )


def _called(rater: Rater) -> str:
    parts = [rater.grader, rater.model, rater.address, rater.rubric[:8], rater.question[:8]]
    return " · ".join(part for part in parts if part)


def kept_form(measured: Measured) -> Calibration:
    """Return what was measured about a judge as the project keeps it."""
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
