"""Which calls and messages of a trace lie in the windows of a rule, where some calls are concurrent.

A timeline puts calls and messages into blocks that follow each other. Most blocks are one call; calls of one turn that
cannot be ordered are a block together. Positions count in the order of the blocks, so that a window is a few ranges of
positions and a rule costs n log n. `trace_rules` has the rules themselves and their verdicts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

from waza.graders.base import turns_are_known
from waza.model import JSON, ToolEvent, Trace

Part = range | list[int]
"""Positions of a timeline."""


class Window(NamedTuple):
    """Some positions of a timeline, and the position of the call or message that opened the window; -1 without one."""

    trigger: int
    parts: list[Part]


class Scope(NamedTuple):
    """Which windows a rule has; `before` and `after` are about each trigger."""

    kind: Literal["all", "before", "after", "between", "until", "turn", "calls"]
    within: int | None = None
    is_fresh: bool = False
    has_end: bool = False
    calls: int = 0


class Message(NamedTuple):
    """A message of the transcript."""

    place: int
    sender: str
    content: JSON
    parent: JSON


class CallOrder:
    """The order of a trace's calls: by turns, by times within a turn, or as they are listed."""

    def __init__(self, trace: Trace, calls: list[ToolEvent], order: Literal["turns", "listed"]) -> None:
        self.calls = calls
        self.knows_turns = turns_are_known(trace)
        self.mode: Literal["turns", "listed"] = "turns" if order == "turns" and self.knows_turns else "listed"

    @cached_property
    def parents(self) -> list[JSON]:
        """The call that started the sub-agent of each call; None for the agent itself."""
        return [call.extra.get("parent_tool_call_id") if call.extra else None for call in self.calls]

    @cached_property
    def _timed_turns(self) -> set[int]:
        timed: dict[int, bool] = {}
        for call in self.calls:
            has_times = call.start_ms is not None and call.duration_ms is not None
            timed[call.turn] = timed.get(call.turn, True) and has_times
        return {turn for turn, has_times in timed.items() if has_times}

    def blocks(self, calls: Sequence[int]) -> list[list[list[int]]]:
        """Return blocks that follow each other; each is a list of lanes, each lane a list of calls in order.

        A block of one lane is in order. Calls in different lanes of a block are concurrent; where the lanes of a block
        have one call each, `precedes` may still order two of them by their times.
        """
        if self.mode == "listed":
            return [[[call]] for call in calls]
        by_turn: dict[int, list[int]] = {}
        for call in calls:
            by_turn.setdefault(self.calls[call].turn, []).append(call)
        blocks: list[list[list[int]]] = []
        for turn in sorted(by_turn):
            members = by_turn[turn]
            if len(members) == 1:
                blocks.append([members])
            elif turn in self._timed_turns:
                blocks += self._clusters(members)
            else:
                blocks += self._lanes(members)
        return blocks

    def _lanes(self, calls: list[int]) -> list[list[list[int]]]:
        lanes: dict[JSON, list[int]] = {}
        for call in calls:
            parent = self.parents[call]
            lanes.setdefault(("main", call) if parent is None else ("sub", str(parent)), []).append(call)
        made = list(lanes.values())
        return [made] if len(made) > 1 else [[[call]] for call in made[0]]

    def _clusters(self, calls: list[int]) -> list[list[list[int]]]:
        """Return the calls of a timed turn, split wherever everything before has ended when the rest begins."""
        clusters: list[list[list[int]]] = []
        latest = (-1.0, 0)
        for call in sorted(calls, key=self._begin):
            if not clusters or latest <= self._begin(call):
                clusters.append([])
            clusters[-1].append([call])
            latest = max(latest, self._end(call))
        return clusters

    def _begin(self, call: int) -> tuple[float, int]:
        # A call without duration is before those that begin in the same instant, but not before another such call.
        event = self.calls[call]
        return float(event.start_ms or 0), 1 if event.duration_ms else 0

    def _end(self, call: int) -> tuple[float, int]:
        event = self.calls[call]
        return float(event.start_ms or 0) + float(event.duration_ms or 0), 0 if event.duration_ms else 1

    def is_timed(self, call: int) -> bool:
        """Return whether every call of this call's turn has its times."""
        return self.calls[call].turn in self._timed_turns

    def times_precede(self, one: int, other: int) -> bool:
        """Return whether a call of a turn ended before another one of that turn began."""
        return self.is_timed(one) and one != other and self._end(one) <= self._begin(other)


class Timeline:
    """Calls, by their indexes, and messages, by negative numbers from -1, in the order of their blocks."""

    def __init__(self, order: CallOrder, calls: Sequence[int], messages: Sequence[tuple[int, int]] = ()) -> None:
        """Place calls and messages; each message is a number and the number of calls that are listed before it."""
        self.order = order
        self.has_messages = bool(messages)
        self.items: list[int] = []
        """What is at each position."""
        self.is_total = True
        self._block_start: list[int] = []
        self._block_end: list[int] = []
        self._lane_start: list[int] = []
        self._lane_end: list[int] = []
        self._clean: dict[int, list[int]] = {}
        self.is_plain = False
        """Whether positions are the calls' indexes."""
        if order.mode == "listed" and not messages:
            self.items = list(calls)
        else:
            self._build(_with_messages(order.blocks(calls), messages))
        if self.is_total and not messages and self.items == list(range(len(self.items))):
            self.is_plain = True

    def _build(self, blocks: list[list[list[int]]]) -> None:
        items = self.items
        for lanes in blocks:
            if len(lanes) == 1:
                items += lanes[0]
                continue
            self.is_total = False
        if self.is_total:
            return
        items.clear()
        for lanes in blocks:
            start = len(items)
            end = start + sum(map(len, lanes))
            for lane in lanes:
                first, last = len(items), len(items) + len(lane)
                items += lane
                self._block_start += [start] * len(lane)
                self._block_end += [end] * len(lane)
                self._lane_start += [first] * len(lane)
                self._lane_end += [last] * len(lane)

    @cached_property
    def positions(self) -> dict[int, int]:
        """The position of each call and message."""
        return {item: position for position, item in enumerate(self.items)}

    @cached_property
    def call_positions(self) -> Sequence[int]:
        """The positions of the calls, ascending."""
        if not self.has_messages:
            return range(len(self.items))
        return [position for position, item in enumerate(self.items) if item >= 0]

    @cached_property
    def is_as_listed(self) -> bool:
        """Whether nothing is listed before something that it comes after."""
        if self.is_total:
            calls = [item for item in self.items if item >= 0]
            return all(one < other for one, other in pairwise(calls))
        latest = -1
        for start in dict.fromkeys(self._block_start):
            members = [item for item in self.items[start : self._block_end[start]] if item >= 0]
            is_timed = self._lane_end[start] - start == 1 and members != sorted(members)
            if not members:
                continue
            if min(members) < latest or (is_timed and not self._concurrent(members)):
                return False
            latest = max(members)
        return True

    def _concurrent(self, members: list[int]) -> bool:
        return not any(self.order.times_precede(one, other) for one in members for other in members)

    def number(self, position: int) -> int:
        """Return how many calls are at positions before this one."""
        return bisect_left(self.call_positions, position)

    def precedes(self, one: int, other: int) -> bool:
        """Return whether what is at a position comes before what is at another one."""
        if self.is_total or self._block_start[one] != self._block_start[other]:
            return one < other
        if self._lane_start[one] == self._lane_start[other]:
            return one < other
        return self.order.times_precede(self.items[one], self.items[other])

    def windows(self, scope: Scope, triggers: Sequence[int], ends: Sequence[int]) -> Iterator[Window]:
        """Yield the windows; triggers and ends are positions, ascending."""
        if scope.kind == "all":
            yield Window(-1, [range(len(self.items))])
        elif scope.kind == "turn":
            yield from self._per_turn()
        elif scope.kind == "calls":
            yield from self._per_calls(scope.calls)
        elif self.is_total:
            yield from self._in_total_order(scope, triggers, ends)
        else:
            yield from self._in_blocks(scope, triggers, ends)

    def _per_turn(self) -> Iterator[Window]:
        by_turn: dict[int, list[int]] = {}
        for position, item in enumerate(self.items):
            by_turn.setdefault(self.order.calls[item].turn, []).append(position)
        for turn in sorted(by_turn):
            yield Window(-1, [by_turn[turn]])

    def _per_calls(self, count: int) -> Iterator[Window]:
        listed = [self.positions[item] for item in sorted(self.items)]
        if listed == list(range(len(listed))):
            for start in range(max(1, len(listed) - count + 1)):
                yield Window(-1, [range(start, min(start + count, len(listed)))])
        else:
            for start in range(max(1, len(listed) - count + 1)):
                yield Window(-1, [listed[start : start + count]])

    def _in_total_order(self, scope: Scope, triggers: Sequence[int], ends: Sequence[int]) -> Iterator[Window]:
        last = len(self.items)
        if scope.kind == "until":
            yield Window(-1, [range(ends[0] if ends else last)])
        elif scope.kind == "before":
            for trigger in triggers:
                low = 0
                if scope.is_fresh and (place := bisect_left(ends, trigger)):
                    low = ends[place - 1] + 1
                if scope.within is not None:
                    low = max(low, self._calls_back(trigger, scope.within))
                yield Window(trigger, [range(low, trigger)])
        else:
            bounded = scope.has_end or scope.is_fresh
            for trigger in triggers:
                high = last
                if bounded:
                    place = bisect_right(ends, trigger)
                    if place < len(ends):
                        high = ends[place]
                    elif scope.kind == "between":
                        continue
                if scope.within is not None:
                    high = min(high, self._calls_on(trigger, scope.within))
                yield Window(trigger, [range(trigger + 1, high)])

    def _calls_on(self, position: int, count: int) -> int:
        """Return the position behind the call that is so many calls after a position."""
        calls = self.call_positions
        place = bisect_right(calls, position) + count - 1
        return calls[place] + 1 if place < len(calls) else len(self.items)

    def _calls_back(self, position: int, count: int) -> int:
        """Return the position of the call that is so many calls before a position."""
        calls = self.call_positions
        place = bisect_left(calls, position) - count
        return calls[place] if place >= 0 else 0

    def _in_blocks(self, scope: Scope, triggers: Sequence[int], ends: Sequence[int]) -> Iterator[Window]:
        self._clean = {}
        if scope.kind == "until":
            if not ends:
                yield Window(-1, [range(len(self.items))])
            else:
                start = self._block_start[ends[0]]
                yield Window(-1, [range(start), self._until_end(start, ends, is_between=False)])
            return
        bounded = scope.has_end or scope.is_fresh
        for trigger in triggers:
            if scope.kind == "before":
                parts: list[Part] | None = self._before(trigger, ends if bounded else ())
            else:
                parts = self._after(trigger, ends if bounded else (), is_between=scope.kind == "between")
            if parts is None:
                continue
            if scope.within is not None:
                near = self._near(trigger, scope.within, is_before=scope.kind == "before")
                parts = [[position for position in near if any(position in part for part in parts)]]
            yield Window(trigger, parts)

    def _inside(self, position: int, *, is_before: bool) -> Part:
        """Return what comes before or after a position in its own block."""
        start, end = self._block_start[position], self._block_end[position]
        if self._lane_end[position] - self._lane_start[position] > 1 or self.items[position] < 0:
            return (
                range(self._lane_start[position], position)
                if is_before
                else range(position + 1, self._lane_end[position])
            )
        if end - start == 1 or not self.order.is_timed(self.items[position]):
            return range(0)
        item, order = self.items[position], self.order
        if is_before:
            return [each for each in range(start, end) if order.times_precede(self.items[each], item)]
        return [each for each in range(start, end) if order.times_precede(item, self.items[each])]

    def _after(self, trigger: int, ends: Sequence[int], *, is_between: bool) -> list[Part] | None:
        inner = self._inside(trigger, is_before=False)
        behind = self._block_end[trigger]
        own = [each for each in inner if _has(ends, each)]
        if own:
            kept = [each for each in inner if not _has(ends, each) and not self._any_precedes(own, each)]
            return [self._before_next(kept, own) if is_between else kept]
        place = bisect_left(ends, behind)
        if place == len(ends):
            return None if is_between else [inner, range(behind, len(self.items))]
        start = self._block_start[ends[place]]
        return [inner, range(behind, start), self._until_end(start, ends, is_between=is_between)]

    def _until_end(self, start: int, ends: Sequence[int], *, is_between: bool) -> list[int]:
        """Return what is in a block with an end before no end has come; for `between` also before one."""
        if start not in self._clean:
            members = range(start, self._block_end[start])
            own = [each for each in members if _has(ends, each)]
            kept = [each for each in members if not _has(ends, each) and not self._any_precedes(own, each)]
            self._clean[start] = self._before_next(kept, own) if is_between else kept
        return self._clean[start]

    def _before(self, trigger: int, ends: Sequence[int]) -> list[Part]:
        inner = self._inside(trigger, is_before=True)
        front = self._block_start[trigger]
        own = [each for each in inner if _has(ends, each)]
        if own:
            return [[each for each in inner if not _has(ends, each) and not self._precedes_any(each, own)]]
        place = bisect_left(ends, front)
        if not place:
            return [range(front), inner]
        start = self._block_start[ends[place - 1]]
        if start not in self._clean:
            members = range(start, self._block_end[start])
            end_members = [each for each in members if _has(ends, each)]
            self._clean[start] = [
                each for each in members if not _has(ends, each) and not self._precedes_any(each, end_members)
            ]
        return [self._clean[start], range(self._block_end[start], front), inner]

    def _before_next(self, positions: list[int], ends: list[int]) -> list[int]:
        """Return the positions that come before one of the next ends: those before which no other end has come."""
        following = [each for each in ends if not self._any_precedes(ends, each)]
        return [each for each in positions if self._precedes_any(each, following)]

    def _any_precedes(self, some: list[int], position: int) -> bool:
        return any(self.precedes(each, position) for each in some)

    def _precedes_any(self, position: int, some: list[int]) -> bool:
        return any(self.precedes(position, each) for each in some)

    def _near(self, trigger: int, count: int, *, is_before: bool) -> list[int]:
        """Return what has fewer than `count` calls between it and a position."""
        inner = self._inside(trigger, is_before=is_before)
        found = [each for each in inner if self._between(trigger, each, inner, is_before=is_before) < count]
        far = len(inner)
        place = self._block_start[trigger] - 1 if is_before else self._block_end[trigger]
        while 0 <= place < len(self.items) and far < count:
            members = range(self._block_start[place], self._block_end[place])
            found += [each for each in members if far + len(self._inside(each, is_before=not is_before)) < count]
            far += sum(self.items[each] >= 0 for each in members)
            place = members.start - 1 if is_before else members.stop
        return sorted(found)

    def _between(self, trigger: int, position: int, inner: Part, *, is_before: bool) -> int:
        if isinstance(inner, range):
            return abs(position - trigger) - 1
        if is_before:
            return sum(self.precedes(position, each) for each in inner)
        return sum(self.precedes(each, position) for each in inner)


class PlacedTimeline(Timeline):
    """A timeline with a message in the midst of concurrent calls: no order of blocks fits, every pair is compared."""

    def __init__(self, order: CallOrder, calls: Sequence[int], messages: Sequence[tuple[int, int]]) -> None:
        self._calls = Timeline(order, calls)
        self._listed = dict(messages)
        super().__init__(order, [])
        self.has_messages = True
        self.is_total = self.is_plain = False
        self.items = _as_listed(calls, messages)

    @cached_property
    def is_as_listed(self) -> bool:
        """Whether nothing is listed before something that it comes after."""
        return self._calls.is_as_listed

    def precedes(self, one: int, other: int) -> bool:
        """Return whether what is at a position comes before what is at another one: messages by their places."""
        first, second = self.items[one], self.items[other]
        if first < 0 or second < 0:
            return one < other
        return self._calls.precedes(self._calls.positions[first], self._calls.positions[second])

    def _in_blocks(self, scope: Scope, triggers: Sequence[int], ends: Sequence[int]) -> Iterator[Window]:
        everything = range(len(self.items))
        ended = scope.has_end or scope.is_fresh or scope.kind == "until"
        for trigger in triggers if scope.kind != "until" else (-1,):
            is_before = scope.kind == "before"
            comes = self._comparison(trigger, is_before=is_before)
            relevant = [each for each in ends if comes(each)] if ended else []
            if scope.kind == "between" and not relevant:
                continue
            members = [each for each in everything if comes(each) and not _has(ends if ended else (), each)]
            if is_before:
                members = [each for each in members if not self._precedes_any(each, relevant)]
            else:
                members = [each for each in members if not self._any_precedes(relevant, each)]
            if scope.kind == "between":
                members = self._before_next(members, relevant)
            if scope.within is not None:
                calls = [each for each in everything if self.items[each] >= 0 and comes(each)]
                members = [each for each in members if self._distance(each, calls, is_before) < scope.within]
            yield Window(trigger, [members])

    def _comparison(self, trigger: int, *, is_before: bool) -> Callable[[int], bool]:
        if trigger < 0:
            return lambda _: True
        if is_before:
            return lambda each: each != trigger and self.precedes(each, trigger)
        return lambda each: each != trigger and self.precedes(trigger, each)

    def _distance(self, position: int, calls: list[int], is_before: bool) -> int:
        if is_before:
            return sum(each != position and self.precedes(position, each) for each in calls)
        return sum(each != position and self.precedes(each, position) for each in calls)


def timeline_of(order: CallOrder, calls: Sequence[int], messages: Sequence[tuple[int, int]]) -> Timeline:
    """Return the timeline of some calls and messages; each message has the number of calls listed before it."""
    if messages and order.mode == "turns" and not _fit_between(order.blocks(calls), messages):
        return PlacedTimeline(order, calls, messages)
    return Timeline(order, calls, messages)


def _fit_between(blocks: list[list[list[int]]], messages: Sequence[tuple[int, int]]) -> bool:
    """Return whether every message is listed before the whole of a block, or after it, and blocks as they follow."""
    latest = -1
    listed = sorted(before for _, before in messages)
    for lanes in blocks:
        members = [call for lane in lanes for call in lane]
        first, last = min(members), max(members)
        if first < latest or bisect_left(listed, first + 1) != bisect_right(listed, last):
            return False
        latest = last
    return True


def _with_messages(blocks: list[list[list[int]]], messages: Sequence[tuple[int, int]]) -> list[list[list[int]]]:
    if not messages:
        return blocks
    merged: list[list[list[int]]] = []
    waiting = list(messages)
    for lanes in blocks:
        first = min(call for lane in lanes for call in lane)
        while waiting and waiting[0][1] <= first:
            merged.append([[waiting.pop(0)[0]]])
        merged.append(lanes)
    return merged + [[[number]] for number, _ in waiting]


def _as_listed(calls: Sequence[int], messages: Sequence[tuple[int, int]]) -> list[int]:
    keyed = [((call, 1), call) for call in calls] + [((before, 0), number) for number, before in messages]
    return [item for _, item in sorted(keyed, key=lambda pair: (pair[0], -pair[1] if pair[1] < 0 else 0))]


def _has(sorted_positions: Sequence[int], position: int) -> bool:
    place = bisect_left(sorted_positions, position)
    return place < len(sorted_positions) and sorted_positions[place] == position


def messages_of(trace: Trace) -> list[Message] | None:
    """Return the messages of the transcript; None where there is none, or where it does not fit the calls.

    The place of a message is the number of calls that the transcript has before it.
    """
    if trace.events is None:
        return None
    messages: list[Message] = []
    calls = trace.tool_events or []
    count = 0
    for entry in trace.events:
        kind = entry.get("type")
        if kind == "tool_call":
            if count >= len(calls) or not _is_call(entry, calls[count]):
                return None
            count += 1
        elif kind in ("user_message", "assistant_message"):
            sender = str(kind).removesuffix("_message")
            messages.append(Message(count, sender, entry.get("content"), entry.get("parent_tool_call_id")))
    return messages if count == len(calls) else None


def _is_call(entry: dict[str, JSON], call: ToolEvent) -> bool:
    same_id = (
        entry.get("tool_call_id") is None or call.tool_call_id is None or entry["tool_call_id"] == call.tool_call_id
    )
    return entry.get("tool_name") == call.tool_name and same_id
