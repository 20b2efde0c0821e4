"""Grade a stored run, or recordings of any agent, each with the task of a suite it belongs to. No agent is called."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from sys import intern
from time import monotonic
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from waza.compact import rare_collections
from waza.errors import SpecError, TraceError, UsageError
from waza.files.snapshot import SnapshotFiles
from waza.graders.base import Grader
from waza.judges.base import Judge
from waza.model import JSON, Attempt, Files, Grade, Result, Run, Task, Trace
from waza.process.concurrency import wait_for
from waza.runner.grading import GradingContext, grade_trace, grades_of, grading_times, status_of
from waza.runner.journal_writer import complete_results, finish
from waza.runner.judge_checks import about_judges
from waza.runner.request import RunRequest, redactor_for, runs_folder, stored_form
from waza.runner.resume import changes
from waza.runs.lazy_results import RunProgress
from waza.runs.outcomes import GRADED_FROM
from waza.runs.results_json import task_text
from waza.runs.store import JOURNAL, RUN, RunFolder, open_run, read_run
from waza.spending import Costs, metering
from waza.suites.suite import EvalSpec
from waza.traces.reading import Source, opened, read_found

T = TypeVar("T")
BATCH, BATCH_S = 64, 0.5
"""This many results, or those of this many seconds, share one sync."""


def from_run(stored: Path | Run, spec: EvalSpec) -> Iterator[Recorded]:
    """Yield the trials of a stored run, its folder or opened already, whose tasks the suite still has, in order."""
    known = {intern(task.id) for task in spec.tasks}
    run = stored if isinstance(stored, Run) else open_run(stored)
    folder = Path(run.folder)
    for result in run.results:
        if result.task_id in known:
            turns = result.turn_snapshots
            files = SnapshotFiles(folder / "artifacts", result.snapshot, turns) if result.snapshot else None
            yield Recorded(result.task_id, result.trial, result.trace, files, result.snapshot, turns)


class Judging(NamedTuple):
    """The judge of recorded trials, and the outputs to compare with."""

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
        context = GradingContext(judging.judge, tasks[item.task_id], spec.folder)
        return await grades_of(item.trace, spec.graders[item.task_id], item.files, context)

    for some in batches_of((_compared(item, judging) for item in recorded), judging.judge.concurrent):
        for item, grades in zip(some, wait_for(all_of(some)), strict=True):
            yield _result(item, grades, spec)


def _compared(recorded: Recorded, judging: Judging) -> Recorded:
    """Return a recorded trial with the output it is compared with, where there is one."""
    other = judging.baselines.get((recorded.task_id, recorded.trial))
    return recorded._replace(trace=replace(recorded.trace, baseline_output=other)) if other else recorded


def batches_of(items: Iterator[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of `size`."""
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


class GradedSource(NamedTuple):
    """Where recorded trials come from; of a stored run also its folder and its trigger tests."""

    engine: str = "recorded"
    model: str = ""
    folder: Path | None = None
    triggers: JSON = None
    """As the run's spec has them; None without any."""
    answers: Sequence[Result] = ()


def source_of(run: Run) -> GradedSource:
    """Return a stored run as the source of recorded trials."""
    return GradedSource(run.engine, run.model, Path(run.folder), run.spec.get("triggers"), list(run.triggers))


@rare_collections()
def graded(
    spec: EvalSpec,
    recorded: Iterable[Recorded],
    source: GradedSource,
    *,
    judging: Judging = ALONE,
    on_result: Callable[[Result], None] = lambda result: None,
    on_remark: Callable[[str], None] = lambda text: None,
) -> Run:
    """Grade recorded trials into a run folder of their own and return it.

    Results go to the journal and are dropped: recordings may be any number. A task of the suite without a recorded
    trial counts as not run. Trigger tests are taken over as they are: no grader of a suite grades them.
    """
    redactor, _ = redactor_for(spec)
    spec = dataclasses.replace(spec, triggers=None)
    blank = stored_form(RunRequest(spec=spec, engine=source.engine, model=source.model, judge=judging.judge), redactor)
    blank.spec[GRADED_FROM] = source.folder.name if source.folder else "traces"
    blank.spec.update(
        redactor.tree(about_judges(spec, judging.judge, probes=bool(judging.judge and judging.judge.key_variable)))
    )
    if source.triggers is not None:
        blank.spec["triggers"] = source.triggers
    with RunFolder.create(runs_folder(spec), blank) as folder:
        if source.answers:
            folder.append(*(replace(result, fingerprint="") for result in source.answers))
        if source.folder:
            take_over_artifacts(source.folder / "artifacts", folder.artifacts)
        progress = RunProgress(folder.run, task_text, is_whole=source.triggers is None)
        for batch in _batches(redactor.tree(result) for result in regraded(recorded, spec, judging)):
            for piece in folder.append(*batch):
                on_result(progress.add(piece))
        return finish(folder, "", on_remark, complete_results(progress, folder))


def _batches(results: Iterable[Result]) -> Iterator[list[Result]]:
    """Yield results in batches: they can be made again, so several may share one sync."""
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
    """Return the eval file the run in `folder` was made from; raise SpecError when it no longer exists.

    `option` is the caller's that names another one.
    """
    file = folder.resolve().parent / run.suite.file
    if not file.is_file():
        raise SpecError(f"the eval file of run {run.id} no longer exists; name one with {option}")
    return file


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
        for some in batches_of(lacking, judge.concurrent if judge else 1):
            for result in wait_for(fresh(some)):
                made_from = new["fingerprints"].get(result.task_id, "") if result.fingerprint else ""
                done = redactor.tree(replace(result, fingerprint=made_from))
                kept.append(done)
                on_result(done)
        if new != stored.spec:
            kept.respec(replace(stored, spec=new))
        return finish(kept, "", on_remark)


def _is_open(result: Result, spec: EvalSpec, new: dict[str, JSON]) -> bool:
    """Return whether a result lacks verdicts, or was made from something that changed since."""
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
    context = GradingContext(judge, task, spec.folder)
    with metering() as meter:
        found = await grades_of(result.trace, [graders[place] for place in places], files, context)
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
    now = stored_form(RunRequest(spec=spec, engine=stored.engine, model=stored.model, judge=judge)).spec
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
    return new | {"fingerprints": dict(stored.suite.fingerprints) | _only(now["fingerprints"], judged)}


def _only(fingerprints: dict[str, str], tasks: set[str]) -> dict[str, str]:
    return {task: value for task, value in fingerprints.items() if task in tasks}


def _has_verdict(result: Result, spec: EvalSpec) -> bool:
    graders = spec.graders.get(result.task_id, [])
    pairs = zip(result.grades, graders, strict=False)
    return any(grade.status != "error" and grader.asks() is not None for grade, grader in pairs)


def baselines_from(folder: Path) -> dict[tuple[str, int], str]:
    """Return the outputs of a stored run by task and trial; raise UsageError where it has none."""
    found = {
        (result.task_id, result.trial): result.trace.output
        for result in open_run(folder).results
        if result.trace.status == "success" and result.trace.output
    }
    if not found:
        raise UsageError(f"run {folder.name} has no output to compare with")
    return found


KINDS = (".json", ".jsonl", ".ndjson", ".eval")
"""Suffixes of the files that are read when a folder is named."""


class Recorded(NamedTuple):
    """A trace with the task it belongs to and the files the agent left."""

    task_id: str
    trial: int
    trace: Trace
    files: Files | None = None
    snapshot: str = ""
    turn_snapshots: dict[str, str] = {}


class Reading(NamedTuple):
    """Listeners to the reading of recordings."""

    on_remark: Callable[[str], None] = lambda text: None
    """What a recording lacks."""
    on_trouble: Callable[[str], None] = lambda text: None
    """What could not be read, or belongs to no task; the rest is graded all the same."""
    on_bytes: Callable[[int], None] = lambda count: None
    """The number of bytes read so far."""


def from_files(sources: Iterable[Source], spec: EvalSpec, reading: Reading) -> Iterator[Recorded]:
    """Yield the traces in recordings of any format, each with its task, one at a time."""
    tasks = Tasks(spec)
    trials: Counter[str] = Counter()
    before = 0
    for source in sources:
        name = str(source) if isinstance(source, (str, Path)) else "standard input"
        try:
            with opened(source) as file:
                for number, found in enumerate(read_found(file, name), 1):
                    place = f"{name} (trace {number})"
                    for note in found.notes:
                        reading.on_remark(f"{place}: {note}")
                    if file.seekable():
                        reading.on_bytes(before + file.tell())
                    if (task := tasks.of(found.trace)) is None:
                        reading.on_trouble(f"{place}: which task is this trace of? {tasks.hint}")
                        continue
                    trials[task.id] += 1
                    trace = replace(found.trace, extra={"recorded_in": place} | found.trace.extra)
                    yield Recorded(task.id, trials[task.id], trace)
                before += file.tell() if file.seekable() else 0
        except TraceError as error:
            message = str(error)
            reading.on_trouble(message if message.startswith(name) else f"{name}: {message}")


def recordings_in(path: Path) -> list[Path]:
    """Return the files below a folder that may hold recordings, sorted; run folders and hidden ones are left out."""
    found: list[Path] = []
    for folder, inner, files in os.walk(path):
        if {RUN, JOURNAL} <= set(files):
            inner.clear()
            continue
        inner[:] = [name for name in inner if not name.startswith(".")]
        found += [Path(folder, name) for name in files if Path(name).suffix in KINDS and not name.startswith(".")]
    return sorted(file for file in found if file.is_file())


class Tasks:
    """The tasks of a suite, to find the one a trace is of."""

    def __init__(self, spec: EvalSpec) -> None:
        self._only = spec.tasks[0] if len(spec.tasks) == 1 else None
        self._by_id = {task.id: task for task in spec.tasks}
        self._by_prompt: dict[str, list[Task]] = {}
        for task in spec.tasks:
            self._by_prompt.setdefault(task.prompt.strip(), []).append(task)

    @property
    def hint(self) -> str:
        """How to give a trace a task."""
        some = ", ".join(list(self._by_id)[:10])
        return f"add a 'task_id' to it, or choose one task with --task; tasks: {some}"

    def of(self, trace: Trace) -> Task | None:
        """Return the task a trace belongs to: the one it names, the only one, or the one with its prompt."""
        named = trace.extra.get("task_id") or trace.extra.get("id")
        if isinstance(named, str) and named in self._by_id:
            return self._by_id[named]
        fitting = self._by_prompt.get(trace.input.strip(), [])
        return self._only or (fitting[0] if len(fitting) == 1 else None)
