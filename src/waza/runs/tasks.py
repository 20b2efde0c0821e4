"""Tasks over all of their trials: status by the pass rule, scores, time, tokens; and the run's numbers over its tasks.

The numbers have their uncertainty: repeats, intervals, bounds over what is undecided, groups of tasks.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import islice
from math import comb
from sys import intern
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from waza.compact import CompactList, where
from waza.model import JSON, USAGE_NUMBERS, Result, ResultStatus, Run, Usage
from waza.runs.outcomes import TrialOutcome, outcomes_of
from waza.stats.intervals import bounded_mean, exact_share
from waza.stats.scores import UNDECIDED, Bootstrap, Interval, Score, bounds, mean, mean_score, settled, std_dev

TOLERANCE = 1e-9
"""How far a number may stay below a threshold and still reach it: what floating point loses."""


class TaskSummary(Struct, frozen=True, kw_only=True):
    """A task in numbers."""

    id: str
    name: str
    tags: list[str]
    golden: bool
    status: ResultStatus
    reason: str
    passed: int
    failed: int
    errors: int
    """Undecided trials, including those that were not run."""
    skipped: int
    not_run: int
    pass_rate: float | None
    """Of the trials that were not skipped, the share that passed."""
    pass_rate_ci: Interval | None
    score: Score
    score_ci: Bootstrap | None
    """Of the weighted score over trials, where two at least have one."""
    min_score: float | None
    max_score: float | None
    std_dev: float | None
    duration_ms: float
    usage: Usage | None
    attempts: int = 1
    """How often its most repeated trial was started."""
    metadata: dict[str, JSON] = field(default_factory=dict)
    """The suite's description of the task for readers."""
    settled: bool | None = None
    """Where `auto` chose the number of trials: whether they settle on which side of the pass rule the pass rate is.

    None where the number was fixed. The interval of the pass rate is then one that is valid at every look, and pass
    rate and score are estimates of a task whose trials were stopped by their outcomes.
    """

    @property
    def is_flaky(self) -> bool:
        """Whether some trials passed and some failed."""
        return self.passed > 0 and self.failed > 0


def summarize_tasks(run: Run) -> Sequence[TaskSummary]:
    """Return every task of the run in the spec's order; tasks the spec does not list are at the end, by id."""
    outcomes = outcomes_of(run.results)
    first: dict[str, int] = {}
    others: dict[str, list[int]] = {}
    for place, outcome in enumerate(outcomes):
        if first.setdefault(outcome.task_id, place) != place:
            others.setdefault(outcome.task_id, []).append(place)

    def trials(task_id: str) -> list[TrialOutcome]:
        if task_id not in first:
            return []
        return sorted([outcomes[place] for place in (first[task_id], *others.get(task_id, ()))], key=_by_trial)

    tasks = run.suite.tasks
    places = {intern(str(task["id"])): place for place, task in enumerate(tasks)}
    rule = TaskRule.of(run)
    summaries = (rule.summarize(tasks[place], trials(task_id)) for task_id, place in places.items())
    found = CompactList(summaries, TaskSummary)
    for task_id in sorted(first.keys() - places.keys()):
        found.append(rule.summarize({"id": task_id}, trials(task_id)))
    return found


def _by_trial(outcome: TrialOutcome) -> int:
    return outcome.trial


class TaskRule(NamedTuple):
    """How a run makes one verdict of a task's trials."""

    planned: int
    """How many trials a task was to have."""
    passes: JSON
    """The pass rule: all, any, or the share of trials that must pass."""
    most: int | None = None
    """Where `auto` chose the number of trials: the largest one."""

    @classmethod
    def of(cls, run: Run) -> TaskRule:
        """Return the rule of a run."""
        config, auto = run.suite.config, run.suite.auto_trials
        most = auto.get("most") if isinstance(auto, dict) else None
        return cls(config.trials, config.pass_rule, most if isinstance(most, int) else None)

    def summarize(self, task: dict[str, JSON], trials: Sequence[TrialOutcome]) -> TaskSummary:
        """Return a task in numbers, from the outcomes of its trials in order."""
        if len(trials) == 1:  # nearly always, and then there is nothing to add up
            [only] = trials
            statuses: tuple[ResultStatus, ...] = (only.status,)
            scores: tuple[Score, ...] = (only.score,)
            duration_ms = only.duration_ms
        else:
            statuses, scores = tuple([trial.status for trial in trials]), tuple([trial.score for trial in trials])
            duration_ms = math.fsum([trial.duration_ms for trial in trials])
        numbers = _numbers(statuses, scores, max(0, self.planned - len(trials)), self.passes, self.most)
        tags = task.get("tags")
        return replace(
            numbers,
            id=str(task["id"]),
            name=str(task.get("name") or task["id"]),
            tags=[str(tag) for tag in tags] if tags else [],
            golden=bool(task.get("golden")),
            metadata=found if isinstance(found := task.get("metadata"), dict) else {},
            reason=_reason(numbers.status, trials, numbers.not_run),
            duration_ms=duration_ms,
            usage=total_usage([trial.usage for trial in trials]),
            attempts=max((trial.attempts for trial in trials), default=1),
        )


@lru_cache(maxsize=1024, typed=True)
def _numbers(
    statuses: Sequence[ResultStatus], scores: Sequence[Score], not_run: int, rule: JSON, most: int | None
) -> TaskSummary:
    """Return the numbers of a task without its name, shared: thousands of tasks have few different ones."""
    passed, failed, skipped = statuses.count("passed"), statuses.count("failed"), statuses.count("skipped")
    errors = len(statuses) - passed - failed - skipped + not_run
    graded = [score for score, status in zip(scores, statuses, strict=True) if status != "skipped"]
    values = [score.value for score in graded if score.value is not None]
    weighted = [score.weighted for score in graded if score.weighted is not None]
    total = passed + failed + errors
    return TaskSummary(
        id="",
        name="",
        tags=[],
        golden=False,
        status=_status(rule, passed, failed, errors),
        reason="",
        passed=passed,
        failed=failed,
        errors=errors,
        skipped=skipped,
        not_run=not_run,
        pass_rate=passed / total if total else None,
        pass_rate_ci=exact_share(passed, total) if most is None else _always_valid(passed, failed, errors),
        settled=None if most is None else _is_settled(rule, passed, failed, most),
        score=mean_score(graded + [UNDECIDED] * not_run),
        score_ci=bounded_mean(weighted) if len(weighted) > 1 else None,
        min_score=min(values, default=None),
        max_score=max(values, default=None),
        std_dev=std_dev(values),
        duration_ms=0.0,
        usage=None,
    )


def _always_valid(passed: int, failed: int, errors: int) -> Interval | None:
    """Return an interval that is valid though the outcomes decided when to stop; undecided trials widen it."""
    if not passed + failed + errors:
        return None
    lower, upper = bounds(passed, failed + errors)[0], bounds(passed + errors, failed)[1]
    return Interval(lower=lower, upper=upper, mean=passed / (passed + failed + errors))


def _is_settled(rule: JSON, passed: int, failed: int, most: int) -> bool:
    """Return whether the trials settle a task against its pass rule; `all` and `any` may need all trials for that."""
    if isinstance(rule, str):
        return passed + failed >= most or bool(failed if rule == "all" else passed)
    return bool(settled(passed, failed, float(rule)))


def _status(rule: JSON, passed: int, failed: int, errors: int) -> ResultStatus:
    """Return the task's status: decided only when no undecided trial could change it."""
    total = passed + failed + errors
    if not total:
        return "skipped"
    needed = passes_needed(rule, total)
    if passed >= needed:
        return "passed"
    return "failed" if passed + errors < needed else "error"


def passes_needed(rule: JSON, trials: int) -> int:
    """Return how many of the trials must pass for the task to pass."""
    return trials if rule == "all" else 1 if rule == "any" else max(1, math.ceil(float(rule) * trials - TOLERANCE))


def _reason(status: ResultStatus, trials: Sequence[TrialOutcome], not_run: int) -> str:
    reasons = [trial.reason for trial in trials if trial.status == status and trial.reason]
    return reasons[0] if reasons else "not run" if status == "error" and not_run else ""


def total_usage(usages: Iterable[Usage | None]) -> Usage | None:
    """Return the total usage; a number that was never recorded stays None, and so does one with an invalid part."""
    total = UsageTotal()
    for usage in usages:
        total.add(usage)
    return total.usage()


class UsageTotal:
    """Adds up what trials consumed."""

    def __init__(self) -> None:
        self._totals: dict[str, list[float]] = {}
        self._invalid: dict[str, str] = {}
        self._is_known = False

    def add(self, usage: Usage | None) -> None:
        """Count what a trial consumed."""
        if usage is None:
            return
        self._is_known = True
        for name in USAGE_NUMBERS:
            number = getattr(usage, name)
            if number is not None:
                self._totals.setdefault(name, []).append(number)
        self._invalid |= usage.invalid_numbers

    def usage(self) -> Usage | None:
        """Return the total usage; None where no trial has any."""
        if not self._is_known:
            return None
        sums = {
            name: math.fsum(numbers) if name == "cost_usd" else sum(numbers)
            for name, numbers in self._totals.items()
            if name not in self._invalid
        }
        return Usage(**sums, invalid_numbers=self._invalid)  # type: ignore[arg-type]


def by_task(run: Run, tasks: Sequence[TaskSummary]) -> Iterator[tuple[TaskSummary, Iterator[Result]]]:
    """Yield the tasks with their trials; results in the tasks' order are read one at a time."""
    order = {task.id: number for number, task in enumerate(tasks)}
    trials = array("q", [0]) * len(tasks)
    is_in_order, last = True, (-1, 0)
    for outcome in outcomes_of(run.results):
        key = (order[outcome.task_id], outcome.trial)
        is_in_order, last = is_in_order and last <= key, key
        trials[key[0]] += 1
    in_order: Iterable[Result] = run.results
    if not is_in_order:
        in_order = sorted(run.results, key=lambda result: (order[result.task_id], result.trial))
    results = iter(in_order)
    for number, task in enumerate(tasks):
        yield task, islice(results, trials[number])


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


class TrialMean(Struct, frozen=True, kw_only=True):
    """The mean over tasks of an unbounded number; no interval covers the mean of skewed ones."""

    mean: float
    tasks: int


class PerTrial(Struct, frozen=True, kw_only=True):
    """What one trial takes, in the mean, over tasks; None where it was not recorded."""

    duration_ms: TrialMean | None
    tokens: TrialMean | None
    cost_usd: TrialMean | None


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
        pass_rate_ci=exact_share(passed, total),
        pass_rate_low=passed / total if total else None,
        pass_rate_high=(passed + undecided) / total if total else None,
        score=score.value,
        weighted_score=score.weighted,
        score_ci=bounded_mean(weighted) if len(weighted) > 1 else None,
        score_low=score.low,
        score_high=score.high,
    )


def per_trial(outcomes: Sequence[TrialOutcome]) -> PerTrial:
    """Return what a trial takes: the mean over tasks of their trials' means."""
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


def _over_tasks(numbers: dict[str, list[float]]) -> TrialMean | None:
    middle = mean([mean(some) or 0.0 for some in numbers.values()])
    return None if middle is None else TrialMean(mean=middle, tasks=len(numbers))


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
