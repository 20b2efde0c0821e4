"""The best assignment of calls to expectations, in any order or in order, and of names to expected names.

Calls and expectations are numbers here; whether a call fits an expectation was decided before (`_expected_calls.py`).
Augmenting paths (any order) and dynamic programming (in order) are exact and need no library; loading scipy would
take longer than assigning thousands of calls.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, combinations, islice
from typing import Literal, NamedTuple

from waza.model import JSON, Check

Order = Literal["any", "in_order", "exact"]
Fits = Sequence[Sequence[int]]
"""For each expectation the calls that fit it, ascending."""
Steps = tuple[int, int, int, "Steps"] | None
"""A chain of (expectation, first, end) runs of fitting calls, the last run first."""
Way = tuple[int, Steps]
"""What a way through the calls is worth, and its steps."""

MAX_GROUPS = 2_000
"""How many sets of expectations with `count` above one are tried where not all can be satisfied."""

MAX_SHARES = 64
"""How many shares of one turn's calls are tried for an entry that needs several."""


class Need(NamedTuple):
    """How many calls an expectation needs, and how many it may take."""

    low: int = 1
    high: int = 1


class Alignment(NamedTuple):
    """The calls assigned to each expectation, and those assigned to none."""

    taken: list[list[int]]
    extra: list[int]

    def misplaced(self, needs: Sequence[Need], fits: Fits) -> dict[int, int]:
        """Return for expectations that are short of calls one that fits but is out of order, each a different one."""
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

    __slots__ = ("alignment", "argument_calls")

    def __init__(
        self, checks: Sequence[Check], alignment: dict[str, JSON], argument_calls: dict[str, JSON] | None = None
    ) -> None:
        super().__init__(checks)
        self.alignment = alignment
        self.argument_calls = argument_calls or {}
        """Places of the calls to tools whose arguments are stated, and of the right ones; empty without any."""


def align(order: Order, needs: Sequence[Need], fits: Fits, calls: int) -> Alignment:
    """Return the assignment that satisfies the most expectations, and among those one that leaves few calls over."""
    if order == "any":
        taken = _any_order(needs, fits)
    else:
        taken = _first_come(needs, fits) or _in_order(needs, fits, calls)
    used = {call for group in taken for call in group}
    return Alignment(taken, [call for call in range(calls) if call not in used])


def align_turns(needs: Sequence[Need], fits: Fits, turns: Sequence[int]) -> Alignment:
    """Return the best assignment in which turns are in order and the calls of one turn are in any order.

    An entry listed before another one takes no call of a later turn. Each turn serves a run of neighbouring entries,
    so the best way through the turns is found turn by turn; an entry that needs several calls may span turns.
    """
    by_turn = sorted(range(len(turns)), key=turns.__getitem__)
    place = {call: index for index, call in enumerate(by_turn)}
    listed = [sorted(place[call] for call in fit) for fit in fits]
    taken = _first_come(needs, listed)
    if taken is not None:
        taken = [sorted(by_turn[index] for index in group) for group in taken]
    else:
        taken = _turn_by_turn(needs, fits, turns)
    used = {call for group in taken for call in group}
    return Alignment(taken, [call for call in range(len(turns)) if call not in used])


Route = tuple[int, int, tuple[tuple[int, tuple[int, ...]], ...]]
"""What a way through the turns is worth: entries satisfied, calls taken; and the calls that each entry took."""


def _turn_by_turn(needs: Sequence[Need], fits: Fits, turns: Sequence[int]) -> list[list[int]]:
    """Return the best assignment; the state after a turn is the entry reached and the calls that it has so far."""
    calls_of: dict[int, set[int]] = {}
    for call in {call for fit in fits for call in fit}:
        calls_of.setdefault(turns[call], set()).add(call)
    free = sum(need.low == 0 for need in needs)
    routes: dict[tuple[int, int], Route] = {(0, 0): (free, 0, ())}
    for turn in sorted(calls_of):
        after = dict(routes)
        inside = [[call for call in fit if call in calls_of[turn]] for fit in fits]
        useful = [index for index, fit in enumerate(inside) if fit]
        for (entry, has), route in routes.items():
            for last in [index for index in useful if index >= entry]:
                for block in _blocks(needs, inside, entry, has, last):
                    _extend(after, route, block, needs, entry, has)
        routes = after
    best = max(routes.values(), key=lambda route: route[:2])
    taken: list[list[int]] = [[] for _ in needs]
    for index, group in best[2]:
        taken[index] = sorted([*taken[index], *group])
    return taken


def _blocks(needs: Sequence[Need], inside: Fits, entry: int, has: int, last: int) -> Iterator[dict[int, list[int]]]:
    """Yield assignments of one turn's calls to the entries from `entry` to `last`.

    An entry that needs several calls may get the rest of them in a later turn, so its shares in this one are tried.
    """
    part = [needs[index] for index in range(entry, last + 1)]
    part[0] = Need(max(0, part[0].low - has), max(0, part[0].high - has))
    fits = inside[entry : last + 1]
    yield {entry + index: group for index, group in enumerate(_any_order(part, fits)) if group}
    if part[-1].low > 1:
        sizes = range(1, min(part[-1].low, len(fits[-1])) + 1)
        for own in islice(chain.from_iterable(combinations(fits[-1], size) for size in sizes), MAX_SHARES):
            rest = [[call for call in fit if call not in own] for fit in fits[:-1]]
            taken = [*_any_order(part[:-1], rest), list(own)]
            yield {entry + index: group for index, group in enumerate(taken) if group}


def _extend(
    routes: dict[tuple[int, int], Route],
    route: Route,
    block: dict[int, list[int]],
    needs: Sequence[Need],
    entry: int,
    has: int,
) -> None:
    """Add the way that goes on with a block of one turn, if it is the best one to where it leads."""
    if not block:
        return
    satisfied, count, steps = route
    for index, group in block.items():
        before = has if index == entry else 0
        satisfied += before < needs[index].low <= before + len(group)
        count += len(group)
    last = max(block)
    state = (last, (has if last == entry else 0) + len(block[last]))
    extended = (satisfied, count, (*steps, *((index, tuple(group)) for index, group in block.items())))
    if state not in routes or extended[:2] > routes[state][:2]:
        routes[state] = extended


def certificate(order: Order, entries: list[JSON], extra: list[int], misplaced: dict[int, int]) -> dict[str, JSON]:
    """Return an alignment as data: an entry per expectation, then the unassigned calls, by their indexes from 0."""
    moved = set(misplaced.values())
    left = [call for call in extra if call not in moved]
    return {"order": order, "expectations": entries, "extra": left, "out_of_order": sorted(moved)}


def _any_order(needs: Sequence[Need], fits: Fits) -> list[list[int]]:
    """Satisfy as many expectations as possible, then give away what is left."""
    owner = _give(range(len(needs)), needs, fits)
    if owner is None:
        owner = _most_satisfied(needs, fits)
        _give_rest(needs, fits, owner)
    elif any(need.high > need.low for need in needs):
        _give_rest(needs, fits, owner)
    taken: list[list[int]] = [[] for _ in needs]
    for call in sorted(owner):
        taken[owner[call]].append(call)
    return taken


def _most_satisfied(needs: Sequence[Need], fits: Fits) -> dict[int, int]:
    """Return the owner of each call where not every expectation can be satisfied, but as many as possible are.

    Expectations that need one call each are a matching, so augmenting is exact. Of those that need several, every
    set is tried, largest first, up to MAX_GROUPS and until no set can be better.
    """
    single = [index for index, need in enumerate(needs) if need.low == 1]
    several = sorted((index for index, need in enumerate(needs) if need.low > 1), key=lambda index: needs[index].low)
    ceiling = _ceiling(needs, fits)
    best: dict[int, int] = {}
    most = -1
    for group in islice(_groups(several, needs, fits), MAX_GROUPS):
        if most >= min(len(group) + len(single), ceiling):
            break
        owner = _give(group, needs, fits)
        if owner is None:
            continue
        satisfied = len(group) + sum(_take(index, 1, fits, owner) for index in single)
        if satisfied > most:
            best, most = owner, satisfied
    return best


def _ceiling(needs: Sequence[Need], fits: Fits) -> int:
    """Return how many expectations the calls would suffice for, the modest ones first."""
    owner: dict[int, int] = {}
    _give_rest([Need(need.low, need.low) for need in needs], fits, owner)
    sums = accumulate(sorted(need.low for need in needs if need.low))
    return sum(total <= len(owner) for total in sums)


def _groups(several: list[int], needs: Sequence[Need], fits: Fits) -> Iterator[tuple[int, ...]]:
    """Yield the expectations a modest first try can satisfy, then every set of them, largest first."""
    modest: tuple[int, ...] = ()
    for index in several:
        if _give((*modest, index), needs, fits) is not None:
            modest = (*modest, index)
    yield from chain([modest], *(combinations(several, size) for size in range(len(several), -1, -1)))


def _give(group: Sequence[int], needs: Sequence[Need], fits: Fits) -> dict[int, int] | None:
    """Return the owner of each call when every expectation of the group gets all it needs, else None."""
    owner: dict[int, int] = {}
    for index in group:
        low = needs[index].low
        if low > len(fits[index]) or _take(index, low, fits, owner) < low:
            return None
    return owner


def _take(index: int, wanted: int, fits: Fits, owner: dict[int, int]) -> int:
    """Give an expectation free calls that fit it, then calls others can do without; return how many it got."""
    got = 0
    for call in fits[index]:
        if got == wanted:
            return got
        if call not in owner:
            owner[call] = index
            got += 1
    while got < wanted and _take_one(index, fits, owner):
        got += 1
    return got


def _take_one(start: int, fits: Fits, owner: dict[int, int]) -> bool:
    """Give `start` one more call, moving others to other calls where that frees one; return whether that worked."""
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
        _take(index, min(needs[index].high, len(fits[index])) - has[index], fits, owner)


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
    """Return the in-order assignment that satisfies the most expectations and then takes the most calls."""
    best: list[Way] = [(0, None)] * (calls + 1)
    for index, need in enumerate(needs):
        best = _with_expectation(best, index, need, fits[index])
    taken: list[list[int]] = [[] for _ in needs]
    steps = best[-1][1]
    while steps is not None:
        index, start, end, steps = steps
        taken[index] = list(fits[index][start:end])
    return taken


def _with_expectation(best: list[Way], index: int, need: Need, fit: Sequence[int]) -> list[Way]:
    """Return the best ways when one more expectation may take a run of the calls that fit it.

    `best[n]` is the best way through the first n calls. A run from the p-th to the q-th fitting call is worth what the
    calls before it are worth, plus its q - p calls, plus more than all calls together if the expectation is satisfied.
    """
    satisfied = len(best)
    after = [(worth + satisfied, steps) for worth, steps in best] if need.low == 0 else list(best)
    heights = [best[call][0] - place for place, call in enumerate(fit)]
    for most, least, bonus in ((need.high, max(need.low, 1), satisfied), (need.low - 1, 1, 0)):
        for end, start in enumerate(_highest(heights, most, least), 1):
            worth = heights[start] + end + bonus if start >= 0 else -1
            if worth > after[fit[end - 1] + 1][0]:
                after[fit[end - 1] + 1] = (worth, (index, start, end, best[fit[start]][1]))
    for place in range(1, len(after)):
        if after[place - 1][0] > after[place][0]:
            after[place] = after[place - 1]
    return after


def _highest(heights: Sequence[int], most: int, least: int) -> Iterator[int]:
    """Yield for each end 1, 2, … the start of the highest of the runs that are `least` to `most` long, -1 for none."""
    starts: deque[int] = deque()
    for end in range(1, len(heights) + 1):
        start = end - least
        if start >= 0:
            while starts and heights[starts[-1]] < heights[start]:
                starts.pop()
            starts.append(start)
        while starts and starts[0] < end - most:
            starts.popleft()
        yield starts[0] if starts else -1


class SequenceChecks(list[Check]):
    """One check per expected name, with what they were made from."""

    __slots__ = ("actual", "alignment", "fits")

    def __init__(
        self, checks: list[Check], actual: list[str], alignment: dict[str, JSON], fits: Fits | None = None
    ) -> None:
        super().__init__(checks)
        self.actual = actual
        self.alignment = alignment
        self.fits = fits


def f1_of(expected: Sequence[str], actual: Sequence[str], fits: Fits | None = None) -> tuple[float, float, float]:
    """Return precision, recall and F1 of the names as multisets; the order plays no part.

    `fits` lists for each expected name those that fit it, where it may be a glob; each is assigned one name.
    """
    hits = _equal(expected, actual) if fits is None else _assigned(fits, len(actual))
    if not hits:
        return 0.0, 0.0, 0.0
    precision, recall = hits / len(actual), hits / len(expected)
    return precision, recall, 2 * precision * recall / (precision + recall)


def _equal(expected: Sequence[str], actual: Sequence[str]) -> int:
    """Return how many names both lists have in common, as multisets."""
    left: dict[str, int] = {}
    for name in expected:
        left[name] = left.get(name, 0) + 1
    hits = 0
    for name in actual:
        if left.get(name):
            left[name] -= 1
            hits += 1
    return hits


def _assigned(fits: Fits, names: int) -> int:
    """Return how many of the expected names get a name of their own, by the best assignment."""
    return sum(bool(taken) for taken in align("any", [Need()] * len(fits), fits, names).taken)


def sequence_checks(
    order: Order, expected: Sequence[str], actual: list[str], noun: str, fits: Fits | None = None
) -> SequenceChecks:
    """Return one check per expected name, one more for extra ones where the order is exact; `fits` as in `f1_of`."""
    places = _places(order, expected, actual) if fits is None else None
    if places is not None:
        entries: list[JSON] = [
            {"expected": name, "status": "matched", "calls": [place]}
            for name, place in zip(expected, places, strict=True)
        ]
        checks = [Check(True, _claim(noun, name, order)) for name in expected]
        used = set(places)
        extra = [place for place in range(len(actual)) if place not in used]
        alignment = certificate(order, entries, extra, {})
    else:
        checks, alignment, extra = _explained(order, expected, actual, noun, fits)
    if order == "exact":
        surplus = list(dict.fromkeys(actual[place] for place in extra))
        failure = f"{noun} not expected: {', '.join(surplus)}" if surplus else ""
        checks.append(Check(not extra, f"there is no other {noun}", failure, actual=surplus or None))
    return SequenceChecks(checks, actual, alignment, fits)


def _claim(noun: str, name: str, order: Order) -> str:
    return f"{noun} {name} is there" if order == "any" else f"{noun} {name} is there in order"


def _places(order: Order, expected: Sequence[str], actual: list[str]) -> list[int] | None:
    """Return the index of each name when each takes the first one left; None when one finds none."""
    places: list[int] = []
    last: dict[str, int] = {}
    after = -1
    for name in expected:
        try:
            after = actual.index(name, (last.get(name, -1) if order == "any" else after) + 1)
        except ValueError:
            return None
        places.append(after)
        last[name] = after
    return places


def _explained(
    order: Order, expected: Sequence[str], actual: list[str], noun: str, fits: Fits | None = None
) -> tuple[list[Check], dict[str, JSON], list[int]]:
    """Return the checks, the alignment and the names left over, by the best assignment."""
    needs = [Need()] * len(expected)
    if fits is None:
        fits = [[place for place, name in enumerate(actual) if name == wanted] for wanted in expected]
    alignment = align(order, needs, fits, len(actual))
    misplaced = alignment.misplaced(needs, fits)
    checks: list[Check] = []
    entries: list[JSON] = []
    for index, name in enumerate(expected):
        claim = _claim(noun, name, order)
        entry: dict[str, JSON] = {"expected": name, "status": "matched", "calls": alignment.taken[index]}
        if alignment.taken[index]:
            checks.append(Check(True, claim))
        elif index in misplaced:
            entry |= {"status": "out_of_order", "found": misplaced[index]}
            checks.append(Check(False, claim, f"{noun} out of order: {name}", name, {"call": misplaced[index]}))
        else:
            entry["status"] = "missing"
            checks.append(Check(False, claim, f"{noun} missing: {name}", name))
        entries.append(entry)
    return checks, certificate(order, entries, alignment.extra, misplaced), alignment.extra
