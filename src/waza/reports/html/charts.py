"""Charts without scripts: differences with intervals, tool calls on a time axis, pass rates and durations as bars.

On the time axis a row is a tool and a bar a call. A call without a start time is placed by its order and drawn hollow;
where no call has one, the axis is the order alone. A failed call has a cross and an edge, so that no colour is needed.
Everything drawn is in the transcript too, so the drawing itself is not read out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from heapq import nsmallest
from typing import NamedTuple

from waza.compact import ordered, where
from waza.model import Run, ToolEvent
from waza.reports.document import Bar
from waza.reports.failed_checks import trials_of
from waza.reports.html.components import bar_plot, soft
from waza.reports.html.markup import Element, Node, el, short
from waza.runs.outcomes import outcomes_of
from waza.runs.tasks import TaskSummary
from waza.stats.intervals import exact_share
from waza.stats.scores import Interval
from waza.untrusted.text import plural, seconds


class ForestRow(NamedTuple):
    """One row: a difference of shares and where it may lie."""

    label: str
    value: float | None
    span: tuple[float, float] | None
    text: str
    is_clear: bool = False
    """Whether it is statistically significant."""


def forest(title: str, rows: Sequence[ForestRow]) -> Node:
    """Return differences as dots on lines; left of the middle is worse, right of it better."""
    shown = [row for row in rows if row.value is not None]
    if not shown:
        return None
    widest = max([abs(row.value or 0.0) for row in shown] + [abs(end) for row in shown for end in row.span or ()])
    reach = min(1.0, max(0.1, 1.1 * widest))
    head = el("div", el("span", title, class_="tool"), _forest_axis(reach), el("span"), class_="track-row")
    return el("div", head, *(_forest_row(row, reach) for row in shown), class_="timeline forest")


def _x(value: float, reach: float) -> str:
    return f"{50 + 50 * max(-1.0, min(1.0, value / reach)):.2f}%"


def _forest_axis(reach: float) -> Element:
    spots = ((-reach, "start"), (0.0, "middle"), (reach, "end"))
    texts = [el("text", f"{100 * at:+.0f}" if at else "0", x=_x(at, reach), y=12, text_anchor=how, class_="tick-label")
             for at, how in spots]  # fmt: skip
    return el("svg", *texts, height=16, width="100%", aria_hidden="true")


def _forest_row(row: ForestRow, reach: float) -> Element:
    value = row.value or 0.0
    shapes: list[Node] = [el("line", x1="50%", x2="50%", y1=0, y2=20, class_="zero")]
    if row.span:
        shapes.append(el("line", x1=_x(row.span[0], reach), x2=_x(row.span[1], reach), y1=10, y2=10, class_="reach"))
        shapes += [el("line", x1=_x(end, reach), x2=_x(end, reach), y1=6, y2=14, class_="reach") for end in row.span]
    kind = ("better" if value > 0 else "worse") if row.is_clear and value else ""
    shapes.append(el("circle", cx=_x(value, reach), cy=10, r=5, class_=f"dot {kind}".strip()))
    picture = el("svg", *shapes, height=20, width="100%", aria_hidden="true")
    return el(
        "div",
        el("span", short(row.label, 60), class_="tool"),
        picture,
        el("span", row.text, class_="value"),
        class_="track-row",
    )


MOST_ROWS = 12
"""Tools with a row of their own; the others share one."""
MOST_LANES = 6
BINS = 160
"""Pieces of the strip that shows a long trial as a whole."""
LANE = 16
"""The height of a bar with the space below it."""
_THINNEST = 0.35
_ROUND = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400)
"""Seconds, or calls, between two marks of the axis."""
_MOST_MS = 10 * 365 * 86_400_000.0


class Placed(NamedTuple):
    """A call with its place on the axis."""

    number: int
    event: ToolEvent
    start: float
    end: float
    is_timed: bool
    """Whether its start time was recorded."""


class Placing(NamedTuple):
    """All calls of a trial on one axis."""

    calls: list[Placed]
    end: float
    is_time: bool
    """Whether the axis is in milliseconds; else it counts calls."""
    untimed: int
    at_once: int
    """The most calls at the same time; 0 where that is unknown."""


def placed(events: Sequence[ToolEvent], duration_ms: float | None) -> Placing:
    """Return calls on a time axis; on an axis that counts them where no start time was recorded."""
    if not any(_amount(event.start_ms) is not None for event in events):
        in_order = [Placed(n + 1, event, n, n + 1, False) for n, event in enumerate(events)]
        return Placing(in_order, float(len(in_order)), False, len(in_order), 0)
    calls: list[Placed] = []
    before = 0.0
    for number, event in enumerate(events, 1):
        start = _amount(event.start_ms)
        begin = before if start is None else start
        end = begin + (_amount(event.duration_ms) or 0.0)
        before = end if start is None else max(before, end)
        calls.append(Placed(number, event, begin, end, start is not None))
    last = max(call.end for call in calls)
    end = max(last, _amount(duration_ms) or 0.0) or 1.0
    return Placing(calls, end, True, sum(not call.is_timed for call in calls), _at_once(calls))


def _amount(value: float | None) -> float | None:
    return float(value) if value is not None and 0 <= value <= _MOST_MS else None


def _at_once(calls: Sequence[Placed]) -> int:
    moments = [(call.start, 1) for call in calls if call.is_timed and call.end > call.start]
    moments += [(call.end, -1) for call in calls if call.is_timed and call.end > call.start]
    most = now = 0
    for _, change in sorted(moments):
        now += change
        most = max(most, now)
    return most


def timeline(placing: Placing, first: int, last: int, address: str) -> Node:
    """Return the calls from `first` to `last` as a timeline; with more of them, a strip of the whole above it."""
    shown = [call for call in placing.calls if first <= call.number <= last]
    if not shown:
        return None
    is_part = len(shown) < len(placing.calls)
    start = min(call.start for call in shown) if is_part else 0.0
    end = max(max(call.end for call in shown), start + placing.end / 10_000) if is_part else placing.end
    rows = [_axis(start, end, placing.is_time), _turns(shown, start, end)]
    rows += [_row(name, calls, start, end, placing.is_time) for name, calls in _by_tool(shown)]
    whole = _strip(placing, start, end, address) if is_part else None
    parts: list[Node] = [whole, el("div", *rows, class_="timeline", aria_hidden="true"), _legend(placing)]
    return [soft(*_summary(placing)), *parts]


def _summary(placing: Placing) -> list[Node]:
    calls = placing.calls
    failed = sum(not call.event.success for call in calls)
    facts = [plural(len(calls), "call")]
    if placing.is_time:
        facts.append(f"over {_moment(placing.end)}")
    if placing.at_once > 1:
        facts.append(f"up to {placing.at_once} at once")
    facts.append(f"{failed} failed" if failed else "none failed")
    timed = [call for call in calls if _amount(call.event.duration_ms) is not None]
    if timed:
        longest = max(timed, key=lambda call: _amount(call.event.duration_ms) or 0.0)
        facts.append(f"the longest {short(longest.event.tool_name, 40)} ({seconds(longest.event.duration_ms)})")
    return [" · ".join(facts)]


def _legend(placing: Placing) -> Element | None:
    if not placing.is_time:
        return soft("Start times were not recorded: calls are in their order, each of the same width.")
    if placing.untimed:
        calls = f"{plural(placing.untimed, 'call')} of {len(placing.calls)}"
        return soft(f"The start times of {calls} were not recorded: drawn hollow, after the previous call.")
    return None


def _by_tool(calls: Sequence[Placed]) -> list[tuple[str, list[Placed]]]:
    """Return calls by tool, in the order of their first calls; tools beyond the last row share one."""
    by_tool: dict[str, list[Placed]] = {}
    for call in calls:
        by_tool.setdefault(call.event.tool_name, []).append(call)
    rows = list(by_tool.items())
    if len(rows) <= MOST_ROWS:
        return rows
    rest = sorted((call for _, some in rows[MOST_ROWS - 1 :] for call in some), key=lambda call: call.number)
    return [*rows[: MOST_ROWS - 1], (f"{len(rows) - MOST_ROWS + 1} other tools", rest)]


def _row(name: str, calls: Sequence[Placed], start: float, end: float, is_time: bool) -> Element:
    lanes = _lanes(calls)
    height = LANE * (max(lanes, default=0) + 1)
    bars = [_bar(call, lane, start, end, is_time) for call, lane in zip(calls, lanes, strict=True)]
    failed = sum(not call.event.success for call in calls)
    text = f"×{len(calls)}" + (f" · ✗ {failed}" if failed else "")
    label = el("span", el("b", short(name, 40)), " ", el("span", text, class_="soft"), class_="tool")
    return el("div", label, el("svg", *bars, height=height, width="100%"), class_="track-row")


def _lanes(calls: Sequence[Placed]) -> list[int]:
    """Return for each call a lane that is free during it; the last lane takes the rest."""
    ends: list[float] = []
    lanes: list[int] = []
    for call in calls:
        free = next((lane for lane, end in enumerate(ends) if end <= call.start), len(ends))
        lane = min(free, MOST_LANES - 1)
        if lane == len(ends):
            ends.append(call.end)
        else:
            ends[lane] = max(ends[lane], call.end)
        lanes.append(lane)
    return lanes


def _bar(call: Placed, lane: int, start: float, end: float, is_time: bool) -> Element:
    left, width = (
        _share(call.start, start, end),
        max(_THINNEST, _share(call.end, start, end) - _share(call.start, start, end)),
    )
    left = min(left, 100 - _THINNEST)
    event = call.event
    kind = "call" if event.success else "call bad"
    kind += " hollow" if is_time and not call.is_timed else ""
    took = f" · {seconds(event.duration_ms)}" if event.duration_ms is not None else ""
    at = f" · at {seconds(call.start)}" if call.is_timed else ""
    text = f"{call.number}. {short(event.tool_name, 60)}{at}{took}{'' if event.success else ' · failed'}"
    top = LANE * lane + 2
    bar = el("rect", x=f"{left:.2f}%", y=top, width=f"{width:.2f}%", height=LANE - 4, rx=2, class_=kind)
    cross = (
        el("text", "✗", x=f"{min(left + width / 2, 99):.2f}%", y=top + 10, class_="cross")
        if not event.success
        else None
    )
    return el("a", el("title", text), bar, cross, href=f"#call-{call.number}", tabindex="-1")


def _share(moment: float, start: float, end: float) -> float:
    return 100 * max(0.0, min(1.0, (moment - start) / (end - start))) if end > start else 0.0


def _axis(start: float, end: float, is_time: bool) -> Element:
    """Return the ticks: moments, or numbers of calls."""
    ticks = _ticks(start, end, is_time)
    marks: list[Node] = []
    for tick in ticks:
        x = _share(tick, start, end)
        text = _moment(tick) if is_time else f"{tick + 1:.0f}"
        anchor = "start" if x < 3 else "end" if x > 94 else "middle"
        marks.append(el("text", text, x=f"{x:.2f}%", y=12, text_anchor=anchor, class_="tick-label"))
        marks.append(el("line", x1=f"{x:.2f}%", x2=f"{x:.2f}%", y1=15, y2=20, class_="tick-line"))
    label = el("span", "time" if is_time else "order", class_="soft tool")
    return el("div", label, el("svg", *marks, height=20, width="100%"), class_="track-row")


def _ticks(start: float, end: float, is_time: bool) -> list[float]:
    """Return at most seven round moments between two."""
    span = end - start
    fine = [round_one * 10.0**power for power in range(-6, 3) for round_one in (1, 2, 5)] if is_time else [1, 2, 5]
    coarse = [step * (1000.0 if is_time else 1.0) for step in _ROUND]
    far = [coarse[-1] * 10.0**power for power in range(1, 6)]
    step = next((step for step in (*fine, *coarse, *far) if span / step <= 6), span or 1.0)
    first = math.ceil(start / step)
    last = end if is_time else end - 1
    return [step * n for n in range(first, first + 8) if step * n <= last]


def _moment(ms: float) -> str:
    """Return a moment as text; below a millisecond, with its fraction."""
    return "0" if not ms else seconds(ms) if ms >= 1 else f"{ms:.2g} ms"


def _turns(calls: Sequence[Placed], start: float, end: float) -> Element:
    """Return a row with the agent's turns in which the calls were made."""
    bands: list[Node] = []
    begins: list[tuple[int, float]] = []
    for call in calls:
        if not begins or begins[-1][0] != call.event.turn:
            begins.append((call.event.turn, call.start))
    many = len(begins)
    for place, (turn, begin) in enumerate(begins[:60]):
        until = begins[place + 1][1] if place + 1 < many else end
        left, right = _share(begin, start, end), _share(max(begin, until), start, end)
        kind = "turn odd" if turn % 2 else "turn"
        bands.append(el("rect", x=f"{left:.2f}%", y=1, width=f"{max(right - left, 0.1):.2f}%", height=14, class_=kind))
        if right - left > 4:
            bands.append(el("text", str(turn), x=f"{(left + right) / 2:.2f}%", y=12, class_="turn-label"))
    label = el("span", "turn", class_="soft tool")
    return el("div", label, el("svg", *bands, height=16, width="100%"), class_="track-row")


def _strip(placing: Placing, start: float, end: float, address: str) -> Element:
    """Return the whole trial as a histogram of its calls; a click leads to a part of it."""
    bins: dict[int, list[Placed]] = {}
    for call in placing.calls:
        bins.setdefault(min(BINS - 1, int(BINS * call.start / placing.end)), []).append(call)
    most = max(len(some) for some in bins.values())
    bars: list[Node] = []
    left, right = _share(start, 0, placing.end), _share(end, 0, placing.end)
    bars.append(el("rect", x=f"{left:.2f}%", y=0, width=f"{max(0.5, right - left):.2f}%", height=40, class_="window"))
    for place, some in sorted(bins.items()):
        high = 4 + 30 * len(some) / most
        failed = sum(not call.event.success for call in some)
        kind = "call bad" if failed else "call"
        text = f"calls {some[0].number}–{some[-1].number}" + (f", {failed} failed" if failed else "")
        x = 100 * place / BINS
        bar = el(
            "rect", x=f"{x:.2f}%", y=f"{38 - high:.1f}", width=f"{80 / BINS:.2f}%", height=f"{high:.1f}", class_=kind
        )
        bars.append(
            el("a", el("title", text), bar, href=f"{address}call={some[0].number}#call-{some[0].number}", tabindex="-1")
        )
    label = el("span", "whole trial", class_="soft tool")
    row = el("div", label, el("svg", *bars, height=40, width="100%"), class_="track-row")
    return el("div", row, class_="timeline strip", aria_hidden="true")


MOST_BARS = 20
MOST_TICKS = 50


def rates(tasks: Sequence[TaskSummary]) -> Node:
    """Return the pass rates with their intervals: by tag, and by task where there are not too many."""
    tags = sorted({tag for task in tasks for tag in task.tags})
    by_tag = [_tag_bar(tag, where(tasks, partial(_has_tag, tag))) for tag in tags[:MOST_BARS]]
    several = where(tasks, lambda task: trials_of(task) > 1)
    shown = nsmallest(MOST_BARS, several, key=lambda task: (task.pass_rate is None, task.pass_rate or 0.0))
    more = f", the {MOST_BARS} lowest of {len(several)}" if len(several) > MOST_BARS else ""
    if not by_tag and not shown:
        return None
    note = soft("A thin line is the 95 % interval: where the true rate may lie.")
    plots = bar_plot("Tasks passed, by tag", by_tag), bar_plot(f"Trials passed, by task{more}", map(_task_bar, shown))
    return [el("h2", "Pass rates"), note, *plots]


def _has_tag(tag: str, task: TaskSummary) -> bool:
    return tag in task.tags


def _tag_bar(tag: str, tasks: Sequence[TaskSummary]) -> Bar:
    passed = sum(task.status == "passed" for task in tasks)
    return _rate_bar(tag, passed, len(tasks), exact_share(passed, len(tasks)))


def _task_bar(task: TaskSummary) -> Bar:
    return _rate_bar(task.id, task.passed, trials_of(task) - task.skipped, task.pass_rate_ci)


def _rate_bar(label: str, passed: int, total: int, interval: Interval | None) -> Bar:
    span = (interval.lower, interval.upper) if interval else None
    return Bar(label, passed / total if total else 0.0, f"{passed} of {total}", span)


def durations(run: Run) -> Node:
    """Return the slowest tasks: the mean as a bar, each trial as a tick."""
    by_task: dict[str, list[float]] = {}
    for outcome in ordered(outcomes_of(run.results), lambda outcome: (outcome.task_id, outcome.trial)):
        by_task.setdefault(outcome.task_id, []).append(outcome.duration_ms)
    longest = max((time for times in by_task.values() for time in times), default=0.0)
    if not longest:
        return None
    bars = (_duration_bar(task, times, longest) for task, times in by_task.items())
    slowest = nsmallest(MOST_BARS, bars, key=lambda bar: -bar.length)
    more = f", the {MOST_BARS} slowest of {len(by_task)} tasks" if len(by_task) > MOST_BARS else ""
    ticks = "; each tick is one trial" if any(len(times) > 1 for times in by_task.values()) else ""
    return [el("h2", "Time"), bar_plot(f"Mean of a trial{more}{ticks}", slowest)]


def _duration_bar(task: str, times_ms: list[float], longest: float) -> Bar:
    middle = sum(times_ms) / len(times_ms)
    ticks = tuple(time / longest for time in times_ms[:MOST_TICKS]) if len(times_ms) > 1 else ()
    return Bar(task, middle / longest, seconds(middle), None, ticks)
