"""Grade what is already there: a stored run or recorded traces. No agent is called."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from waza.errors import SpecError
from waza.judges._base import Judge
from waza.model import Grade, Result, Run
from waza.results.memory import rare_collections
from waza.results.store import RunFolder, open_run
from waza.runner.finish import finish
from waza.runner.grading import Asked, grade_trace, grades_of, grading_times, status_of
from waza.runner.judge_card_known import about_judges
from waza.runner.order import Order, redactor_for, runs_folder, stored_form
from waza.runner.recordings import Recorded
from waza.runner.waiting import wait_for
from waza.sandbox.snapshot import SnapshotFiles
from waza.spec.suite import EvalSpec

T = TypeVar("T")
BATCH, BATCH_S = 64, 0.5
"""So many results, or those of so many seconds, share one sync."""


def from_run(folder: Path, spec: EvalSpec) -> Iterator[Recorded]:
    """Yield the trials of a stored run whose tasks the suite still has."""
    known = {task.id for task in spec.tasks}
    for result in open_run(folder).results:
        if result.task_id in known:
            turns = result.turn_snapshots
            files = SnapshotFiles(folder / "artifacts", result.snapshot, turns) if result.snapshot else None
            yield Recorded(result.task_id, result.trial, result.trace, files, result.snapshot, turns)


class Judging(NamedTuple):
    """Whom graders ask while recorded trials are graded, and what they compare with."""

    judge: Judge | None = None
    baselines: Mapping[tuple[str, int], str] = {}
    """By task id and trial: the output of another run."""


ALONE = Judging()


def regrade(recorded: Recorded, spec: EvalSpec) -> Result:
    """Return the result of one recorded trial under the suite's graders, of which none asks a judge."""
    could_run = recorded.trace.status != "error"
    grades = grade_trace(recorded.trace, spec.graders[recorded.task_id], recorded.files) if could_run else []
    return _result(recorded, grades, spec)


def regraded(recorded: Iterable[Recorded], spec: EvalSpec, judging: Judging = ALONE) -> Iterator[Result]:
    """Yield the results of recorded trials; with a judge, several are asked about at once."""
    if judging.judge is None:
        yield from (regrade(item, spec) for item in recorded)
        return
    tasks = {task.id: task for task in spec.tasks}

    async def all_of(some: list[Recorded]) -> list[list[Grade]]:
        return await asyncio.gather(*(one(item) for item in some))

    async def one(item: Recorded) -> list[Grade]:
        if item.trace.status == "error":
            return []
        asked = Asked(judging.judge, tasks[item.task_id], spec.folder)
        return await grades_of(item.trace, spec.graders[item.task_id], item.files, asked)

    for some in handfuls((_compared(item, judging) for item in recorded), judging.judge.concurrent):
        for item, grades in zip(some, wait_for(all_of(some)), strict=True):
            yield _result(item, grades, spec)


def _compared(recorded: Recorded, judging: Judging) -> Recorded:
    """Return a recorded trial with the output it is compared with, where there is one."""
    other = judging.baselines.get((recorded.task_id, recorded.trial))
    return recorded._replace(trace=replace(recorded.trace, baseline_output=other)) if other else recorded


def handfuls(items: Iterator[T], size: int) -> Iterator[list[T]]:
    """Yield the items by so many at a time."""
    while some := list(islice(items, size)):
        yield some


def _result(recorded: Recorded, grades: list[Grade], spec: EvalSpec) -> Result:
    status, reason = status_of(recorded.trace, grades, spec.config.on_agent_crash)
    grader_ms, judge_ms = grading_times(spec.graders[recorded.task_id], grades)
    return Result(
        task_id=recorded.task_id,
        trial=recorded.trial,
        status=status,
        reason=reason,
        trace=recorded.trace,
        grades=grades,
        duration_ms=float(recorded.trace.duration_ms or 0),
        snapshot=recorded.snapshot,
        turn_snapshots=recorded.turn_snapshots,
        grader_duration_ms=grader_ms,
        judge_duration_ms=judge_ms,
    )


def take_over_artifacts(source: Path, target: Path) -> None:
    """Let a graded run keep the files of the run it was made from, without copying where links are possible."""
    if source.is_dir():
        shutil.copytree(source, target, copy_function=_link, dirs_exist_ok=True)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@rare_collections()
def graded(
    spec: EvalSpec,
    recorded: Iterable[Recorded],
    *,
    source: Path | None,
    engine: str,
    model: str = "",
    judging: Judging = ALONE,
    on_result: Callable[[Result], None] = lambda result: None,
    on_remark: Callable[[str], None] = lambda text: None,
) -> Run:
    """Grade recorded trials into a run folder of their own and return it; `source` is the run they come from.

    Results go to the journal and are dropped: recordings may be any number. A task of the suite without a recorded
    trial counts as not run. Trigger tests are taken over as they are: no grader of a suite looks at them.
    """
    redactor, _ = redactor_for(spec)
    spec = dataclasses.replace(spec, triggers=None)
    blank = stored_form(Order(spec=spec, engine=engine, model=model, judge=judging.judge), redactor)
    blank.spec["graded_from"] = source.name if source else "traces"
    blank.spec.update(redactor.tree(about_judges(spec, judging.judge)))
    asked = open_run(source) if source else None
    if asked and "triggers" in asked.spec:
        blank.spec["triggers"] = asked.spec["triggers"]
    with RunFolder.create(runs_folder(spec), blank) as folder:
        if asked and asked.triggers:
            folder.append(*(replace(result, fingerprint="") for result in asked.triggers))
        if source:
            take_over_artifacts(source / "artifacts", folder.artifacts)
        for batch in _batches(redactor.tree(result) for result in regraded(recorded, spec, judging)):
            folder.append(*batch)
            for result in batch:
                on_result(result)
        return finish(folder, "", on_remark)


def _batches(results: Iterable[Result]) -> Iterator[list[Result]]:
    """Yield results by the handful: they can be made again, so several may share one sync."""
    batch: list[Result] = []
    started = monotonic()
    for result in results:
        batch.append(result)
        if len(batch) == BATCH or monotonic() - started > BATCH_S:
            yield batch
            batch, started = [], monotonic()
    if batch:
        yield batch


def eval_of(run: Run, folder: Path, option: str = "--graders") -> Path:
    """Return the eval file the run in `folder` was made from; raise SpecError when it is not there any more.

    `option` is the caller's that names another one.
    """
    file = folder.resolve().parent / str(run.spec.get("file", ""))
    if not file.is_file():
        raise SpecError(f"the eval file of run {run.id} is not there any more; name one with {option}")
    return file
