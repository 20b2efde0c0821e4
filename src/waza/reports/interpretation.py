"""A run in a few sentences and lines of numbers, and where its tasks are written."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from waza.model import Run
from waza.runs.outcomes import TrialOutcome
from waza.runs.summary import Summary, summarize
from waza.runs.tasks import TaskSummary, statistics_of, summarize_tasks
from waza.stats.scores import Interval
from waza.untrusted.text import percent, plural, score, seconds


def interpret(run: Run) -> str:
    """Return what the numbers mean, and which task to look at first."""
    return " ".join(_sentences(summarize(run), summarize_tasks(run), run))


def _sentences(summary: Summary, tasks: Sequence[TaskSummary], run: Run) -> Iterator[str]:
    if summary.total_tests == 0:
        yield "Nothing was run."
        return
    yield _verdict(summary)
    if (interval := headline_rate(summary)[1]) is not None:
        width = interval.upper - interval.lower
        if width > 0.3:
            known = f"{summary.decided} decided tasks" if summary.errors else plural(summary.total_tests, "task")
            yield (
                f"With {known} the true pass rate may lie anywhere between "
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
        return "Every check passed in every task."
    parts = []
    if summary.failed:
        parts.append(f"in {plural(summary.failed, 'task')} the agent failed a check")
    if summary.errors:
        parts.append(
            f"{plural(summary.errors, 'task')} could not be decided, because evidence or the agent itself was missing"
        )
    if summary.skipped:
        parts.append(f"{plural(summary.skipped, 'task')} was not graded")
    rest = " and ".join(parts)
    tasks = passed_count(summary) if summary.errors else f"{summary.succeeded} of {plural(summary.total_tests, 'task')}"
    return f"{tasks} passed: {rest}."


def rate_line(summary: Summary) -> str:
    """Return how many tasks passed, with the interval, and how many did not."""
    if summary.errors:
        parts = [f"{passed_count(summary)} passed{_spread(summary)}, {undecided_words(summary)}"]
    else:
        parts = [f"{summary.succeeded} of {plural(summary.total_tests, 'task')} passed{_spread(summary)}"]
    for count, noun in ((summary.failed, "failed"), (summary.skipped, "not graded")):
        parts += [f"{count} {noun}"] if count else []
    return " · ".join(parts)


def passed_count(summary: Summary) -> str:
    """Return how many tasks passed, of those that are decided where some are not: `5 of 5 decided tasks`."""
    return f"{summary.succeeded} of {summary.decided} decided {'task' if summary.decided == 1 else 'tasks'}"


def undecided_words(summary: Summary) -> str:
    """Return how many tasks are undecided, with the pass rate's worst and best case: `15 undecided: 25–100 %`."""
    low, high = summary.rate_bounds
    return f"{summary.errors} undecided: {low * 100:.0f}–{percent(high)}"


def headline_rate(summary: Summary) -> tuple[float | None, Interval | None]:
    """Return the pass rate with its interval, of the decided tasks where some are not."""
    if summary.errors:
        return summary.decided_rate, summary.decided_rate_ci
    return summary.success_rate, summary.success_rate_ci


def _spread(summary: Summary) -> str:
    share, interval = headline_rate(summary)
    if interval is None or (summary.decided if summary.errors else summary.total_tests) < 2:
        return ""
    return f" ({percent(share)}, 95 % interval {interval.lower * 100:.0f}–{percent(interval.upper)})"


def times_of(timed: Summary | TrialOutcome) -> str:
    """Return the agent's time, and next to it the judges' where there is some."""
    judged = f" (and {seconds(timed.judge_duration_ms)} of judging)" if (timed.judge_duration_ms or 0) >= 1 else ""
    return f"{seconds(timed.duration_ms)}{judged}"


def numbers_line(summary: Summary) -> str:
    """Return score, time, tokens and cost, as far as they are known."""
    parts = [f"score {score(summary.weighted_score)}"] if summary.total_tests or summary.triggers is None else []
    if summary.undecided and summary.score_low is not None:
        parts[0] += f" (between {score(summary.score_low)} and {score(summary.score_high)} with the undecided)"
    parts.append(times_of(summary))
    judged = f" (and {summary.judge_tokens:,} of judging)" if summary.judge_tokens else ""
    if summary.agent_tokens is not None:
        parts.append(f"{summary.agent_tokens:,} tokens{judged}")
    elif judged:
        parts.append(f"{summary.judge_tokens:,} tokens of judging")
    parts += [" ".join(part for part in costs_of_run(summary) if part)] if summary.cost_usd is not None else []
    return " · ".join(parts)


def costs_of_run(summary: Summary) -> tuple[str, str]:
    """Return what a run was billed, and how that is made up; empty where no cost was reported."""
    if summary.cost_usd is None:
        return "", ""
    costs, parts = summary.costs, []
    if costs is not None and costs.judge.cost_usd:
        parts += [f"agent ${costs.agent.cost_usd:.4f}"] if summary.agents_before is None else []
        parts.append(f"judge ${costs.judge.cost_usd:.4f}")
    if costs is not None and costs.without_cost:
        parts.append(f"{plural(costs.without_cost, 'cost')} not known")
    if summary.agents_before is not None and summary.agents_before.cost_usd:
        parts.append(f"its agents ${summary.agents_before.cost_usd:.4f} before it was graded")
    return f"${summary.cost_usd:.4f}", f"({', '.join(parts)})" if parts else ""


def repeats_line(run: Run) -> str:
    """Return the score's interval and what repeated trials say; empty where there is nothing to report."""
    statistics = statistics_of(run)
    parts: list[str] = []
    rate, interval = statistics.whole.pass_rate_ci, statistics.whole.score_ci
    if interval and rate and (abs(interval.lower - rate.lower) > 0.005 or abs(interval.upper - rate.upper) > 0.005):
        parts.append(f"score's 95 % interval {score(interval.lower)}–{score(interval.upper)}")
    if len(statistics.pass_hat_k) > 1:
        k = len(statistics.pass_hat_k)
        parts.append(f"pass@{k} {score(statistics.pass_at_k[-1])}, pass^{k} {score(statistics.pass_hat_k[-1])}")
        parts += [f"{plural(statistics.flaky_tasks, 'flaky task')}"] if statistics.flaky_tasks else []
    return " · ".join(parts)


class TaskLocation(NamedTuple):
    """Where a task is written."""

    file: Path
    line: int

    def relative_to(self, folder: Path) -> str:
        """Return the file as seen from a folder, with forward slashes; absolute where it is outside."""
        inside = self.file.is_relative_to(folder.resolve())
        return (self.file.relative_to(folder.resolve()) if inside else self.file).as_posix()


def spot_of(run: Run, task_id: str) -> TaskLocation | None:
    """Return where a task of a stored run is written; None where the run does not say."""
    place = run.suite.places.get(task_id) or {}
    suite, file, line = run.suite.file, place.get("file"), place.get("line")
    if not run.folder or not isinstance(file, str) or not isinstance(line, int):
        return None
    # A stored run is not trusted: the path is only printed, never opened on this machine.
    where = os.path.normpath(Path(run.folder).resolve().parent / suite / ".." / file)
    return TaskLocation(Path(where), line)
