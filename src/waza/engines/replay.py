"""The `replay` engine: recorded traces are graded again, no agent runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec.structs import replace
from pydantic import PrivateAttr

from waza.engines.base import Engine, TrialFolder
from waza.errors import EngineError, Problem, SpecError, StoreError, TraceError
from waza.files.snapshot import restore
from waza.files.tree import clear
from waza.model import Task, Trace, Trial


class ReplayEngine(Engine):
    """Use recorded traces instead of running an agent. Costs nothing.

    ```yaml
    config:
      executor: replay
      replay: runs/20260301-120000-1a2b
    ```

    The workspace of a stored run is restored; a trace in a file has none, so checks on files are undecided.
    """

    mocks = None

    replay: str
    """What was recorded, looked up next to the eval file, then at the project's root. A run folder. Or a folder with
    `<task-id>.json` or `<task-id>.<trial>.json`. Or a `.jsonl` file with a trace per line: the first line with a task's
    `task_id` (or with its prompt as `input`) is its first trial, and so on. Or, for a suite with one task, a trace."""

    _read: Recordings | None = PrivateAttr(default=None)

    def ready(self, tasks: Sequence[Task] = ()) -> None:
        """Read the traces; raise SpecError if they cannot be read, or if one trace is given for several tasks."""
        try:
            is_one = isinstance(self._recordings(), OneTrace)
        except (ValueError, TraceError, StoreError) as error:
            raise SpecError(Problem(str(error), path="config.replay")) from None
        if is_one and len(tasks) > 1:
            fact = f"'{self.replay}' is one trace, and there are {len(tasks)} tasks"
            hint = "give a .jsonl file with a `task_id` in each trace, or a folder with <task-id>.json"
            raise SpecError(Problem(f"{fact}; {hint}", path="config.replay"))

    async def run(self, trial: Trial, trial_folder: TrialFolder) -> Trace:
        """Return the recorded trace, and restore the recorded workspace if there is one."""
        recording = self._recordings().find(trial.task, trial.number)
        if recording is None:
            raise EngineError(f"'{self.replay}' has no trace for task '{trial.task.id}', trial {trial.number}")
        if recording.trace.status == "error":
            reason = recording.trace.error or "it gives no reason"
            raise EngineError(f"the recorded agent could not run: {reason}", recorded=recording.trace)
        if recording.snapshot:
            try:
                clear(trial_folder.workspace)
                restore(recording.store, recording.snapshot, trial_folder.workspace)
            except StoreError as error:
                raise EngineError(f"task '{trial.task.id}', trial {trial.number}: {error}") from None
        return replace(recording.trace, engine=recording.trace.engine or "replay")

    def leaves_files(self, trial: Trial) -> bool:
        """Return whether a workspace was recorded with the trial."""
        recording = self._recordings().find(trial.task, trial.number)
        return recording is not None and recording.snapshot != ""

    def _recordings(self) -> Recordings:
        """Return the traces; they are read once."""
        if self._read is None:
            self._read = read_recordings(self.folder.find(self.replay))
        return self._read


LINES = (".jsonl", ".ndjson")
"""Suffixes of files with one trace per line."""


class RecordedTrial(NamedTuple):
    """One recorded trial."""

    trace: Trace
    snapshot: str = ""
    """The workspace as the agent left it, if it was stored: its name in `store`."""
    store: Path = Path()


class Recordings(Protocol):
    """Recorded trials, found by task and trial number."""

    def find(self, task: Task, number: int) -> RecordedTrial | None:
        """Return the recording of a trial of a task; None if there is none."""


def read_recordings(path: Path) -> Recordings:
    """Return the traces at `path`: a run folder, a folder of traces, a file with one trace, or with one per line.

    Raises TraceError or StoreError when they cannot be read.
    """
    if path.is_dir():
        return RecordedRun(path) if (path / "run.json").is_file() else TraceFolder(path)
    traces = _read(path)
    return OneTrace(traces[0]) if path.suffix not in LINES or _is_foreign(traces) else TraceLines(traces)


class RecordedRun:
    """The trials of a stored run, with their workspaces."""

    def __init__(self, folder: Path) -> None:
        from waza.runs.store import read_run  # slow to load; checking a suite loads this file, but reads no runs

        self._results = {(result.task_id, result.trial): result for result in read_run(folder).results}
        self._store = folder / "artifacts"

    def find(self, task: Task, number: int) -> RecordedTrial | None:
        """Return the trial with this number."""
        result = self._results.get((task.id, number))
        return RecordedTrial(result.trace, result.snapshot, self._store) if result else None


class TraceFolder:
    """One trace per file: `<task-id>.<trial>.json`, or `<task-id>.json` for every trial that has none of its own."""

    def __init__(self, folder: Path) -> None:
        files = sorted(file for file in folder.iterdir() if file.suffix in (".json", *LINES) and file.is_file())
        self._traces = {file.stem: _read(file)[0] for file in files}
        if not self._traces:
            raise TraceError("it is neither a run folder nor a folder with traces named <task-id>.json")

    def find(self, task: Task, number: int) -> RecordedTrial | None:
        """Return the trial's own file, else the task's."""
        trace = self._traces.get(f"{task.id}.{number}") or self._traces.get(task.id)
        return RecordedTrial(trace) if trace else None


class TraceLines:
    """One trace per line, with `task_id` or `id` naming its task; without, it belongs to the task with that input."""

    def __init__(self, traces: list[Trace]) -> None:
        self._by_task: dict[str, list[Trace]] = defaultdict(list)
        self._by_input: dict[str, list[Trace]] = defaultdict(list)
        for trace in traces:
            identity = trace.extra.get("task_id", trace.extra.get("id"))
            if identity is None:
                self._by_input[trace.input].append(trace)
            else:
                self._by_task[str(identity)].append(trace)

    def find(self, task: Task, number: int) -> RecordedTrial | None:
        """Return the trace that is the task's first, second, … by the trial's number."""
        traces = self._by_task.get(task.id) or self._by_input.get(task.prompt) or []
        return RecordedTrial(traces[number - 1]) if number <= len(traces) else None


class OneTrace:
    """The trace of a suite with one task."""

    def __init__(self, trace: Trace) -> None:
        self._recording = RecordedTrial(trace)

    def find(self, task: Task, number: int) -> RecordedTrial | None:
        """Return the trace."""
        return self._recording


def _read(file: Path) -> list[Trace]:
    """Return the traces in a file of any known format, recognised by content."""
    from waza.traces.reading import read_traces  # slow to load; checking a suite loads this file, but reads no traces

    return list(read_traces(file))


def _is_foreign(traces: list[Trace]) -> bool:
    """Return whether this is a single recording of an agent, which names no task."""
    return len(traces) == 1 and not {"task_id", "id"} & set(traces[0].extra) and not traces[0].input
