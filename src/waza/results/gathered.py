"""The results of a run while it is written: places, numbers and texts are kept at hand, so that its end reads none."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NamedTuple

from waza.errors import StoreError
from waza.model import Result, Run
from waza.results.folder import JOURNAL
from waza.results.frames import Piece
from waza.results.outcomes import outcome_of
from waza.results.records import read_record
from waza.results.stored import Found, StoredResults
from waza.results.tasks import TaskRule, TaskSummary

_BUFFER = 1 << 18
"""How much text is collected before it is written."""
_MOST_HELD = 1 << 22
"""How many bytes of text are held; the rest is written to a file."""
_MOST_PENDING = 1 << 26
"""How many bytes, as they stand in the journal, may wait for the other trials of their tasks."""


class Written(NamedTuple):
    """Where a text stands in a file."""

    start: int
    size: int


class Gathered(NamedTuple):
    """A task of which all is known: where its trials stand in the journal, its numbers and its text."""

    found: list[Found]
    summary: TaskSummary
    text: bytes | Written


class GatheredResults(StoredResults):
    """Stored results of a run of this process; its tasks are summarized, and their texts for a report made."""

    def __init__(self, journal: Path, gathered: Sequence[Gathered], file: IO[bytes]) -> None:
        super().__init__(journal, list(chain.from_iterable(entry.found for entry in gathered)))
        self.tasks = [entry.summary for entry in gathered]
        self._texts = [entry.text for entry in gathered]
        self._file = file

    def texts(self) -> Iterator[bytes]:
        """Yield the text of each task, in order."""
        self._file.flush()
        for text in self._texts:
            yield text if isinstance(text, bytes) else os.pread(self._file.fileno(), text.size, text.start)


class Gathering:
    """Takes each result as it was kept; a task is summarized and written as soon as its last trial is there.

    All this happens while agents still work. Where it cannot be done, the end of the run reads the journal.
    """

    def __init__(
        self, run: Run, text: Callable[[TaskSummary, Sequence[Result]], bytes], *, is_whole: bool = True
    ) -> None:
        self._run = run
        self._text = text
        self._rule = TaskRule.of(run)
        self._tasks = {str(task["id"]): task for task in run.spec.get("tasks") or []}
        self._pending: dict[str, dict[int, tuple[Found, Result]]] = {}
        self._waiting = 0
        self._gathered: dict[str, Gathered] = {}
        self._file = TemporaryFile(buffering=_BUFFER, dir=run.folder)  # noqa: SIM115  it lasts as long as the run
        self._held = self._size = 0
        self._is_whole = is_whole
        """Whether all results of the run come this way, and have found their place so far."""

    def add(self, piece: Piece) -> Result:
        """Return the result that stands in this piece of the journal, as whoever reads it will find it."""
        result = read_record(piece.payload or b"")
        if not isinstance(result, Result):
            raise StoreError(f"{self._run.folder}: a result was written that cannot be read; that is a mistake in waza")
        if self._is_whole and not self._note(piece, result):
            self._is_whole = False
            self._pending.clear()
        return result

    def _note(self, piece: Piece, result: Result) -> bool:
        """Say whether a result has its place among the tasks, and there is room for what waits."""
        task_id = result.task_id
        if task_id not in self._tasks or task_id in self._gathered:
            return False
        trials = self._pending.setdefault(task_id, {})
        trials[result.trial] = Found(piece.offset, len(piece.raw), outcome_of(result)), result
        self._waiting += len(piece.raw)
        return self._complete(task_id) if len(trials) >= self._rule.planned else self._waiting <= _MOST_PENDING

    def _complete(self, task_id: str) -> bool:
        """Summarize and write a task; say whether there was room on the disk."""
        trials = [trial for _, trial in sorted(self._pending.pop(task_id, {}).items())]
        self._waiting -= sum(found.length for found, _ in trials)
        summary = self._rule.summarize(self._tasks[task_id], [found.outcome for found, _ in trials])
        try:
            text = self._put(self._text(summary, [result for _, result in trials]))
        except OSError:
            return False
        self._gathered[task_id] = Gathered([found for found, _ in trials], summary, text)
        return True

    def _put(self, text: bytes) -> bytes | Written:
        """Return a text as it is held from now on; raise OSError when there is no room for it."""
        if self._held + len(text) <= _MOST_HELD:
            self._held += len(text)
            return text
        self._file.write(text)
        self._size += len(text)
        return Written(self._size - len(text), len(text))

    def results(self) -> GatheredResults | None:
        """Return every result in the spec's order; None when the journal has to be read for them."""
        if not self._is_whole or not all(self._complete(task) for task in self._tasks if task not in self._gathered):
            return None
        return GatheredResults(
            Path(self._run.folder) / JOURNAL, [self._gathered[task] for task in self._tasks], self._file
        )
