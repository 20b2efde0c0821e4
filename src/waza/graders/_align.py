"""Which call goes with which expectation: the best assignment there is, in any order or in order.

Calls and expectations are numbers here; whether a call fits an expectation was decided before (`_match.py`).
Augmenting paths (any order) and dynamic programming (in order) are exact and need no library; loading scipy would
take longer than assigning thousands of calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, combinations, islice
from typing import Literal, NamedTuple

from waza.model import JSON, Check

Order = Literal["any", "in_order", "exact"]
Fits = Sequence[Sequence[int]]
"""For each expectation the calls that fit it, ascending."""
Path = tuple[int, int, "Path"] | None
"""A chain of (expectation, call), the last one first."""

MAX_GROUPS = 2_000
"""How many sets of expectations with `count` above one are tried where not all can be satisfied."""


class Need(NamedTuple):
    """How many calls an expectation needs, and how many it may take."""

    low: int = 1
    high: int = 1


class Alignment(NamedTuple):
    """Which calls each expectation took, and which nobody took."""

    taken: list[list[int]]
    extra: list[int]

    def misplaced(self, needs: Sequence[Need], fits: Fits) -> dict[int, int]:
        """Return for expectations that are short of calls one that fits but stands out of order, each its own."""
        free = dict.fromkeys(self.extra)
        found: dict[int, int] = {}
        for index, need in enumerate(needs):
            if len(self.taken[index]) < need.low:
                call = next((call for call in fits[index] if call in free), None)
                if call is not None:
                    found[index] = call
                    del free[call]
        return found


class AlignedChecks(list[Check]):
    """Checks, with the alignment they were made from."""

    __slots__ = ("alignment",)

    def __init__(self, checks: Sequence[Check], alignment: dict[str, JSON]) -> None:
        super().__init__(checks)
        self.alignment = alignment


def align(order: Order, needs: Sequence[Need], fits: Fits, calls: int) -> Alignment:
    """Return the assignment that satisfies the most expectations, and among those one that leaves few calls over."""
    if order == "any":
        taken = _any_order(needs, fits)
    else:
        taken = _first_come(needs, fits) or _in_order(needs, fits, calls)
    used = {call for group in taken for call in group}
    return Alignment(taken, [call for call in range(calls) if call not in used])


def certificate(order: Order, entries: list[JSON], extra: list[int], misplaced: dict[int, int]) -> dict[str, JSON]:
    """Return an alignment as data: an entry per expectation, then the calls nobody took, by their places from 0."""
    moved = set(misplaced.values())
    left = [call for call in extra if call not in moved]
    return {"order": order, "expectations": entries, "extra": left, "out_of_order": sorted(moved)}


def _any_order(needs: Sequence[Need], fits: Fits) -> list[list[int]]:
    """Satisfy as many expectations as possible, then give away what is left.

    Exact: expectations that need one call each are a matching; of those that need several, every set is tried,
    largest first, up to MAX_GROUPS.
    """
    single = [index for index, need in enumerate(needs) if need.low == 1]
    several = sorted((index for index, need in enumerate(needs) if need.low > 1), key=lambda index: needs[index].low)
    best: dict[int, int] = {}
    most = -1
    for group in islice(_groups(several, needs, fits), MAX_GROUPS):
        if most >= len(group) + len(single):
            break
        owner = _give(group, needs, fits)
        if owner is None:
            continue
        held = len(group) + sum(_take_one(index, fits, owner) for index in single)
        if held > most:
            best, most = owner, held
    _give_rest(needs, fits, best)
    taken: list[list[int]] = [[] for _ in needs]
    for call in sorted(best):
        taken[best[call]].append(call)
    return taken


def _groups(several: list[int], needs: Sequence[Need], fits: Fits) -> Iterator[tuple[int, ...]]:
    """Yield all of them, those a modest first try can satisfy, then every set, largest first."""
    yield tuple(several)
    modest: tuple[int, ...] = ()
    for index in several:
        if _give((*modest, index), needs, fits) is not None:
            modest = (*modest, index)
    yield from chain([modest], *(combinations(several, size) for size in range(len(several) - 1, -1, -1)))


def _give(group: Sequence[int], needs: Sequence[Need], fits: Fits) -> dict[int, int] | None:
    """Return the owner of each call when every expectation of the group gets all it needs, else None."""
    owner: dict[int, int] = {}
    for index in group:
        for _ in range(needs[index].low):
            if not _take_one(index, fits, owner):
                return None
    return owner


def _take_one(start: int, fits: Fits, owner: dict[int, int]) -> bool:
    """Give `start` one more call, moving others to other calls of theirs where that frees one; say if it worked."""
    reached: dict[int, int] = {}
    through: dict[int, int] = {start: -1}
    queue = [start]
    for index in queue:
        for call in fits[index]:
            if call in reached:
                continue
            reached[call] = index
            if call not in owner:
                while call >= 0:
                    owner[call] = reached[call]
                    call = through[reached[call]]
                return True
            if owner[call] not in through:
                through[owner[call]] = call
                queue.append(owner[call])
    return False


def _give_rest(needs: Sequence[Need], fits: Fits, owner: dict[int, int]) -> None:
    """Give the calls that are left to expectations that are short of calls, then to those that may take more."""
    has = Counter(owner.values())
    for index in sorted(range(len(needs)), key=lambda index: has[index] >= needs[index].low):
        room = min(needs[index].high, len(fits[index])) - has[index]
        free = [call for call in fits[index] if call not in owner][:room]
        owner.update(dict.fromkeys(free, index))
        for _ in range(room - len(free)):
            if not _take_one(index, fits, owner):
                break


def _first_come(needs: Sequence[Need], fits: Fits) -> list[list[int]] | None:
    """Return the in-order assignment where each takes its first calls, or None when that does not satisfy all."""
    taken: list[list[int]] = []
    last = -1
    for need, fit in zip(needs, fits, strict=True):
        group = [call for call in fit if call > last][: need.low]
        if len(group) < need.low or need.low < min(need.high, len(fit)):
            return None
        taken.append(group)
        last = group[-1] if group else last
    return taken


def _in_order(needs: Sequence[Need], fits: Fits, calls: int) -> list[list[int]]:
    """Return the in-order assignment that satisfies the most expectations and then takes the most calls.

    `best[i][t]` is the best way to be at expectation i with t calls taken for it: its worth and its path.
    Past `low` the number taken only matters where `high` can be reached.
    """
    bounded = [need.high < len(fit) for need, fit in zip(needs, fits, strict=True)]
    tops = [
        min(need.high if bound else need.low, len(fit)) for need, bound, fit in zip(needs, bounded, fits, strict=True)
    ]
    best: list[list[tuple[int, Path] | None]] = [[None] * (top + 1) for top in (*tops, 0)]
    best[0][0] = (0, None)
    wanted: list[list[int]] = [[] for _ in range(calls)]
    for index, fit in enumerate(fits):
        for call in fit:
            wanted[call].append(index)
    _move_on(best, needs, calls + 1)
    for call, indexes in enumerate(wanted):
        for index in indexes:
            _take(best[index], index, call, unbounded=not bounded[index])
        if indexes:
            _move_on(best, needs, calls + 1)
    taken: list[list[int]] = [[] for _ in needs]
    path = (best[-1][0] or (0, None))[1]
    while path is not None:
        index, call, path = path
        taken[index].append(call)
    return [group[::-1] for group in taken]


def _take(row: list[tuple[int, Path] | None], index: int, call: int, *, unbounded: bool) -> None:
    """Let each way to be at an expectation take the call, where that is worth more."""
    for count in range(len(row) - 1, -1, -1):
        cell = row[count]
        target = count + 1 if count + 1 < len(row) else count if unbounded else None
        if cell is None or target is None:
            continue
        other = row[target]
        if other is None or cell[0] + 1 > other[0]:
            row[target] = (cell[0] + 1, (index, call, cell[1]))


def _move_on(best: list[list[tuple[int, Path] | None]], needs: Sequence[Need], weight: int) -> None:
    """Let each way to be at an expectation go on to the next one; a satisfied one is worth `weight`."""
    for index, need in enumerate(needs):
        for count, cell in enumerate(best[index]):
            if cell is None:
                continue
            worth = cell[0] + (weight if count >= need.low else 0)
            other = best[index + 1][0]
            if other is None or worth > other[0]:
                best[index + 1][0] = (worth, cell[1])
