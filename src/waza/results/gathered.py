"""The results of a run while it is written: places and numbers are kept at hand, so that its end reads none of them."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NamedTuple

from waza.errors import StoreError
from waza.model import Result, Run
from waza.results.folder import JOURNAL
from waza.results.frames import Piece
from waza.results.outcomes import outcome_of
from waza.results.records import read_record
from waza.results.store import in_order
from waza.results.stored import Found, StoredResults

_BUFFER = 1 << 18
"""How much text is collected before it is written."""


class Gathered(NamedTuple):
    """Where a result stands in the journal, and where its text stands."""

    found: Found
    start: int
    size: int


class GatheredResults(StoredResults):
    """Stored results of a run of this process; their texts for a report are written already."""

    def __init__(self, journal: Path, gathered: Sequence[Gathered], texts: IO[bytes]) -> None:
        super().__init__(journal, [entry.found for entry in gathered])
        self._texts = texts
        self._starts = array("q", [entry.start for entry in gathered])
        self._sizes = array("q", [entry.size for entry in gathered])

    def texts(self) -> Iterator[bytes]:
        """Yield the text of each result, in order."""
        self._texts.flush()
        for start, size in zip(self._starts, self._sizes, strict=True):
            yield os.pread(self._texts.fileno(), size, start)


class Gathering:
    """Takes each result as it was kept, notes its place and numbers, and writes its text while agents still work."""

    def __init__(self, run: Run, text: Callable[[Result], bytes]) -> None:
        self._run = run
        self._text = text
        self._gathered: dict[tuple[str, int], Gathered] = {}
        self._texts = TemporaryFile(buffering=_BUFFER, dir=run.folder)  # noqa: SIM115  it lasts as long as the run
        self._is_whole = True

    def add(self, piece: Piece) -> Result:
        """Return the result that stands in this piece of the journal, as whoever reads it will find it."""
        result = read_record(piece.payload or b"")
        if not isinstance(result, Result):
            raise StoreError(f"{self._run.folder}: a result was written that cannot be read; that is a mistake in waza")
        if self._is_whole:
            try:
                self._note(piece, result)
            except OSError:  # the disk is full: the end of the run reads the journal then
                self._is_whole = False
        return result

    def _note(self, piece: Piece, result: Result) -> None:
        text = self._text(result)
        start = self._texts.tell()
        self._texts.write(text)
        found = Found(piece.offset, len(piece.raw), outcome_of(result))
        self._gathered[result.task_id, result.trial] = Gathered(found, start, len(text))

    def results(self) -> GatheredResults | None:
        """Return every result in the spec's order; None when the journal has to be read for them."""
        if not self._is_whole:
            return None
        keys, _ = in_order(self._run, self._gathered)
        return GatheredResults(Path(self._run.folder) / JOURNAL, [self._gathered[key] for key in keys], self._texts)
