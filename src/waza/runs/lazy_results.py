"""The results of a run, stored or being written, read from its journal on access: a run of any size fits in memory."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from pathlib import Path
from sys import intern
from tempfile import SpooledTemporaryFile
from typing import NamedTuple, overload

from waza.compact import CompactList, CompactView
from waza.errors import StoreError
from waza.files.disk import open_regular, why
from waza.model import Result, Run
from waza.runs.folder import JOURNAL
from waza.runs.outcomes import KnownResults, TrialOutcome, outcome_of
from waza.runs.records import Piece, read_record, unframe
from waza.runs.tasks import TaskRule, TaskSummary


class StoredResult(NamedTuple):
    """The place of a result in a journal, and its outcome."""

    offset: int
    length: int
    outcome: TrialOutcome


class Places:
    """Where results are in a journal, and what counts of each, in the order in which they were found."""

    def __init__(self) -> None:
        self.offsets, self.lengths = array("q"), array("q")
        self.outcomes = CompactList(kind=TrialOutcome)

    def append(self, found: StoredResult) -> None:
        """Add a result."""
        self.offsets.append(found.offset)
        self.lengths.append(found.length)
        self.outcomes.append(found.outcome)

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, place: int) -> StoredResult:
        return StoredResult(self.offsets[place], self.lengths[place], self.outcomes[place])


class LazyResults(KnownResults):
    """A sequence that reads results from the journal on access; the journal must not be moved."""

    def __init__(self, journal: Path, found: Places, order: Iterable[int]) -> None:
        """`order` are the places, among those found, of its results."""
        self.outcomes: CompactView[TrialOutcome]
        self._journal = journal
        order = array("q", order)
        self._offsets = array("q", map(found.offsets.__getitem__, order))
        self._lengths = array("q", map(found.lengths.__getitem__, order))
        self.outcomes = found.outcomes.pick(order)

    def where(self, keeps: Callable[[TrialOutcome], bool]) -> LazyResults:
        """Return the results that satisfy a condition."""
        places = [place for place, outcome in enumerate(self.outcomes) if keeps(outcome)]
        some = copy(self)
        some._offsets = array("q", map(self._offsets.__getitem__, places))
        some._lengths = array("q", map(self._lengths.__getitem__, places))
        some.outcomes = self.outcomes.pick(places)
        return some

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> list[Result]: ...
    def __getitem__(self, index: int | slice) -> Result | list[Result]:
        if isinstance(index, slice):
            return list(self._at(zip(self._offsets[index], self._lengths[index], strict=True)))
        return next(self._at([(self._offsets[index], self._lengths[index])]))

    def __iter__(self) -> Iterator[Result]:
        return self._at(zip(self._offsets, self._lengths, strict=True))

    def _at(self, places: Iterable[tuple[int, int]]) -> Iterator[Result]:
        """Yield the results at these places; raise StoreError when one is not there any more."""
        try:
            with open_regular(self._journal) as file:
                for offset, length in places:
                    file.seek(offset)
                    yield self._result(file.read(length))
        except OSError as error:
            raise StoreError(f"{self._journal}: cannot be read: {why(error)}") from error

    def _result(self, line: bytes) -> Result:
        # What was saved out of a damaged line has another byte, or none, where its newline was.
        payload = unframe(line) or unframe(line[:-1] + b"\n") or unframe(line + b"\n")
        record = read_record(payload) if payload is not None else None
        if not isinstance(record, Result):
            raise StoreError(f"{self._journal}: was changed while it was read, or a newer waza wrote it")
        return record


_MOST_HELD = 1 << 22
"""How many bytes of text stay in memory; the rest is written to a file."""
_MOST_PENDING = 1 << 26
"""How many bytes, as in the journal, may wait for the other trials of their tasks."""


_NOT_YET = -1


class _Complete:
    """The tasks that are complete, in the order in which they became so: their trials, numbers and texts."""

    def __init__(self, folder: str) -> None:
        self.trials = Places()
        self.first_trials = array("q", [0])
        """Where among the trials those of each task begin."""
        self.summaries = CompactList(kind=TaskSummary)
        self.starts, self.sizes = array("q"), array("q")
        # It is there as long as the run; what does not fit in memory is written to the run's own disk.
        self.texts = SpooledTemporaryFile(_MOST_HELD, buffering=1 << 18, dir=folder)  # noqa: SIM115

    def add(self, found: Sequence[StoredResult], summary: TaskSummary, text: bytes) -> int:
        """Add a task and return its number; raise OSError when the disk is full."""
        start = sum(self.sizes[-1:]) + sum(self.starts[-1:])
        self.texts.seek(start)
        self.texts.write(text)
        self.starts.append(start)
        self.sizes.append(len(text))
        for trial in found:
            self.trials.append(trial)
        self.first_trials.append(len(self.trials))
        self.summaries.append(summary)
        return len(self.starts) - 1


class ProgressResults(LazyResults):
    """Stored results of a run of this process; its tasks are summarized, and their texts for a report made."""

    def __init__(self, journal: Path, complete: _Complete, order: array[int]) -> None:
        firsts = complete.first_trials
        trials = (trial for task in order for trial in range(firsts[task], firsts[task + 1]))
        super().__init__(journal, complete.trials, trials)
        self.tasks = complete.summaries.pick(order)
        self._complete, self._order = complete, order

    def texts(self) -> Iterator[bytes]:
        """Yield the text of each task, in order."""
        for task in self._order:
            self._complete.texts.seek(self._complete.starts[task])
            yield self._complete.texts.read(self._complete.sizes[task])


class RunProgress:
    """Receives each stored result; a task is summarized and written as soon as its last trial is there.

    All this happens while agents still work. Where it cannot be done, the end of the run reads the journal.
    """

    def __init__(
        self, run: Run, text: Callable[[TaskSummary, Sequence[Result]], bytes], *, is_whole: bool = True
    ) -> None:
        self._run = run
        self._text = text
        self._rule = TaskRule.of(run)
        self._tasks = run.suite.tasks
        self._places = {intern(str(task["id"])): place for place, task in enumerate(self._tasks)}
        self._pending: dict[str, dict[int, tuple[StoredResult, Result]]] = {}
        self._waiting = 0
        self._numbers = array("q", [_NOT_YET]) * len(self._tasks)
        """For each task its number among the complete ones."""
        self._complete_ones = _Complete(run.folder)
        self._is_whole = is_whole and len(self._places) == len(self._tasks)
        """Whether all results of the run come this way, and have found their place so far."""

    def add(self, piece: Piece) -> Result:
        """Return the result in this piece of the journal, as readers will get it."""
        result = read_record(piece.payload or b"")
        if not isinstance(result, Result):
            raise StoreError(f"{self._run.folder}: a result was written that cannot be read; that is a mistake in waza")
        if self._is_whole and not self._note(piece, result):
            self._is_whole = False
            self._pending.clear()
        return result

    def _note(self, piece: Piece, result: Result) -> bool:
        """Return whether a result belongs to the tasks, and the waiting ones fit into memory."""
        place = self._places.get(result.task_id)
        if place is None or self._numbers[place] != _NOT_YET:
            return False
        trials = self._pending.setdefault(result.task_id, {})
        trials[result.trial] = StoredResult(piece.offset, len(piece.raw), outcome_of(result)), result
        self._waiting += len(piece.raw)
        return self._complete(place) if len(trials) >= self._rule.planned else self._waiting <= _MOST_PENDING

    def _complete(self, place: int) -> bool:
        """Summarize and write a task; return whether the disk had space for it."""
        task = self._tasks[place]
        trials = [trial for _, trial in sorted(self._pending.pop(str(task["id"]), {}).items())]
        self._waiting -= sum(found.length for found, _ in trials)
        summary = self._rule.summarize(task, [found.outcome for found, _ in trials])
        try:
            text = self._text(summary, [result for _, result in trials])
            self._numbers[place] = self._complete_ones.add([found for found, _ in trials], summary, text)
        except OSError:
            return False
        return True

    def results(self) -> ProgressResults | None:
        """Return every result in the spec's order; None when the journal has to be read for them."""
        left = (place for place, number in enumerate(self._numbers) if number == _NOT_YET)
        if not self._is_whole or not all(map(self._complete, left)):
            return None
        return ProgressResults(Path(self._run.folder) / JOURNAL, self._complete_ones, self._numbers)
