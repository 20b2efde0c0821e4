"""One task over all of its trials: its status by the pass rule, its scores, time and tokens."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from sys import intern
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from waza.compact import CompactList
from waza.model import JSON, USAGE_NUMBERS, Result, ResultStatus, Run, Usage
from waza.runs.outcomes import TrialOutcome, outcomes_of
from waza.stats.resampling import Bootstrap, bootstrap_mean
from waza.stats.scores import UNDECIDED, Interval, Score, mean_score, std_dev, wilson

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

    @classmethod
    def of(cls, run: Run) -> TaskRule:
        """Return the rule of a run."""
        config = run.suite.config
        return cls(config.trials, config.pass_rule)

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
        numbers = _numbers(statuses, scores, max(0, self.planned - len(trials)), self.passes)
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
def _numbers(statuses: Sequence[ResultStatus], scores: Sequence[Score], not_run: int, rule: JSON) -> TaskSummary:
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
        pass_rate_ci=wilson(passed, total),
        score=mean_score(graded + [UNDECIDED] * not_run),
        score_ci=bootstrap_mean(weighted) if len(weighted) > 1 else None,
        min_score=min(values, default=None),
        max_score=max(values, default=None),
        std_dev=std_dev(values),
        duration_ms=0.0,
        usage=None,
    )


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
