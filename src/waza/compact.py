"""Lists and mappings of thousands of similar entries in little memory: blocks of them are packed, large ones on disk.

A suite of 100,000 tasks is read, run and shown with these: its tasks, what is stored of them, their outcomes and
summaries. Entries are pickled, so whatever is put in comes out equal, but it is another object each time: nobody may
change an entry, or ask for its `id`.
"""

from __future__ import annotations

import gc
import pickle
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, ValuesView
from contextlib import contextmanager
from hashlib import blake2b
from sys import intern
from tempfile import TemporaryFile
from threading import Lock
from typing import IO, Any, Generic, NamedTuple, TypeVar, overload

import msgspec

T = TypeVar("T")
KEPT = 2_048
"""So many entries stay objects: a suite of the usual size pays nothing for those of 100,000 tasks."""
BLOCK = 128
"""So many of the others are packed together."""
MOST_IN_MEMORY = 1 << 20
"""So many bytes of blocks stay in memory; the blocks after them go to a file."""
_RECENT = 4
"""So many unpacked blocks are remembered: as many trials run side by side."""


_RECORDS, _PICKLED = b"r", b"p"
_ENCODER = msgspec.msgpack.Encoder()


def _decoder(kind: Any) -> msgspec.msgpack.Decoder[list[Any]]:
    return msgspec.msgpack.Decoder(list[kind])


class _OnDisk(NamedTuple):
    """Where a block is in the file, and its hash: agents run as the same user, and may reach any file."""

    start: int
    size: int
    digest: bytes


class CompactList(Sequence[T]):
    """A list that only grows."""

    def __init__(self, entries: Iterable[T] = (), kind: type[T] | None = None) -> None:
        """`kind` is the class of its entries where they are records: these are packed faster than others."""
        self._decode = _decoder(kind).decode if kind is not None else None
        self._first: list[T] = []
        self._blocks: list[bytes | _OnDisk | list[T]] = []
        self._last: list[T] = []
        self._recent: tuple[tuple[int, list[T]], ...] = ()
        self._file: IO[bytes] | None = None
        self._lock = Lock()
        self._in_memory = self._on_disk = 0
        for entry in entries:
            self.append(entry)

    def append(self, entry: T) -> None:
        """Add an entry at the end."""
        if len(self._first) < KEPT:
            self._first.append(entry)
            return
        self._last.append(entry)
        if len(self._last) == BLOCK:
            self._blocks.append(self._packed(self._last))
            self._last = []

    def pick(self, places: Iterable[int]) -> CompactView[T]:
        """Return the entries at these places, in their order, as a list that holds none of them."""
        return CompactView(self, array("q", places))

    def at(self, places: Iterable[int]) -> Iterator[T]:
        """Yield the entries at these places; those of one block in a row cost little."""
        first, start, last = self._first, len(self._first), len(self._blocks)
        current, entries = -1, first
        for place in places:
            if place < start:
                yield first[place]
                continue
            number, within = divmod(place - start, BLOCK)
            if number != current:
                current, entries = number, self._block(number) if number < last else self._last
            yield entries[within]

    def __len__(self) -> int:
        return len(self._first) + len(self._blocks) * BLOCK + len(self._last)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = index if index >= 0 else index + len(self)
        if place < 0:
            raise IndexError(index)
        if place < len(self._first):
            return self._first[place]
        number, within = divmod(place - len(self._first), BLOCK)
        return (self._block(number) if number < len(self._blocks) else self._last)[within]

    def __iter__(self) -> Iterator[T]:
        yield from self._first
        for number in range(len(self._blocks)):
            yield from self._unpacked(number)
        yield from self._last

    def __eq__(self, other: object) -> bool:
        return _are_equal(self, other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)}>"

    def _packed(self, entries: list[T]) -> bytes | _OnDisk | list[T]:
        block = self._encoded(entries)
        if block is None:
            return entries
        if self._in_memory + len(block) <= MOST_IN_MEMORY:
            self._in_memory += len(block)
            return block
        try:
            return self._written(block)
        except OSError:
            return block  # a disk without space costs memory, not the run

    def _encoded(self, entries: list[T]) -> bytes | None:
        """Return a block; None of what cannot be packed."""
        if self._decode is not None:
            try:
                return zlib.compress(_RECORDS + _ENCODER.encode(entries), 1)
            except (TypeError, ValueError, OverflowError, RecursionError):
                pass  # half a surrogate pair, a number of a hundred digits
        try:
            return zlib.compress(_PICKLED + pickle.dumps(entries, pickle.HIGHEST_PROTOCOL), 1)
        except Exception:  # noqa: BLE001  what cannot be pickled says so in its own way
            return None

    def _written(self, block: bytes) -> _OnDisk:
        with self._lock:
            if self._file is None:
                self._file = TemporaryFile(buffering=0)  # noqa: SIM115  it is there as long as the list
            self._file.seek(self._on_disk)
            if self._file.write(block) < len(block):
                raise OSError("no space")
        self._on_disk += len(block)
        return _OnDisk(self._on_disk - len(block), len(block), blake2b(block, digest_size=16).digest())

    def _block(self, number: int) -> list[T]:
        for known, entries in self._recent:
            if known == number:
                return entries
        entries = self._unpacked(number)
        self._recent = ((number, entries), *self._recent[: _RECENT - 1])  # one assignment: threads may read too
        return entries

    def _unpacked(self, number: int) -> list[T]:
        block = self._blocks[number]
        if isinstance(block, list):
            return block
        if isinstance(block, _OnDisk):
            block = self._read(block)
        content = memoryview(zlib.decompress(block))
        entries: list[T]
        if self._decode is not None and content[:1] == _RECORDS:
            entries = self._decode(content[1:])
        else:
            entries = pickle.loads(content[1:])
        return entries

    def _read(self, place: _OnDisk) -> bytes:
        with self._lock:
            assert self._file is not None
            self._file.seek(place.start)
            block = self._file.read(place.size)
        if blake2b(block, digest_size=16).digest() != place.digest:
            raise OSError("a temporary file of this process was changed by another")
        return block


class CompactView(Sequence[T]):
    """Some entries of a compact list, in an order of their own."""

    def __init__(self, entries: CompactList[T], places: array[int]) -> None:
        self._entries = entries
        self._places = places

    def pick(self, places: Iterable[int]) -> CompactView[T]:
        """Return the entries at these places of this view."""
        return CompactView(self._entries, array("q", [self._places[place] for place in places]))

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._entries[place] for place in self._places[index]]
        return self._entries[self._places[index]]

    def __iter__(self) -> Iterator[T]:
        return self._entries.at(self._places)

    def __eq__(self, other: object) -> bool:
        return _are_equal(self, other)

    __hash__ = None  # type: ignore[assignment]


class CompactDict(Mapping[str, T], Generic[T]):
    """A mapping that only grows, as long as it shares its keys with no other."""

    def __init__(self, entries: Iterable[tuple[str, T]] = (), like: CompactDict[Any] | None = None) -> None:
        """`like` is another mapping that is complete; one with the same keys in the same order shares them with it."""
        self._places: dict[str, int] = {}
        self._values: CompactList[T] = CompactList()
        for key, value in entries:
            self.add(key, value)
        if like is not None and list(like._places.items()) == list(self._places.items()):
            self._places = like._places

    def add(self, key: str, value: T) -> None:
        """Add an entry; of two with one key the later counts."""
        self._places[intern(key)] = len(self._values)
        self._values.append(value)

    def __getitem__(self, key: str) -> T:
        return self._values[self._places[key]]

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def values(self) -> ValuesView[T]:
        """Return the values in order, read block by block."""
        return _Values(self)

    def __or__(self, other: Mapping[str, T]) -> CompactDict[T]:
        both = ((key, other.get(key, value)) for key, value in self.pairs())
        found = CompactDict(both)
        for key in other:
            if key not in self:
                found.add(key, other[key])
        return found

    def pairs(self) -> Iterator[tuple[str, T]]:
        """Yield every key with its value, in order."""
        return zip(self._places, self._values.at(self._places.values()), strict=True)


class _Values(ValuesView[T]):
    def __init__(self, mapping: CompactDict[T]) -> None:
        super().__init__(mapping)
        self._pairs = mapping.pairs

    def __iter__(self) -> Iterator[T]:
        return (value for _, value in self._pairs())


def picked(entries: Sequence[T], places: Iterable[int]) -> Sequence[T]:
    """Return the entries at these places, in their order; of a compact list as a compact one."""
    if isinstance(entries, CompactList | CompactView):
        return entries.pick(places)
    return [entries[place] for place in places]


def where(entries: Sequence[T], keeps: Callable[[T], bool]) -> Sequence[T]:
    """Return the entries that are kept, in order; of a compact list as a compact one."""
    return picked(entries, [place for place, entry in enumerate(entries) if keeps(entry)])


def ordered(entries: Sequence[T], key: Callable[[T], Any]) -> Sequence[T]:
    """Return the entries sorted by a key, as `sorted` does; of a compact list as a compact one."""
    keys = list(map(key, entries))
    return picked(entries, sorted(range(len(keys)), key=keys.__getitem__))


def _are_equal(one: Sequence[Any], other: object) -> bool:
    if not isinstance(other, list | CompactList | CompactView) or len(one) != len(other):
        return NotImplemented if not isinstance(other, list | CompactList | CompactView) else False
    return all(mine == theirs for mine, theirs in zip(one, other, strict=True))


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the collector run rarely: records have no cycles, and scanning all of them costs more than it frees."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 1_000)
    try:
        yield
    finally:
        gc.set_threshold(*before)
