"""The graders a run was graded by, to be used on the traces of another run.

They come from the suite, if it still has them, or from the run folder. A run folder may come from anywhere, so nothing
in it is ever started: no program, no code of a project.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, overload

from msgspec.structs import replace as changed

from waza.analysis.changes import TaskPair
from waza.errors import SpecError, UsageError
from waza.files.paths import SpecFolder
from waza.graders.base import GRADERS, Grader
from waza.model import JSON, Grade, Result, ResultStatus, Run, Task
from waza.runner.grading import on_crash_of
from waza.runner.regrade import Judging, eval_of, from_run, regraded
from waza.runner.request import judge_for
from waza.runs.outcomes import KnownResults, outcome_of, outcomes_of
from waza.runs.partial import FILES, graded_alike, same_graders
from waza.stats.difference import MARGIN
from waza.suites.graders import load_grader
from waza.suites.judges import judge_as_data, jurors_of, refuse_untrusted_hosts
from waza.suites.load import load_spec
from waza.suites.shapes import ConfigShape
from waza.suites.suite import EvalSpec, grader_as_data


@dataclass(frozen=True)
class ComparisonMode:
    """How two runs are compared."""

    on: Literal["pass", "score"] = "pass"
    margin: float = MARGIN
    these_tasks: bool = False
    ask_judge: bool = False
    """Whether a judge may be asked about traces that it has not judged by these rubrics."""
    trust: bool = False
    """Whether Python of the suite's folder may be imported, though the user did not trust it for good."""
    as_graded: bool = False
    """Compare the grades as they are, though the graders differ."""


def graded_otherwise(before: Run, after: Run, pairs: Sequence[TaskPair]) -> list[str]:
    """Return the paired tasks whose graders, rubrics or judge differ."""
    ids = [pair.before.id for pair in pairs]
    return [task_id for task_id in ids if not graded_alike(before.spec, after.spec, task_id)]


def suite_of(run: Run, tasks: list[str], how: ComparisonMode) -> EvalSpec:
    """Return a suite with the graders a run was graded by; raise an error with a sentence when they are not there."""
    try:
        spec = load_spec(eval_of(run, Path(run.folder)), trust=how.trust)
    except SpecError as error:
        return _from_stored(run, tasks, str(error).splitlines()[0])
    known = {task.id for task in spec.tasks}
    gone = [task_id for task_id in tasks if task_id not in known]
    if gone or any(not _is_as_stored(spec, run, task_id) for task_id in tasks):
        return _from_stored(run, tasks, f"the suite changed since run {run.id}")
    spec = replace(spec, tasks=[task for task in spec.tasks if task.id in tasks])
    if spec.judged:
        _refuse_other_judge(spec, run, how)
    return spec


def _is_as_stored(spec: EvalSpec, run: Run, task_id: str) -> bool:
    if spec.judged.get(task_id) != (run.spec.get("judged") or {}).get(task_id):
        return False
    now = [grader_as_data(grader) for grader in spec.graders[task_id]]
    return same_graders(now, (run.spec.get("graders") or {}).get(task_id))


def _refuse_other_judge(spec: EvalSpec, run: Run, how: ComparisonMode) -> None:
    if not how.ask_judge:
        raise UsageError(f"a judge would be asked again about {some(spec.judged)}; allow that with --ask-judge")
    judge = judge_for(spec)
    if judge is None or judge_as_data(judge) != run.spec.get("judge"):
        raise UsageError(f"the judge is no longer the one of run {run.id}")
    own = [juror.judge for juror in jurors_of(spec.asking) if juror.judge is not None]
    refuse_untrusted_hosts([judge, *own], spec.folder)


def _from_stored(run: Run, tasks: list[str], why: str) -> EvalSpec:
    """Return a suite made of the graders that a run folder remembers: such as read the trace and nothing else.

    A run folder may come from anywhere, so nothing in it is ever started: no program, no code of a project.
    """
    stored = run.spec.get("graders") or {}
    graders: dict[str, list[Grader]] = {}
    for task_id in tasks:
        if task_id in (run.spec.get("judged") or {}) or task_id not in stored:
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
    return GRADERS.knows(kind) and bool(GRADERS.load(kind).needs_more_than_trace)


class GradedAgain(KnownResults):
    """The results of a run with other grades where a suite has other graders; traces stay on the disk."""

    def __init__(self, run: Run, spec: EvalSpec, judging: Judging) -> None:
        self._stored = run.results
        self.outcomes = list(outcomes_of(run.results))
        self._grades: dict[int, tuple[list[Grade], ResultStatus, str]] = {}
        places = {(outcome.task_id, outcome.trial): place for place, outcome in enumerate(self.outcomes)}
        for result in regraded(from_run(Path(run.folder), spec), spec, judging):
            place = places[result.task_id, result.trial]
            if result.grades:
                self._grades[place] = (result.grades, result.status, result.reason)
                fresh = outcome_of(result)
                kept = self.outcomes[place]
                self.outcomes[place] = changed(fresh, start_ms=kept.start_ms, duration_ms=kept.duration_ms)

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
        if place not in self._grades:
            return result
        grades, status, reason = self._grades[place]
        return changed(result, grades=grades, status=status, reason=reason)


def some(words: Iterable[str]) -> str:
    """Return the first words of a list, and how many more there are."""
    listed = list(words)
    return ", ".join(listed[:5]) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")
