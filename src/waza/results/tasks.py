"""One task over all of its trials: its status by the pass rule, its scores, time and tokens."""

from __future__ import annotations

import math
from collections.abc import Iterable

from msgspec import Struct

from waza.model import JSON, Result, ResultStatus, Run, Usage
from waza.results.scores import UNDECIDED, Interval, Score, mean_score, score_of_grades, std_dev, wilson

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
    """Trials nobody can tell, those that were not run among them."""
    skipped: int
    not_run: int
    pass_rate: float | None
    """Of the trials that were not skipped, the share that passed."""
    pass_rate_ci: Interval | None
    score: Score
    min_score: float | None
    max_score: float | None
    std_dev: float | None
    duration_ms: float
    usage: Usage | None

    @property
    def is_flaky(self) -> bool:
        """Whether some trials passed and some failed."""
        return self.passed > 0 and self.failed > 0


def summarize_tasks(run: Run) -> list[TaskSummary]:
    """Return every task of the run in the spec's order; tasks the spec does not list stand at the end, by id."""
    by_task: dict[str, list[Result]] = {}
    for result in sorted(run.results, key=lambda result: (result.task_id, result.trial)):
        by_task.setdefault(result.task_id, []).append(result)
    tasks = {str(task["id"]): task for task in run.spec.get("tasks") or []}
    tasks |= {task_id: {"id": task_id} for task_id in by_task if task_id not in tasks}
    config = run.spec.get("config") or {}
    return [_summarize(task, by_task.get(task_id, []), config) for task_id, task in tasks.items()]


def _summarize(task: dict[str, JSON], results: list[Result], config: dict[str, JSON]) -> TaskSummary:
    statuses = [result.status for result in results]
    passed, failed, skipped = statuses.count("passed"), statuses.count("failed"), statuses.count("skipped")
    not_run = max(0, int(config.get("trials_per_task") or 1) - len(results))
    errors = statuses.count("error") + not_run
    status = _status(config.get("pass_rule", "all"), passed, failed, errors)
    trials = [score_of_grades(result.grades) for result in results if result.status != "skipped"]
    scores = [score.value for score in trials if score.value is not None]
    total = passed + failed + errors
    return TaskSummary(
        id=str(task["id"]),
        name=str(task.get("name") or task["id"]),
        tags=[str(tag) for tag in task.get("tags") or []],
        golden=bool(task.get("golden")),
        status=status,
        reason=_reason(status, results, not_run),
        passed=passed,
        failed=failed,
        errors=errors,
        skipped=skipped,
        not_run=not_run,
        pass_rate=passed / total if total else None,
        pass_rate_ci=wilson(passed, total),
        score=mean_score(trials + [UNDECIDED] * not_run),
        min_score=min(scores, default=None),
        max_score=max(scores, default=None),
        std_dev=std_dev(scores),
        duration_ms=math.fsum(duration_of(result) for result in results),
        usage=total_usage(result.trace.usage for result in results),
    )


def _status(rule: JSON, passed: int, failed: int, errors: int) -> ResultStatus:
    """Return the task's status: decided only when no undecided trial could change it."""
    total = passed + failed + errors
    if not total:
        return "skipped"
    needed = total if rule == "all" else 1 if rule == "any" else max(1, math.ceil(float(rule) * total - TOLERANCE))
    if passed >= needed:
        return "passed"
    return "failed" if passed + errors < needed else "error"


def _reason(status: ResultStatus, results: list[Result], not_run: int) -> str:
    told = [result.reason for result in results if result.status == status and result.reason]
    return told[0] if told else "not run" if status == "error" and not_run else ""


def duration_of(result: Result) -> float:
    """Return how long a trial took in milliseconds; 0 where that was not recorded."""
    duration = result.duration_ms or result.trace.duration_ms or 0.0
    return float(duration) if 0.0 <= duration < math.inf else 0.0


def total_usage(usages: Iterable[Usage | None]) -> Usage | None:
    """Return what was consumed in all; a number nobody recorded stays None, a negative one was not recorded."""
    totals: dict[str, list[float]] = {}
    known = [usage for usage in usages if usage is not None]
    for usage in known:
        for name in _COUNTED:
            number = getattr(usage, name)
            if number is not None and 0 <= number < math.inf:
                totals.setdefault(name, []).append(number)
    sums = {name: math.fsum(numbers) if name == "cost_usd" else sum(numbers) for name, numbers in totals.items()}
    return Usage(**sums) if known else None  # type: ignore[arg-type]


_COUNTED = tuple(name for name in Usage.__struct_fields__ if name != "extra")
