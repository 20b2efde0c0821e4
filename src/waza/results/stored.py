"""The results of a stored run, read from its journal when they are asked for: a run of any size fits in memory."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from pathlib import Path
from typing import NamedTuple, overload

from waza.compact import CompactList, CompactView
from waza.errors import StoreError
from waza.model import Result
from waza.results.disk import open_regular, why
from waza.results.frames import unframe
from waza.results.outcomes import KnownResults, Outcome
from waza.results.records import read_record


class Found(NamedTuple):
    """Where in a journal a result stands, and what counts of it."""

    offset: int
    length: int
    outcome: Outcome


class Places:
    """Where results are in a journal, and what counts of each, in the order in which they were found."""

    def __init__(self) -> None:
        self.offsets, self.lengths = array("q"), array("q")
        self.outcomes = CompactList(kind=Outcome)

    def append(self, found: Found) -> None:
        """Add a result."""
        self.offsets.append(found.offset)
        self.lengths.append(found.length)
        self.outcomes.append(found.outcome)

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, place: int) -> Found:
        return Found(self.offsets[place], self.lengths[place], self.outcomes[place])


class StoredResults(KnownResults):
    """A sequence of results that holds none of them; the journal must stay where it is."""

    def __init__(self, journal: Path, found: Places, order: Iterable[int]) -> None:
        """`order` are the places, among those found, of its results."""
        self.outcomes: CompactView[Outcome]
        self._journal = journal
        order = array("q", order)
        self._offsets = array("q", map(found.offsets.__getitem__, order))
        self._lengths = array("q", map(found.lengths.__getitem__, order))
        self.outcomes = found.outcomes.pick(order)

    def where(self, keeps: Callable[[Outcome], bool]) -> StoredResults:
        """Return those of the results that are kept."""
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
