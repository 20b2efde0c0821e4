"""A run's numbers with their uncertainty: repeats, intervals, bounds over what is undecided, groups of tasks."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from math import comb

from msgspec import Struct

from waza.compact import where
from waza.model import Run
from waza.runs.outcomes import TrialOutcome
from waza.runs.tasks import TaskSummary, summarize_tasks
from waza.stats.resampling import Bootstrap, bootstrap_mean
from waza.stats.scores import Interval, mean, mean_score, wilson


class Part(Struct, frozen=True, kw_only=True):
    """Some tasks of a run in numbers, or all of them."""

    name: str
    tasks: int
    passed: int
    undecided: int
    """Undecided tasks."""
    pass_rate: float | None
    pass_rate_ci: Interval | None
    """Wilson's interval over tasks."""
    pass_rate_low: float | None
    """If all undecided tasks had failed."""
    pass_rate_high: float | None
    """If all of them had passed."""
    score: float | None
    """The unweighted mean."""
    weighted_score: float | None
    score_ci: Bootstrap | None
    """Of the weighted score, whole tasks resampled."""
    score_low: float | None
    score_high: float | None


class PerTrial(Struct, frozen=True, kw_only=True):
    """What one trial takes, in the mean, over tasks; None where it was not recorded."""

    duration_ms: Bootstrap | None
    tokens: Bootstrap | None
    cost_usd: Bootstrap | None


class RunStatistics(Struct, frozen=True, kw_only=True):
    """A run's numbers with their uncertainty."""

    whole: Part
    pass_at_k: list[float]
    """The chance that at least one of 1, 2, … trials of a task passes; over decided trials."""
    pass_hat_k: list[float]
    """The chance that all of 1, 2, … trials of a task pass (pass^k)."""
    flaky_tasks: int
    flakiness: float | None
    """The mean over tasks of the share of trials that disagree with the majority."""
    by_tag: list[Part]


def statistics_of(run: Run, tasks: Sequence[TaskSummary] | None = None) -> RunStatistics:
    """Return a run's numbers with their uncertainty; `tasks` where they are summarized already."""
    tasks = summarize_tasks(run) if tasks is None else tasks
    graded = where(tasks, lambda task: task.status != "skipped")
    tallies = [(task.passed, task.passed + task.failed) for task in graded if task.passed + task.failed]
    return RunStatistics(
        whole=part_of("all", graded),
        pass_at_k=pass_at_curve(tallies),
        pass_hat_k=pass_hat_curve(tallies),
        flaky_tasks=sum(task.is_flaky for task in graded),
        flakiness=mean([share for tally in tallies if (share := flakiness(*tally)) is not None]),
        by_tag=_by_tag(graded),
    )


def _by_tag(tasks: Sequence[TaskSummary]) -> list[Part]:
    tags = sorted({tag for task in tasks for tag in task.tags})
    return [part_of(tag, where(tasks, partial(_has_tag, tag))) for tag in tags]


def _has_tag(tag: str, task: TaskSummary) -> bool:
    return tag in task.tags


def part_of(name: str, tasks: Sequence[TaskSummary]) -> Part:
    """Return some tasks in numbers."""
    statuses, total = [task.status for task in tasks], len(tasks)
    passed, undecided = statuses.count("passed"), statuses.count("error")
    score = mean_score(task.score for task in tasks)
    weighted = array("d", (task.score.weighted for task in tasks if task.score.weighted is not None))
    return Part(
        name=name,
        tasks=len(tasks),
        passed=passed,
        undecided=undecided,
        pass_rate=passed / total if total else None,
        pass_rate_ci=wilson(passed, total),
        pass_rate_low=passed / total if total else None,
        pass_rate_high=(passed + undecided) / total if total else None,
        score=score.value,
        weighted_score=score.weighted,
        score_ci=bootstrap_mean(weighted) if len(weighted) > 1 else None,
        score_low=score.low,
        score_high=score.high,
    )


def per_trial(outcomes: Sequence[TrialOutcome]) -> PerTrial:
    """Return what a trial takes: the mean over tasks of their trials' means, whole tasks resampled."""
    durations: dict[str, list[float]] = {}
    tokens: dict[str, list[float]] = {}
    costs: dict[str, list[float]] = {}
    for outcome in outcomes:
        durations.setdefault(outcome.task_id, []).append(outcome.duration_ms)
        if outcome.usage is not None and outcome.usage.total_tokens is not None:
            tokens.setdefault(outcome.task_id, []).append(outcome.usage.total_tokens)
        if outcome.usage is not None and outcome.usage.cost_usd is not None:
            costs.setdefault(outcome.task_id, []).append(float(outcome.usage.cost_usd))
    return PerTrial(duration_ms=_over_tasks(durations), tokens=_over_tasks(tokens), cost_usd=_over_tasks(costs))


def _over_tasks(numbers: dict[str, list[float]]) -> Bootstrap | None:
    return bootstrap_mean([mean(some) or 0.0 for some in numbers.values()])


# Several trials of one task: how often at least one of k passes, how often all of them do.

MOST_K = 100
"""Where curves end."""


@lru_cache(maxsize=1024)
def pass_at_k(passed: int, trials: int, k: int) -> float:
    """Return the chance that at least one of k trials passes, unbiased; 0 where k is not within the trials."""
    if not 1 <= k <= trials:
        return 0.0
    return 1.0 - comb(trials - passed, k) / comb(trials, k)


@lru_cache(maxsize=1024)
def pass_hat_k(passed: int, trials: int, k: int) -> float:
    """Return the chance that all of k trials pass (pass^k), unbiased; 0 where k is not within the trials."""
    if not 1 <= k <= trials:
        return 0.0
    return comb(passed, k) / comb(trials, k)


def pass_hat_curve(tallies: Sequence[tuple[int, int]]) -> list[float]:
    """Return pass^1, pass^2, … over tasks given as (passed, trials), up to the fewest trials of any."""
    return _curve(pass_hat_k, tallies)


def pass_at_curve(tallies: Sequence[tuple[int, int]]) -> list[float]:
    """Return pass@1, pass@2, … over tasks given as (passed, trials), up to the fewest trials of any."""
    return _curve(pass_at_k, tallies)


def _curve(chance: Callable[[int, int, int], float], tallies: Sequence[tuple[int, int]]) -> list[float]:
    fewest = min((trials for _, trials in tallies), default=0)
    ks = range(1, min(fewest, MOST_K) + 1)
    return [mean([chance(passed, trials, k) for passed, trials in tallies]) or 0.0 for k in ks]


def flakiness(passed: int, trials: int) -> float | None:
    """Return the share of trials that differ from the majority; None without trials."""
    return min(passed, trials - passed) / trials if trials else None


def normalized_gain(before: float, after: float) -> float:
    """Return how much of the possible improvement was reached: (after - before) / (1 - before)."""
    if before >= 1.0 or before == after:
        return 0.0
    return (after - before) / (1.0 - before)
