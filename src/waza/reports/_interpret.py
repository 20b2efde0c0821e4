"""Two or three sentences on what a run's numbers mean."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from waza.model import Run
from waza.reports._text import percent, plural
from waza.results.summary import Summary, summarize
from waza.results.tasks import TaskSummary, summarize_tasks


def interpret(run: Run) -> str:
    """Return what a person should take from the run, and what to look at next."""
    return " ".join(_sentences(summarize(run), summarize_tasks(run), run))


def _sentences(summary: Summary, tasks: Sequence[TaskSummary], run: Run) -> Iterator[str]:
    if summary.total_tests == 0:
        yield "Nothing was run."
        return
    yield _verdict(summary)
    if (interval := summary.success_rate_ci) is not None:
        width = interval.upper - interval.lower
        if width > 0.3:
            yield (
                f"With {plural(summary.total_tests, 'task')} the true pass rate may lie anywhere between "
                f"{percent(interval.lower)} and {percent(interval.upper)}; add tasks or trials before comparing runs."
            )
    flaky = [task.id for task in tasks if task.is_flaky]
    worst = [task for task in tasks if task.status == "failed"]
    if flaky:
        some = ", ".join(flaky[:3])
        yield f"{plural(len(flaky), 'task')} sometimes passed and sometimes failed ({some}): look there first."
    elif worst:
        task = min(worst, key=lambda task: task.score.weighted or 0.0)
        command = shlex.join(["waza", "show", run.id, "--task", task.id])
        yield f"Start with '{task.id}', the failed task with the lowest score: {command}"


def _verdict(summary: Summary) -> str:
    if summary.succeeded == summary.total_tests:
        return "Every claim held in every task."
    parts = []
    if summary.failed:
        parts.append(f"in {plural(summary.failed, 'task')} the agent did not do what was claimed")
    if summary.errors:
        parts.append(
            f"for {plural(summary.errors, 'task')} nobody can tell, because evidence or the agent itself was missing"
        )
    if summary.skipped:
        parts.append(f"{plural(summary.skipped, 'task')} was not graded")
    rest = " and ".join(parts)
    return f"{summary.succeeded} of {plural(summary.total_tests, 'task')} passed: {rest}."
