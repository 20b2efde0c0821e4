"""Verdicts that a stored run still lacks: asked for now, everything that was decided stays as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from waza.errors import UsageError
from waza.graders._base import Grader
from waza.judges._base import Judge
from waza.model import JSON, Attempt, Grade, Result, Run
from waza.results.store import RunFolder, read_run
from waza.runner.finish import finish
from waza.runner.grading import Asked, grades_of, grading_times, status_of
from waza.runner.order import Order, redactor_for, stored_form
from waza.runner.regrade import handfuls
from waza.runner.resume import changes
from waza.runner.waiting import wait_for
from waza.sandbox.snapshot import SnapshotFiles
from waza.spec.suite import EvalSpec
from waza.spending import Costs, metering


def ask_missing(
    spec: EvalSpec,
    folder: Path,
    judge: Judge | None,
    *,
    on_result: Callable[[Result], None] = lambda result: None,
    on_remark: Callable[[str], None] = lambda text: None,
) -> Run:
    """Ask for every verdict of a judge that the run in `folder` lacks, add it there, and return the run.

    Raises UsageError when graders changed since, or another judge has already decided some of it.
    """
    redactor, _ = redactor_for(spec)
    with RunFolder.open(folder) as kept:
        stored = read_run(folder)
        new = _new_spec(spec, stored, judge)

        async def fresh(some: list[Result]) -> list[Result]:
            return await asyncio.gather(*(_completed(result, spec, folder, judge) for result in some))

        lacking = iter([result for result in stored.results if _is_open(result, spec, new)])
        for some in handfuls(lacking, judge.concurrent if judge else 1):
            for result in wait_for(fresh(some)):
                made_from = new["fingerprints"].get(result.task_id, "") if result.fingerprint else ""
                done = redactor.tree(replace(result, fingerprint=made_from))
                kept.append(done)
                on_result(done)
        if new != stored.spec:
            kept.respec(replace(stored, spec=new))
        return finish(kept, "", on_remark)


def _is_open(result: Result, spec: EvalSpec, new: dict[str, JSON]) -> bool:
    """Say whether a result lacks verdicts, or was made from what is no longer so."""
    if result.task_id not in spec.graders:
        return False
    is_stale = bool(result.fingerprint) and result.fingerprint != new["fingerprints"].get(result.task_id)
    return is_stale or bool(_missing(result, spec.graders[result.task_id]))


def _missing(result: Result, graders: list[Grader]) -> list[int]:
    """Return the places of graders whose verdict, a judge's or a person's, is missing; all where there is none."""
    if result.trace.status == "error":
        return []
    if len(result.grades) != len(graders):
        return list(range(len(graders)))
    return [
        place
        for place, (grade, grader) in enumerate(zip(result.grades, graders, strict=True))
        if grade.status == "error"
        and ("human" in grade.details or (grader.asks() is not None and not grader.continues))
    ]


async def _completed(result: Result, spec: EvalSpec, folder: Path, judge: Judge | None) -> Result:
    """Return the result with the verdicts that were missing."""
    graders = spec.graders[result.task_id]
    places = _missing(result, graders)
    turns = result.turn_snapshots
    files = SnapshotFiles(folder / "artifacts", result.snapshot, turns) if result.snapshot else None
    task = next(task for task in spec.tasks if task.id == result.task_id)
    asked = Asked(judge, task, spec.folder)
    with metering() as meter:
        found = await grades_of(result.trace, [graders[place] for place in places], files, asked)
    grades: dict[int, Grade] = dict(enumerate(result.grades)) | dict(zip(places, found, strict=True))
    ordered = [grades[place] for place in sorted(grades)]
    status, reason = status_of(result.trace, ordered, spec.config.on_agent_crash)
    grader_ms, judge_ms = grading_times(graders, ordered)
    times = {"grader_duration_ms": grader_ms, "judge_duration_ms": judge_ms}
    # What was billed before stays with the result that this one replaces; it counts there.
    own = Attempt(status=status, reason=reason, costs=Costs(judge=meter.spending))
    return replace(result, grades=ordered, status=status, reason=reason, attempt_log=[own], **times)


def _new_spec(spec: EvalSpec, stored: Run, judge: Judge | None) -> dict[str, JSON]:
    """Return the stored spec with the judge as it is now; raise UsageError where verdicts would be mixed."""
    now = stored_form(Order(spec=spec, engine=stored.engine, model=stored.model, judge=judge)).spec
    changed = dict(changes(stored.spec, now))
    if regraded_tasks := [task for task, fields in changed.items() if "graders" in fields]:
        raise UsageError(
            f"the graders of {', '.join(regraded_tasks[:5])} changed since run {stored.id}; "
            f"grade all of it again with:  waza grade {stored.id}"
        )
    judged = {task for task, fields in changed.items() if "judge" in fields}
    decided = [result.task_id for result in stored.results if result.task_id in judged and _has_verdict(result, spec)]
    if decided:
        raise UsageError(
            f"run {stored.id} has verdicts of another judge (task {decided[0]}); "
            f"grade all of it by this one with:  waza grade {stored.id}"
        )
    if not judged:
        return stored.spec
    new = stored.spec | {key: now[key] for key in ("judge", "judged") if key in now}
    return new | {"fingerprints": (stored.spec.get("fingerprints") or {}) | _only(now["fingerprints"], judged)}


def _only(fingerprints: dict[str, str], tasks: set[str]) -> dict[str, str]:
    return {task: value for task, value in fingerprints.items() if task in tasks}


def _has_verdict(result: Result, spec: EvalSpec) -> bool:
    graders = spec.graders.get(result.task_id, [])
    pairs = zip(result.grades, graders, strict=False)
    return any(grade.status != "error" and grader.asks() is not None for grade, grader in pairs)
