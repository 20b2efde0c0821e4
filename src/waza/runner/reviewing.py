"""Human review of a stored run: which outputs to review, and how verdicts become grades."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from waza.errors import Undecidable, UsageError, did_you_mean
from waza.files.snapshot import SnapshotFiles
from waza.graders.base import Grader
from waza.graders.composed import AfterTurnGrader
from waza.model import JSON, Attempt, Grade, Result, Run, Trace
from waza.runner.grading import on_crash_of, status_of
from waza.runner.journal_writer import finish
from waza.runner.request import redactor_for
from waza.runs.redaction import Redactor
from waza.runs.store import RunFolder, open_run
from waza.runs.verdicts import VERDICTS, Answer, HumanVerdict, evidence_of, question_of
from waza.suites.sources import source_of
from waza.suites.suite import EvalSpec


class JudgedOutput(NamedTuple):
    """A grader's verdict on an output, and its judge."""

    said: Answer | None = None
    """None where it decided nothing."""
    model: str = ""
    rubric: str = ""
    """The rubric's hash."""


class ReviewableOutput(NamedTuple):
    """One output that a person may give a verdict on."""

    place: int
    """The position of its result in the run."""
    run: str
    task: str
    trial: int
    grader: str
    asked: str
    """The question to the person."""
    question: str
    evidence: str
    judged: JudgedOutput = JudgedOutput()
    """Not to be shown before the person has answered."""
    checkpoint: AfterTurnGrader | None = None
    """Which part of a conversation is meant, where it is not all of it."""
    source: str = ""
    """The task's source context, which judges see too."""

    def verdict(self, answer: Answer, reason: str = "", reviewer: str = "") -> HumanVerdict:
        """Return a person's answer as it is recorded."""
        return HumanVerdict(
            grader=self.grader,
            evidence=self.evidence,
            verdict=answer,
            reason=reason,
            reviewer=reviewer,
            question=self.question,
            said=self.judged.said,
            model=self.judged.model,
            rubric=self.judged.rubric,
            run=self.run,
            task=self.task,
            trial=self.trial,
        )


def verdicts_file(spec: EvalSpec) -> Path:
    """Return the file of the verdicts on a suite: next to its eval file."""
    return spec.folder.base / VERDICTS


def reviewable(run: Run, spec: EvalSpec, graders: Collection[str] = ()) -> list[ReviewableOutput]:
    """Return the outputs to review: those that `human` graders ask about, or that the named graders judged.

    Outputs are ordered by a hash, so that any beginning of the list is a fair sample; the same evidence
    is listed once. Raises UsageError where a grader is not known.
    """
    known = {name_of(grader) for each in spec.graders.values() for grader in each}
    for name in graders:
        if name not in known:
            raise UsageError(f"no grader '{name}' in this suite; {did_you_mean(name, sorted(known))}")
    found: dict[tuple[str, str, str], ReviewableOutput] = {}
    sources = {task.id: source_of(task, spec.folder) for task in spec.tasks}
    for place, result in enumerate(run.results):
        if result.trace.status == "error" or result.task_id not in spec.graders:
            continue
        source = sources.get(result.task_id, "")
        for item in _items(run, place, result, spec.graders[result.task_id], graders, source):
            found.setdefault((item.grader, item.evidence, item.question), item._replace(source=source))
    return sorted(found.values(), key=lambda item: (item.evidence, item.grader))


def _items(
    run: Run, place: int, result: Result, graders: list[Grader], names: Collection[str], source: str
) -> Iterator[ReviewableOutput]:
    from waza.graders.human import HumanGrader  # every run imports this module, a review alone needs these two
    from waza.graders.human_calibration import asked_of_people  # as above

    trace = with_files(run, result)
    for index, grader in enumerate(graders):
        name, inner = name_of(grader), _inner(grader)
        where = (place, run.id, result.task_id, result.trial)
        part = grader if isinstance(grader, AfterTurnGrader) else None
        if isinstance(inner, HumanGrader) and (not names or name in names):
            if (human := grader.grade(trace).details.get("human")) is not None:
                asked = "\n".join([inner.instructions.strip(), *(f"- {one}" for one in inner.criteria)]).strip()
                yield ReviewableOutput(
                    *where, name_of(inner), asked, inner.question, human["evidence"], checkpoint=part
                )
        elif name in names:
            grade = result.grades[index] if len(result.grades) == len(graders) else None
            asked = asked_of_people(grader)
            judged = judged_by(grade) if grade else JudgedOutput()
            yield ReviewableOutput(*where, name, asked, question_of(asked), evidence_of(trace, source), judged, part)


def judged_by(grade: Grade) -> JudgedOutput:
    """Return the verdict of a grade and its judge."""
    if grade.status == "error":
        return JudgedOutput()
    judge, rubric = (_mapping(grade.details.get(key)) for key in ("judge", "rubric"))
    who = [value if isinstance(value, str) else "" for value in (judge.get("model"), rubric.get("hash"))]
    return JudgedOutput("pass" if grade.passed else "fail", *who)


def _mapping(value: JSON) -> dict[str, JSON]:
    return value if isinstance(value, dict) else {}


def with_files(run: Run, result: Result) -> Trace:
    """Return a stored trace with the files the agent left, where they were kept."""
    if not result.snapshot:
        return result.trace
    artifacts = Path(run.folder) / "artifacts"
    return replace(result.trace, files=SnapshotFiles(artifacts, result.snapshot, result.turn_snapshots))


def reviewed_part(run: Run, item: ReviewableOutput) -> tuple[Result, Trace]:
    """Return the result an item is about, and the part of its trace to review."""
    result = run.results[item.place]
    trace = with_files(run, result)
    try:
        part = item.checkpoint.part(trace) if item.checkpoint else trace
    except Undecidable:
        return result, trace
    return result, part if isinstance(part, Trace) else trace


def name_of(grader: Grader) -> str:
    """Return the name of a grader's grades."""
    return grader.name or grader.type_name()


def _inner(grader: Grader) -> Grader:
    return grader.grader if isinstance(grader, AfterTurnGrader) else grader


def settle(folder: Path, spec: EvalSpec, on_remark: Callable[[str], None] = lambda text: None) -> int:
    """Grade again, in the run's own journal, what waits for human verdicts; return how many results changed.

    Everything else stays as it is; no agent and no judge is asked. Raises UsageError when graders changed since the
    run, StoreError when another process writes to it.
    """
    redactor, changed = redactor_for(spec)[0], 0
    with RunFolder.open(folder) as kept:
        stored = open_run(folder)
        for result in stored.results:
            graders = spec.graders.get(result.task_id, [])
            fresh = _settled(stored, result, graders)
            if fresh is not result:
                # What was billed stays with the result that this one replaces; it counts there.
                own = Attempt(status=fresh.status, reason=fresh.reason)
                kept.append(redactor.tree(replace(fresh, attempt_log=[own])))
                changed += 1
        if changed:
            finish(kept, "", on_remark)
    return changed


def as_stored(run: Run, result: Result, redactor: Redactor, graders: list[Grader]) -> Result:
    """Return a result without secrets; people review what is stored, so their verdicts are matched with that."""
    kept = redactor.tree(result)
    if kept is result or len(kept.grades) != len(graders):
        return kept
    return redactor.tree(_settled(run, kept, graders))


def _settled(run: Run, result: Result, graders: list[Grader]) -> Result:
    """Return a result with the human verdicts there are now; the same one where nothing changed."""
    places = [i for i, one in enumerate(graders) if _inner(one).depends_on_people]
    if not places or not result.grades:
        return result
    if len(result.grades) != len(graders):
        raise UsageError(f"the graders changed since run {run.id}; grade it again with:  waza grade {run.id}")
    trace, grades = with_files(run, result), list(result.grades)
    for place in places:
        fresh = graders[place].grade(trace)
        if _comparable(fresh) != _comparable(grades[place]):
            grades[place] = fresh
    if all(one is other for one, other in zip(grades, result.grades, strict=True)):
        return result
    status, reason = status_of(result.trace, grades, on_crash_of(run))
    return replace(result, grades=grades, status=status, reason=reason)


def _comparable(grade: Grade) -> tuple[object, ...]:
    return grade.name, grade.status, grade.score, grade.feedback, grade.details
