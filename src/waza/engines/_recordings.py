"""Traces that were recorded before, found again by task and trial."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple, Protocol

from waza.errors import TraceError
from waza.model import Task, Trace

LINES = (".jsonl", ".ndjson")
"""How the names of files with one trace a line end."""


class Recording(NamedTuple):
    """One recorded trial."""

    trace: Trace
    snapshot: str = ""
    """The workspace as the agent left it, if it was kept: its name in `store`."""
    store: Path = Path()


class Recordings(Protocol):
    """Some recorded trials."""

    def find(self, task: Task, number: int) -> Recording | None:
        """Return what was recorded for a trial of a task, if anything was."""


def read_recordings(path: Path) -> Recordings:
    """Return the traces at `path`: a run folder, a folder of traces, a file with one, or one with a trace a line.

    Raises TraceError or StoreError when they cannot be read.
    """
    if path.is_dir():
        return RunFolder(path) if (path / "run.json").is_file() else TraceFolder(path)
    traces = _read(path)
    return OneTrace(traces[0]) if path.suffix not in LINES or _is_foreign(traces) else TraceLines(traces)


class RunFolder:
    """The trials of a stored run, with their workspaces."""

    def __init__(self, folder: Path) -> None:
        from waza.results.store import read_run  # checking a spec loads this file, and reads no runs

        self._results = {(result.task_id, result.trial): result for result in read_run(folder).results}
        self._store = folder / "artifacts"

    def find(self, task: Task, number: int) -> Recording | None:
        """Return the trial with this number."""
        result = self._results.get((task.id, number))
        return Recording(result.trace, result.snapshot, self._store) if result else None


class TraceFolder:
    """One trace a file: `<task-id>.<trial>.json`, or `<task-id>.json` for every trial that has none of its own."""

    def __init__(self, folder: Path) -> None:
        files = sorted(file for file in folder.iterdir() if file.suffix in (".json", *LINES) and file.is_file())
        self._traces = {file.stem: _read(file)[0] for file in files}
        if not self._traces:
            raise TraceError("it is neither a run folder nor a folder with traces named <task-id>.json")

    def find(self, task: Task, number: int) -> Recording | None:
        """Return the trial's own file, else the task's."""
        trace = self._traces.get(f"{task.id}.{number}") or self._traces.get(task.id)
        return Recording(trace) if trace else None


class TraceLines:
    """One trace a line, with `task_id` or `id` naming its task; without, it belongs to the task with that input."""

    def __init__(self, traces: list[Trace]) -> None:
        self._by_task: dict[str, list[Trace]] = defaultdict(list)
        self._by_input: dict[str, list[Trace]] = defaultdict(list)
        for trace in traces:
            identity = trace.extra.get("task_id", trace.extra.get("id"))
            if identity is None:
                self._by_input[trace.input].append(trace)
            else:
                self._by_task[str(identity)].append(trace)

    def find(self, task: Task, number: int) -> Recording | None:
        """Return the trace that is the task's first, second, … by the trial's number."""
        traces = self._by_task.get(task.id) or self._by_input.get(task.prompt) or []
        return Recording(traces[number - 1]) if number <= len(traces) else None


class OneTrace:
    """The trace of a suite with one task."""

    def __init__(self, trace: Trace) -> None:
        self._recording = Recording(trace)

    def find(self, task: Task, number: int) -> Recording | None:
        """Return the trace."""
        return self._recording


def _read(file: Path) -> list[Trace]:
    """Return the traces in a file of any format we know, by content."""
    from waza.traces._read import read_traces  # checking a spec loads this file, and reads no traces

    return list(read_traces(file))


def _is_foreign(traces: list[Trace]) -> bool:
    """Say whether this is one agent's own stream, which names no task: the only trace there is."""
    return len(traces) == 1 and not {"task_id", "id"} & set(traces[0].extra) and not traces[0].input
