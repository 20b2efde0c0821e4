"""The plots of the HTML page: pass rates with their intervals, by tag and by task, and how long trials took."""

from __future__ import annotations

from collections.abc import Sequence

from waza.model import Run
from waza.reports._elements import Bar, plot
from waza.reports._faults import trials_of
from waza.reports._text import seconds
from waza.results.outcomes import Outcome, outcomes_of
from waza.results.scores import Interval, wilson
from waza.results.tasks import TaskSummary

MOST_BARS = 20
MOST_TICKS = 50


def rates(tasks: Sequence[TaskSummary]) -> str:
    """Return the pass rates with their intervals: by tag, and by task where there are not too many."""
    tags = sorted({tag for task in tasks for tag in task.tags})
    by_tag = [_tag_bar(tag, [task for task in tasks if tag in task.tags]) for tag in tags[:MOST_BARS]]
    several = [task for task in tasks if trials_of(task) > 1]
    shown = sorted(several, key=lambda task: (task.pass_rate is None, task.pass_rate or 0.0))[:MOST_BARS]
    more = f", the {MOST_BARS} lowest of {len(several)}" if len(several) > MOST_BARS else ""
    plots = plot("Tasks passed, by tag", by_tag) + plot(f"Trials passed, by task{more}", map(_task_bar, shown))
    note = '<p class="soft">A thin line is the 95 % interval: where the true rate may lie.</p>\n'
    return f"<h2>Pass rates</h2>\n{note}{plots}" if plots else ""


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
    by_task: dict[str, list[Outcome]] = {}
    for outcome in sorted(outcomes_of(run.results), key=lambda outcome: (outcome.task_id, outcome.trial)):
        by_task.setdefault(outcome.task_id, []).append(outcome)
    longest = max((outcome.duration_ms for some in by_task.values() for outcome in some), default=0.0)
    if not longest:
        return ""
    bars = sorted((_duration_bar(task, some, longest) for task, some in by_task.items()), key=lambda bar: -bar.length)
    more = f", the {MOST_BARS} slowest of {len(bars)} tasks" if len(bars) > MOST_BARS else ""
    ticks = "; each tick is one trial" if any(bar.ticks for bar in bars) else ""
    return f"<h2>Time</h2>\n{plot(f'Mean of a trial{more}{ticks}', bars[:MOST_BARS])}"


def _duration_bar(task: str, trials: list[Outcome], longest: float) -> Bar:
    middle = sum(outcome.duration_ms for outcome in trials) / len(trials)
    ticks = tuple(outcome.duration_ms / longest for outcome in trials[:MOST_TICKS]) if len(trials) > 1 else ()
    return Bar(task, middle / longest, seconds(middle), None, ticks)
