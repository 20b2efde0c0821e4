"""The plots of the HTML page: pass rates with their intervals, by tag and by task, and how long trials took."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from heapq import nsmallest

from waza.compact import ordered, where
from waza.model import Run
from waza.reports._elements import Bar, plot
from waza.reports._faults import trials_of
from waza.reports._text import seconds
from waza.results.outcomes import outcomes_of
from waza.results.scores import Interval, wilson
from waza.results.tasks import TaskSummary

MOST_BARS = 20
MOST_TICKS = 50


def rates(tasks: Sequence[TaskSummary]) -> str:
    """Return the pass rates with their intervals: by tag, and by task where there are not too many."""
    tags = sorted({tag for task in tasks for tag in task.tags})
    by_tag = [_tag_bar(tag, where(tasks, partial(_has_tag, tag))) for tag in tags[:MOST_BARS]]
    several = where(tasks, lambda task: trials_of(task) > 1)
    shown = nsmallest(MOST_BARS, several, key=lambda task: (task.pass_rate is None, task.pass_rate or 0.0))
    more = f", the {MOST_BARS} lowest of {len(several)}" if len(several) > MOST_BARS else ""
    plots = plot("Tasks passed, by tag", by_tag) + plot(f"Trials passed, by task{more}", map(_task_bar, shown))
    note = '<p class="soft">A thin line is the 95 % interval: where the true rate may lie.</p>\n'
    return f"<h2>Pass rates</h2>\n{note}{plots}" if plots else ""


def _has_tag(tag: str, task: TaskSummary) -> bool:
    return tag in task.tags


def _tag_bar(tag: str, tasks: Sequence[TaskSummary]) -> Bar:
    passed = sum(task.status == "passed" for task in tasks)
    return _rate_bar(tag, passed, len(tasks), wilson(passed, len(tasks)))


def _task_bar(task: TaskSummary) -> Bar:
    return _rate_bar(task.id, task.passed, trials_of(task) - task.skipped, task.pass_rate_ci)


def _rate_bar(label: str, passed: int, total: int, interval: Interval | None) -> Bar:
    span = (interval.lower, interval.upper) if interval else None
    return Bar(label, passed / total if total else 0.0, f"{passed} of {total}", span)


def durations(run: Run) -> str:
    """Return the slowest tasks: the mean as a bar, each trial as a tick."""
    by_task: dict[str, list[float]] = {}
    for outcome in ordered(outcomes_of(run.results), lambda outcome: (outcome.task_id, outcome.trial)):
        by_task.setdefault(outcome.task_id, []).append(outcome.duration_ms)
    longest = max((time for times in by_task.values() for time in times), default=0.0)
    if not longest:
        return ""
    bars = (_duration_bar(task, times, longest) for task, times in by_task.items())
    slowest = nsmallest(MOST_BARS, bars, key=lambda bar: -bar.length)
    more = f", the {MOST_BARS} slowest of {len(by_task)} tasks" if len(by_task) > MOST_BARS else ""
    ticks = "; each tick is one trial" if any(len(times) > 1 for times in by_task.values()) else ""
    return f"<h2>Time</h2>\n{plot(f'Mean of a trial{more}{ticks}', slowest)}"


def _duration_bar(task: str, times_ms: list[float], longest: float) -> Bar:
    middle = sum(times_ms) / len(times_ms)
    ticks = tuple(time / longest for time in times_ms[:MOST_TICKS]) if len(times_ms) > 1 else ()
    return Bar(task, middle / longest, seconds(middle), None, ticks)
