"""Grade what is already there: a stored run or recorded traces. No agent is called."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from waza.errors import SpecError, UsageError
from waza.model import Files, Result, Run, Task, Trace
from waza.results.memory import rare_collections
from waza.results.store import RunFolder, read_run
from waza.runner.finish import finish
from waza.runner.grading import grade_trace, status_of
from waza.runner.order import Order, redactor_for, runs_folder, stored_form
from waza.sandbox.snapshot import SnapshotFiles
from waza.spec.suite import EvalSpec
from waza.traces._read import read_found
from waza.traces._source import Source


class Recorded(NamedTuple):
    """A trace with the task it belongs to and the files the agent left."""

    task_id: str
    trial: int
    trace: Trace
    files: Files | None = None
    snapshot: str = ""


def from_run(folder: Path, spec: EvalSpec) -> Iterator[Recorded]:
    """Yield the trials of a stored run whose tasks the suite still has."""
    known = {task.id for task in spec.tasks}
    for result in read_run(folder).results:
        if result.task_id in known:
            files = SnapshotFiles(folder / "artifacts", result.snapshot) if result.snapshot else None
            yield Recorded(result.task_id, result.trial, result.trace, files, result.snapshot)


def from_files(sources: Iterable[Source], spec: EvalSpec, on_remark: Callable[[str], None]) -> Iterator[Recorded]:
    """Yield the traces in recordings of any format, each with its task, one at a time.

    What a recording lacks is told to `on_remark`. Raises TraceError where one cannot be read.
    """
    seen: Counter[str] = Counter()
    for source in sources:
        name = str(source) if isinstance(source, (str, Path)) else "standard input"
        for number, found in enumerate(read_found(source), 1):
            task = _task_of(found.trace, spec, f"{name} (trace {number})")
            seen[task.id] += 1
            for note in found.notes:
                on_remark(f"{name} (trace {number}): {note}")
            yield Recorded(task.id, seen[task.id], found.trace)


def recordings_in(path: Path) -> list[Path]:
    """Return the files below a folder that may hold recordings, sorted."""
    kinds = (".json", ".jsonl", ".ndjson", ".eval")
    return sorted(file for file in path.rglob("*") if file.suffix in kinds and file.is_file())


def _task_of(trace: Trace, spec: EvalSpec, place: str) -> Task:
    """Return the task a trace belongs to: the one it names, the only one, or the one with its prompt."""
    by_id = {task.id: task for task in spec.tasks}
    named = trace.extra.get("task_id") or trace.extra.get("id")
    if isinstance(named, str) and named in by_id:
        return by_id[named]
    if len(spec.tasks) == 1:
        return spec.tasks[0]
    fitting = [task for task in spec.tasks if task.prompt.strip() == trace.input.strip()]
    if len(fitting) == 1:
        return fitting[0]
    hint = "add a 'task_id' to it, or choose one task with --task"
    raise UsageError(f"{place}: which task is this trace of? {hint}; tasks: {', '.join(list(by_id)[:10])}")


def regrade(recorded: Recorded, spec: EvalSpec) -> Result:
    """Return the result of one recorded trial under the suite's graders."""
    could_run = recorded.trace.status != "error"
    grades = grade_trace(recorded.trace, spec.graders[recorded.task_id], recorded.files) if could_run else []
    status, reason = status_of(recorded.trace, grades)
    return Result(
        task_id=recorded.task_id,
        trial=recorded.trial,
        status=status,
        reason=reason,
        trace=recorded.trace,
        grades=grades,
        duration_ms=float(recorded.trace.duration_ms or 0),
        snapshot=recorded.snapshot,
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
    on_result: Callable[[Result], None] = lambda result: None,
    on_remark: Callable[[str], None] = lambda text: None,
) -> Run:
    """Grade recorded trials into a run folder of their own and return it; `source` is the run they come from.

    A task of the suite without a recorded trial counts as not run.
    """
    redactor, _ = redactor_for(spec)
    blank = stored_form(Order(spec=spec, engine=engine, model=model), redactor)
    blank.spec["graded_from"] = source.name if source else "traces"
    with RunFolder.create(runs_folder(spec), blank) as folder:
        if source:
            take_over_artifacts(source / "artifacts", folder.artifacts)
        for item in recorded:
            result = redactor.tree(regrade(item, spec))
            folder.append(result)
            on_result(result)
        return finish(folder, "", on_remark)


def eval_of(run: Run, folder: Path) -> Path:
    """Return the eval file the run in `folder` was made from; raise SpecError when it is not there any more."""
    file = folder.resolve().parent / str(run.spec.get("file", ""))
    if not file.is_file():
        raise SpecError(f"the eval file of run {run.id} is not there any more; name one with --eval")
    return file
