"""Recordings of any agent, trace by trace, each with the task of a suite it belongs to."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from waza.errors import TraceError
from waza.model import Files, Task, Trace
from waza.runs.store import JOURNAL, RUN
from waza.suites.suite import EvalSpec
from waza.traces.reading import Source, opened, read_found

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
