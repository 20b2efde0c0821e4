"""Metrics of a run: those an author declares, with gates where they have a threshold, and numbers about tool use.

Each entry of `run.spec["metrics"]` has a `name` and may have `threshold`, `weight`, `grader`, `tag`. A gate is met or
missed only when no undecided grade, check or trial could change that; otherwise the metric is undecided.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil
from statistics import fmean, median

from msgspec import Struct
from msgspec.structs import replace

from waza.model import JSON, Check, Grade, GradeStatus, Run, StoredSuite
from waza.runs.grader_facts import has_fact, stored_grader_facts
from waza.runs.outcomes import outcomes_of
from waza.runs.tasks import TOLERANCE, TaskSummary
from waza.stats.scores import Score, mean_score, score_of_grades

_EXPECTED_BEHAVIOR = "behavior"
"""The name of the grader that `expected: behavior:` makes; it is a composite, whose type tells nothing about it."""
_COMPLETION = "task_completion"
_LIMIT = "at most "
"""How the claim of every upper bound begins."""

Wanted = Callable[[str, str], bool]
"""Whether a grader of this name and type is meant."""


class Metric(Struct, frozen=True, kw_only=True):
    """One declared number, and whether its gate was met."""

    name: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    threshold: float | None = None
    weight: float = 1.0
    status: GradeStatus = "passed"
    """`passed` without a threshold; `error` when it is undecided."""
    reason: str = ""
    computed_as: str = ""
    """The metric it is computed as, where its name is none that is known."""

    @property
    def note(self) -> str:
        """What every report shows next to the value; empty where there is nothing to note."""
        return f"(as {self.computed_as})" if self.computed_as else ""


def measure(
    run: Run, tasks: Sequence[TaskSummary], known: Mapping[str, Metric]
) -> tuple[list[Metric], float | None, list[str]]:
    """Return the run's metrics, their weighted mean, and warnings; `known` are those computed elsewhere."""
    metrics: list[Metric] = []
    warnings: list[str] = []
    for entry in run.suite.metrics:
        metric, warning = _measure(entry, run, tasks, known)
        threshold, weight = entry.get("threshold"), entry.get("weight")
        metric = replace(metric, threshold=threshold, weight=1.0 if weight is None else float(weight))
        metrics.append(_gated(metric))
        warnings += [warning] if warning else []
    return metrics, _overall(metrics), warnings


def _measure(
    entry: dict[str, JSON], run: Run, tasks: Sequence[TaskSummary], known: Mapping[str, Metric]
) -> tuple[Metric, str]:
    name = str(entry["name"])
    if entry.get("grader"):
        return _of_grader(name, str(entry["grader"]), run, tasks), ""
    if entry.get("tag"):
        return _of_tag(name, str(entry["tag"]), tasks), ""
    if name in known:
        return known[name], ""
    if name == "trigger_accuracy":
        return _nothing(name, "no trigger tests were run"), ""
    if name == "behavior_quality":
        return _of_checks(name, _behavior_checks(run, tasks)), ""
    if name == "efficiency":
        limits = [check for check in _behavior_checks(run, tasks) if check is None or _LIMIT in check.claim]
        return _of_checks(name, limits), ""
    if name in _grader_names(run):
        return _of_grader(name, name, run, tasks), ""
    if any(name in task.tags for task in tasks):
        return _of_tag(name, name, tasks), ""
    metric = _completion(name, tasks)
    if name == _COMPLETION:
        return metric, ""
    warning = f"metric '{name}' names no grader or tag of this run: computed as {_COMPLETION}"
    return replace(metric, computed_as=_COMPLETION), warning


def _completion(name: str, tasks: Sequence[TaskSummary]) -> Metric:
    """Return the share of tasks that passed."""
    counted = [task.status for task in tasks if task.status != "skipped"]
    if not counted:
        return _nothing(name, "no task was run")
    passed, undecided = counted.count("passed"), counted.count("error")
    share = passed / len(counted)
    return Metric(name=name, value=share, low=share, high=(passed + undecided) / len(counted))


def _of_checks(name: str, checks: Sequence[Check | None]) -> Metric:
    """Return the share of decided checks that passed; None is a check that could not be made."""
    if not checks:
        return _nothing(name, "no grader of this run makes such checks")
    passed_checks = sum(check is not None and check.ok is True for check in checks)
    undecided = sum(check is None or check.ok is None for check in checks)
    decided = len(checks) - undecided
    value = passed_checks / decided if decided else None
    return Metric(
        name=name, value=value, low=passed_checks / len(checks), high=(passed_checks + undecided) / len(checks)
    )


def _of_grader(name: str, grader: str, run: Run, tasks: Sequence[TaskSummary]) -> Metric:
    trials = _grades_by_trial(run, tasks, lambda its_name, _: its_name == grader)
    return _of_scores(name, map(score_of_grades, trials), f"no grader named '{grader}' gave a verdict")


def _of_tag(name: str, tag: str, tasks: Sequence[TaskSummary]) -> Metric:
    scores = [task.score for task in tasks if tag in task.tags and task.status != "skipped"]
    return _of_scores(name, scores, f"no task tagged '{tag}' was run")


def _of_scores(name: str, scores: Iterable[Score], nothing: str) -> Metric:
    score = mean_score(list(scores))
    if score.low is None:
        return _nothing(name, nothing)
    return Metric(name=name, value=score.weighted, low=score.low, high=score.high)


def _nothing(name: str, reason: str) -> Metric:
    return Metric(name=name, status="error", reason=reason)


def _gated(metric: Metric) -> Metric:
    """Return the metric with its verdict; only what no undecided part could change is decided."""
    if metric.low is None or metric.high is None:
        return replace(metric, status="error", reason=metric.reason or "nothing was decided")
    if metric.threshold is None:
        return replace(metric, status="error" if metric.value is None else "passed")
    needed = metric.threshold - TOLERANCE
    if metric.low >= needed:
        return replace(metric, status="passed")
    if metric.high < needed:
        return replace(metric, status="failed", reason=f"{metric.high:.4g} is below {metric.threshold:g}")
    reason = f"between {metric.low:.4g} and {metric.high:.4g} over what is undecided; {metric.threshold:g} is needed"
    return replace(metric, status="error", reason=reason)


def _overall(metrics: Sequence[Metric]) -> float | None:
    """Return the weighted mean of the metrics that have a value."""
    known = [(metric.value, metric.weight) for metric in metrics if metric.value is not None]
    weight = math.fsum(weight for _, weight in known)
    return min(1.0, math.fsum(value * weight for value, weight in known) / weight) if weight else None


def _behavior_checks(run: Run, tasks: Sequence[TaskSummary]) -> list[Check | None]:
    facts = stored_grader_facts(run.suite)

    def checks_behavior(name: str, kind: str) -> bool:
        return has_fact(facts, kind, "checks_behavior") or name == _EXPECTED_BEHAVIOR

    checks: list[Check | None] = []
    for grades in _grades_by_trial(run, tasks, checks_behavior):
        checks += [None] if not grades else []
        for grade in grades:
            checks += grade.checks or [None]
    return checks


def _grades_by_trial(run: Run, tasks: Sequence[TaskSummary], wanted: Wanted) -> Iterator[list[Grade]]:
    """Yield, for each trial that has such graders, their grades; an empty list where it could not be graded."""
    suite = run.suite
    for result in run.results:
        grades = [grade for grade in result.grades if wanted(grade.name, grade.type)]
        ungraded = not result.grades and result.status != "skipped" and _expects(suite, result.task_id, wanted)
        if grades or ungraded:
            yield grades
    for task in tasks:
        if task.not_run and _expects(suite, task.id, wanted):
            yield from ([] for _ in range(task.not_run))


def _expects(suite: StoredSuite, task_id: str, wanted: Wanted) -> bool:
    """Return whether a task has such a grader; True when the suite does not list graders."""
    graders = suite.graders_of(task_id)
    return graders is None or any(wanted(name, kind) for name, kind in map(_name_and_type, graders))


def _grader_names(run: Run) -> set[str]:
    planned = (_name_and_type(grader)[0] for grader in run.suite.every_grader)
    return {grade.name for result in run.results for grade in result.grades} | set(planned)


def _name_and_type(grader: dict[str, JSON]) -> tuple[str, str]:
    kind = str(grader.get("type", ""))
    return str(grader.get("name") or kind), kind


_BUCKETS = (0, 1, 2, 5, 10, 20, 50)
"""The most calls of each bucket of the histogram; one more bucket has the rest."""


def tool_metrics(run: Run) -> dict[str, JSON] | None:
    """Return how the run's agent used its tools; None when no trial's tool calls were recorded.

    `selection_accuracy`: of tasks that expect tools, the share whose first call is the expected one: the first of an
    ordered expectation, any of an unordered one (a task with several trials counts with its share of trials); what only
    forbids tools does not count. `input_correctness`: of the calls to tools for which an expectation states arguments,
    the share whose arguments all match one of these expectations. `call_count`: calls per trial. `success_rate`: of all
    calls, the share that succeeded. Each is None where there is nothing to count.
    """
    trials = outcomes_of(run.results)
    calls: list[int] = []
    fitting = compared = succeeded = 0
    right: Counter[str] = Counter()
    decided: Counter[str] = Counter()
    for trial in trials:
        use = trial.tools
        if use is None:
            continue
        calls.append(use.calls)
        fitting, compared, succeeded = fitting + use.fitting, compared + use.compared, succeeded + use.succeeded
        if use.first_fits is not None:
            right[trial.task_id] += use.first_fits
            decided[trial.task_id] += 1
    if not calls:
        return None
    # The mean over tasks; a task's first calls count in every trial that was decided.
    accuracy = fmean(right[task_id] / count for task_id, count in decided.items()) if decided else None
    return {
        "selection_accuracy": accuracy,
        "input_correctness": _share(fitting, compared),
        "call_count": _distribution(calls),
        "success_rate": _share(succeeded, sum(calls)),
    }


def _distribution(counts: list[int]) -> dict[str, JSON]:
    ordered = sorted(counts)
    return {
        "min": ordered[0],
        "median": median(ordered),
        "mean": fmean(ordered),
        "p95": ordered[ceil(0.95 * len(ordered)) - 1],
        "max": ordered[-1],
        "histogram": _histogram(ordered),
    }


def _histogram(counts: list[int]) -> dict[str, int]:
    """Return how many trials fell into each bucket: 0, 1, 2, 3-5, 6-10, 11-20, 21-50, 51+."""
    histogram: dict[str, int] = {}
    low = 0
    for high in _BUCKETS:
        label = str(high) if low == high else f"{low}-{high}"
        histogram[label] = sum(low <= count <= high for count in counts)
        low = high + 1
    return histogram | {f"{low}+": sum(count >= low for count in counts)}


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
