"""The `replay` engine: an agent that did its work before; what was recorded is graded again."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from pydantic import PrivateAttr

from waza.engines._base import Engine, Room
from waza.engines._recordings import OneTrace, Recordings, read_recordings
from waza.errors import EngineError, Problem, SpecError, StoreError, TraceError
from waza.model import Task, Trace, Trial
from waza.sandbox.removal import clear
from waza.sandbox.snapshot import restore


class ReplayEngine(Engine):
    """Take recorded traces in place of an agent. Costs nothing.

    ```yaml
    config:
      executor: replay
      replay: runs/20260301-120000-1a2b
    ```

    The workspace of a stored run is laid out again; a trace in a file has none, and checks on files are undecided.
    """

    mocks = None

    replay: str
    """What was recorded, looked up beside the eval file, then at the project's root. A run folder. Or a folder with
    `<task-id>.json` or `<task-id>.<trial>.json`. Or a `.jsonl` file with a trace a line: the first line with a task's
    `task_id` (or with its prompt as `input`) is its first trial, and so on. Or, for a suite with one task, a trace."""

    _read: Recordings | None = PrivateAttr(default=None)

    def ready(self, tasks: Sequence[Task] = ()) -> None:
        """Read the traces; refuse what cannot be read, and one trace for several tasks."""
        try:
            is_one = isinstance(self._recordings(), OneTrace)
        except (ValueError, TraceError, StoreError) as error:
            raise SpecError(Problem(str(error), path="config.replay")) from None
        if is_one and len(tasks) > 1:
            fact = f"'{self.replay}' holds one trace, and there are {len(tasks)} tasks"
            hint = "give a .jsonl file with a `task_id` in each trace, or a folder with <task-id>.json"
            raise SpecError(Problem(f"{fact}; {hint}", path="config.replay"))

    async def run(self, trial: Trial, room: Room) -> Trace:
        """Return the recorded trace, with the recorded workspace in the room if there is one."""
        recording = self._recordings().find(trial.task, trial.number)
        if recording is None:
            raise EngineError(f"'{self.replay}' has no trace for task '{trial.task.id}', trial {trial.number}")
        if recording.trace.status == "error":
            reason = recording.trace.error or "it gives no reason"
            raise EngineError(f"the recorded agent could not run: {reason}", recorded=recording.trace)
        if recording.snapshot:
            try:
                clear(room.workspace)
                restore(recording.store, recording.snapshot, room.workspace)
            except StoreError as error:
                raise EngineError(f"task '{trial.task.id}', trial {trial.number}: {error}") from None
        return replace(recording.trace, engine=recording.trace.engine or "replay")

    def leaves_files(self, trial: Trial) -> bool:
        """Say whether a workspace was recorded with the trial."""
        recording = self._recordings().find(trial.task, trial.number)
        return recording is not None and recording.snapshot != ""

    def _recordings(self) -> Recordings:
        """Return the traces, which are read once."""
        if self._read is None:
            self._read = read_recordings(self.folder.find(self.replay))
        return self._read
