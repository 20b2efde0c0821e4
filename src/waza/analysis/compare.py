"""Two stored runs compared by the same graders: where their graders differ, one run is graded again by the other's.

The change is then split: a difference under the same graders is the agent's, a difference on the same traces is the
graders'. No agent is called; a judge only where the caller allows it. The graders come from the suite, if it still has
them, or from the run folder; that may come from anywhere, so nothing in it is ever started.

A `results.json`, ours or the original's (schema 1.0 to 1.5), is read as a run. It does not contain its graders, so
nothing of it is graded again.

`changes.py` has the records and pairs the tasks of two runs, `comparison.py` computes what changed between two runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from sys import intern
from typing import Any, Literal, NamedTuple, overload

import msgspec
from msgspec.structs import replace as changed

from waza.analysis.changes import Attribution, Comparison, TaskPair, paired
from waza.analysis.comparison import compare
from waza.compact import CompactList, picked
from waza.errors import SpecError, UsageError
from waza.files.paths import SpecFolder
from waza.graders.base import GRADERS, Grader
from waza.model import JSON, Check, Grade, GradeStatus, Result, ResultStatus, Run, StoredSuite, Task, Trace
from waza.runner.grading import on_crash_of
from waza.runner.regrade import Judging, eval_of, from_run, regraded
from waza.runner.request import judge_for
from waza.runs.canaries import drift
from waza.runs.outcomes import KnownResults, TrialOutcome, outcome_of, outcomes_of
from waza.runs.partial import FILES, NOT_SELECTED, graded_alike, same_graders
from waza.runs.store import open_run
from waza.runs.tasks import TaskSummary, summarize_tasks
from waza.stats.difference import MARGIN
from waza.stats.scores import mean
from waza.suites.graders import load_grader
from waza.suites.judges import judge_as_data, jurors_of, refuse_untrusted_hosts
from waza.suites.load import load_spec
from waza.suites.shapes import ConfigShape
from waza.suites.suite import EvalSpec, grader_as_data
from waza.traces.base import Item
from waza.traces.fields import amount, mapping, mappings, text
from waza.traces.waza_results import WazaResultsReader


@dataclass(frozen=True)
class ComparisonMode:
    """How two runs are compared."""

    on: Literal["pass", "score"] = "pass"
    margin: float = MARGIN
    these_tasks: bool = False
    ask_judge: bool = False
    """Whether a judge may be asked about traces that it has not judged by these rubrics."""
    trust: bool = False
    """Whether Python of the suite's folder may be imported, though the user did not trust it permanently."""
    as_graded: bool = False
    """Compare the grades as they are, though the graders differ."""
    anytime: bool = False
    """Whether the verdict must stay valid however often one looks while a run grows."""


class ComparableRuns(NamedTuple):
    """Two runs by the same graders."""

    before: Run
    after: Run
    attribution: Attribution | None
    """Where the graders differ: how much of the change comes from them."""
    warnings: list[str]


def compare_runs(before: Path, after: Path, how: ComparisonMode) -> Comparison:
    """Return what changed between two stored runs; raise UsageError where they cannot be compared."""
    opened = open_both(before, after, how)
    found = compare(
        opened.before,
        opened.after,
        on=how.on,
        margin=how.margin,
        these_tasks=how.these_tasks,
        anytime=how.anytime,
    )
    warnings = [*opened.warnings, *drift(opened.before, opened.after)]
    warnings += [] if how.anytime else extended(opened.before, opened.after)
    return changed(found, attribution=opened.attribution, warnings=warnings)


def extended(*runs: Run) -> list[str]:
    """Return a warning for each run that got further trials after it had been complete."""
    return [
        f"run {run.id} got {run.extended} further trials after it was complete: looking again after each extension "
        f"finds a difference by chance in more than 5 %; `waza compare --anytime` stays valid"
        for run in runs
        if run.extended
    ]


def open_both(before: Path, after: Path, how: ComparisonMode, *, with_triggers: bool = False) -> ComparableRuns:
    """Return two stored runs by the same graders; raise UsageError where that cannot be.

    They need a task in common, or with `with_triggers` trigger tests.
    """
    one, other = open_run_or_file(before), open_run_or_file(after)
    pairs = paired(one, other).pairs
    has_triggers = bool(one.triggers and other.triggers)
    if not pairs and not (with_triggers and has_triggers):
        fact = f"runs {one.id} and {other.id} have no graded task in common"
        if has_triggers:
            raise UsageError(f"{fact}; their trigger tests are compared by `waza gate {other.id} --against {one.id}`")
        raise UsageError(f"{fact}; `waza show` lists their tasks")
    warnings = [f"run {run.id} is not complete: trials are missing" for run in (one, other) if not run.complete]
    warnings += [f"run {run.id} is {run.integrity}" for run in (one, other) if run.integrity]
    if ungraded := [run.id for run in (one, other) if run.suite.graders is None]:
        warnings.append(
            f"{' and '.join(ungraded)}: a results.json does not say by which graders; they are taken as equal"
        )
    differing = [] if ungraded else graded_differently(one, other, pairs)
    if differing and not how.as_graded:
        return ComparableRuns(*_same_graders(one, other, differing, how), warnings)
    if differing:
        warnings.append(f"the graders of {some(differing)} differ between the runs: part of the change may be theirs")
    return ComparableRuns(one, other, None, warnings)


def _same_graders(before: Run, after: Run, tasks: list[str], how: ComparisonMode) -> tuple[Run, Run, Attribution]:
    """Return both runs by the graders of one of them, the later one's if possible, and the attribution."""
    refusals: list[str] = []
    for graders_of, graded in ((after, before), (before, after)):
        try:
            spec = suite_of(graders_of, tasks, how)
        except (SpecError, UsageError) as refusal:
            refusals.append(str(refusal))
            continue
        judge = judge_for(spec) if spec.judged else None
        again = changed(graded, results=GradedAgain(graded, spec, Judging(judge)))
        if graded is before:
            return again, after, _attributed(before, again, after, tasks, "before")
        return before, again, _attributed(before, again, after, tasks, "after")
    raise UsageError(
        f"the graders of {some(tasks)} differ between the runs, and the traces of neither can be graded by the "
        f"other's: {refusals[0]}. Compare the grades as they are with --as-graded"
    )


def _attributed(
    before: Run, again: Run, after: Run, tasks: list[str], graded: Literal["before", "after"]
) -> Attribution:
    """Return where the change comes from, over the tasks that are decided in all three."""
    middle = {
        intern(task.id): (_rate(task), task.score.weighted)
        for task in summarize_tasks(again)
        if task.status != "skipped"
    }
    rates: list[Split] = []
    scores: list[Split] = []
    for one, other in paired(before, after).pairs:
        if one.id in middle:
            rate, score = middle[one.id]
            rates.append((_rate(one), rate, _rate(other)))
            scores.append((one.score.weighted, score, other.score.weighted))
    passing, scoring = _split(rates, graded), _split(scores, graded)
    return Attribution(
        tasks=tasks,
        graded=graded,
        pass_total=passing[0] or 0.0,
        pass_agent=passing[1] or 0.0,
        pass_graders=passing[2] or 0.0,
        score_total=scoring[0],
        score_agent=scoring[1],
        score_graders=scoring[2],
    )


Split = tuple[float | None, float | None, float | None]


def _split(numbers: Sequence[Split], graded: str) -> Split:
    """Return the mean change, the agent's part and the graders'; each row is before, graded again, after."""
    whole = [(b, a, c) for b, a, c in numbers if b is not None and a is not None and c is not None]
    first = mean([again - before for before, again, _ in whole])
    second = mean([after - again for _, again, after in whole])
    total = mean([after - before for before, _, after in whole])
    return (total, second, first) if graded == "before" else (total, first, second)


def _rate(task: TaskSummary) -> float | None:
    return task.passed / (task.passed + task.failed) if task.passed + task.failed else None


def graded_differently(before: Run, after: Run, pairs: Sequence[TaskPair]) -> list[str]:
    """Return the paired tasks whose graders, rubrics or judge differ."""
    suites = before.suite, after.suite
    ids = (intern(pair.before.id) for pair in pairs)
    return [task_id for task_id in ids if not graded_alike(*suites, task_id)]


def suite_of(run: Run, tasks: list[str], how: ComparisonMode) -> EvalSpec:
    """Return a suite with the graders a run was graded by; raise SpecError or UsageError without them."""
    try:
        spec = load_spec(eval_of(run, Path(run.folder)), trust=how.trust)
    except SpecError as error:
        return _from_stored(run, tasks, str(error).splitlines()[0])
    chosen, stored = set(tasks), run.suite
    places = [place for place, task in enumerate(spec.tasks) if task.id in chosen]
    if len(places) < len(chosen) or any(not _is_as_stored(spec, stored, task_id) for task_id in tasks):
        return _from_stored(run, tasks, f"the suite changed since run {run.id}")
    spec = replace(spec, tasks=picked(spec.tasks, places))
    if spec.judged:
        _refuse_other_judge(spec, run, how)
    return spec


def _is_as_stored(spec: EvalSpec, stored: StoredSuite, task_id: str) -> bool:
    if spec.judged.get(task_id) != stored.judged.get(task_id):
        return False
    now = [grader_as_data(grader) for grader in spec.graders[task_id]]
    return same_graders(now, stored.graders_of(task_id))


def _refuse_other_judge(spec: EvalSpec, run: Run, how: ComparisonMode) -> None:
    if not how.ask_judge:
        raise UsageError(f"a judge would be asked again about {some(spec.judged)}; allow that with --ask-judge")
    judge = judge_for(spec)
    if judge is None or judge_as_data(judge) != run.suite.judge:
        raise UsageError(f"the judge is no longer the one of run {run.id}")
    own = [juror.judge for juror in jurors_of(spec.asking) if juror.judge is not None]
    refuse_untrusted_hosts([judge, *own], spec.folder)


def _from_stored(run: Run, tasks: list[str], why: str) -> EvalSpec:
    """Return a suite made of the graders that a run folder remembers: those that read nothing but the trace.

    A run folder may come from anywhere, so nothing in it is ever started: no program, no code of a project.
    """
    judged, stored = run.suite.judged, run.suite.graders or {}
    graders: dict[str, list[Grader]] = {}
    for task_id in tasks:
        if task_id in judged or task_id not in stored:
            raise UsageError(f"{why}, and the graders of {task_id} cannot be taken from the run folder")
        graders[task_id] = [_stored_grader(entry, task_id, why) for entry in stored[task_id]]
    named = [Task(id=task_id, prompt="") for task_id in tasks]
    config = ConfigShape(on_agent_crash=on_crash_of(run))
    return EvalSpec(file=Path(), folder=SpecFolder(), name=run.name, config=config, tasks=named, graders=graders)


def _stored_grader(entry: dict[str, JSON], task_id: str, why: str) -> Grader:
    try:
        grader = None if _needs_more(entry) else load_grader(entry)
    except SpecError:
        grader = None
    if grader is None or grader.asks() is not None or grader_as_data(grader) != entry:
        raise UsageError(f"{why}, and grader '{entry.get('name')}' of {task_id} cannot be taken from the run folder")
    return grader


def _needs_more(entry: dict[str, JSON]) -> bool:
    """Return whether a grader starts a program or reads files of the suite: a run folder alone is not enough for it."""
    names_file = FILES in entry or "schema_file" in (entry.get("config") or {})
    if names_file or "source" in entry:
        return True
    # The class decides, not the facts in the run folder, which may come from anywhere.
    kind = str(entry.get("type"))
    if not GRADERS.knows(kind):
        return False
    cls, config = GRADERS.load(kind), entry.get("config") or {}
    if cls.part_keys:
        found = [config.get(key) for key in cls.part_keys]
        parts = [part for each in found for part in (each if isinstance(each, list) else [each])]
        return any(_needs_more(part) for part in parts if isinstance(part, dict))
    return bool(cls.needs_more_than_trace)


class GradedAgain(KnownResults):
    """The results of a run with other grades where a suite has other graders; traces stay on the disk."""

    def __init__(self, run: Run, spec: EvalSpec, judging: Judging) -> None:
        self._stored = run.results
        self._grades: CompactList[tuple[list[Grade], ResultStatus, str]] = CompactList()
        self._graded_at: dict[int, int] = {}
        """By the place of a result: where its new grades are."""
        self.outcomes = CompactList(self._outcomes(run, spec, judging), TrialOutcome)

    def _outcomes(self, run: Run, spec: EvalSpec, judging: Judging) -> Iterator[TrialOutcome]:
        """Yield the outcome of each result, in their order; keep the new grades of those that are graded again."""
        known = {task.id for task in spec.tasks}
        again = regraded(from_run(run, spec), spec, judging)  # in the order of the results
        for place, old in enumerate(outcomes_of(run.results)):
            result = next(again) if old.task_id in known else None
            if result is None or not result.grades:
                yield old
                continue
            self._graded_at[place] = len(self._grades)
            self._grades.append((result.grades, result.status, result.reason))
            yield changed(outcome_of(result), start_ms=old.start_ms, duration_ms=old.duration_ms)

    def __len__(self) -> int:
        return len(self._stored)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> list[Result]: ...
    def __getitem__(self, index: int | slice) -> Result | list[Result]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        return self._with_grades(index, self._stored[index])

    def __iter__(self) -> Iterator[Result]:
        return (self._with_grades(place, result) for place, result in enumerate(self._stored))

    def _with_grades(self, place: int, result: Result) -> Result:
        if place not in self._graded_at:
            return result
        grades, status, reason = self._grades[self._graded_at[place]]
        return changed(result, grades=grades, status=status, reason=reason)


def some(words: Iterable[str]) -> str:
    """Return the first words of a list, and how many more there are."""
    listed = list(words)
    return ", ".join(listed[:5]) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")


STATUSES: dict[str, ResultStatus] = {"passed": "passed", "failed": "failed", "error": "error", "skipped": "skipped"}


def open_run_or_file(path: Path) -> Run:
    """Return the run in a folder, or the run that a results.json describes; else raise UsageError or StoreError."""
    return open_run(path) if path.is_dir() else read_results(path)


def read_results(path: Path) -> Run:
    """Return a run from its results.json; raise UsageError when the file is none."""
    try:
        tree = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: is not a results.json: {error}") from None
    if not isinstance(tree, dict) or not WazaResultsReader.recognises(tree):
        raise UsageError(f"{path}: is not a results.json: it has no list of tasks with their runs")
    config, tasks = mapping(tree.get("config")), mappings(tree.get("tasks"))
    return Run(
        id=text(tree.get("eval_id")) or path.name,
        name=text(tree.get("eval_name")),
        started_at=text(tree.get("timestamp")),
        engine=text(config.get("engine_type")),
        model=text(config.get("model_id")),
        skill=text(tree.get("skill")),
        spec={"tasks": [_task(task) for task in tasks]} | _not_selected(tree),
        results=list(_results(tree, tasks)),
        complete=tree.get("complete") is not False,
    )


def _task(task: Item) -> dict[str, Any]:
    tags = [tag for tag in task.get("tags") or [] if isinstance(tag, str)]
    name = text(task.get("display_name"))
    return {"id": text(task.get("test_id")), "name": name, "tags": tags, "golden": task.get("golden") is True}


def _not_selected(tree: Item) -> dict[str, Any]:
    found = mapping(mapping(tree.get("metadata")).get(NOT_SELECTED))
    if not found:
        return {}
    others = mappings(found.get("tasks"))
    tasks = [task | {"test_id": task.get("id"), "display_name": task.get("name")} for task in others]
    return {NOT_SELECTED: {"tasks": list(map(_task, tasks)), "trigger_tests": found.get("trigger_tests") is True}}


def _results(tree: Item, tasks: list[Item]) -> Iterator[Result]:
    reader = WazaResultsReader()
    reader.feed(tree)
    traces = iter(reader.traces())
    for task in tasks:
        for number, run in enumerate(mappings(task.get("runs")), 1):
            yield _result(text(task.get("test_id")), number, run, next(traces))


def _result(task_id: str, number: int, run: Item, trace: Trace) -> Result:
    grades = [_grade(grade) for grade in mappings(run.get("grades"))]
    if "grades" not in run:
        grades = [_grade({"name": name} | entry) for name, entry in mapping(run.get("validations")).items()]
    return Result(
        task_id=task_id,
        trial=number,
        status=STATUSES.get(text(run.get("status")), "error"),
        trace=trace,
        grades=grades,
        reason=text(run.get("reason")),
        started_at=text(run.get("started_at")),
        duration_ms=float(amount(run.get("total_duration_ms")) or amount(run.get("duration_ms")) or 0),
        grader_duration_ms=amount(run.get("grader_duration_ms")),
        judge_duration_ms=amount(run.get("judge_duration_ms")),
    )


def _grade(grade: Item) -> Grade:
    stated = grade.get("status")
    status: GradeStatus = (
        stated if stated in ("passed", "failed", "error") else "passed" if grade.get("passed") else "failed"
    )
    score, weight = amount(grade.get("score")), amount(grade.get("weight"))
    return Grade(
        name=text(grade.get("name")) or text(grade.get("identifier")),
        type=text(grade.get("type")),
        status=status if score is not None and 0 <= score <= 1 else "error",
        score=float(score) if score is not None and 0 <= score <= 1 else 0.0,
        feedback=text(grade.get("feedback")),
        weight=1.0 if weight is None else float(weight),
        checks=[_check(check) for check in mappings(grade.get("checks"))],
        details=mapping(grade.get("details")),
    )


def _check(check: Item) -> Check:
    ok = check.get("ok")
    return Check(
        ok if isinstance(ok, bool) else None,
        text(check.get("claim")),
        text(check.get("failure")),
        check.get("expected"),
        check.get("actual"),
    )
