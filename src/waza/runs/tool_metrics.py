"""Suite-level numbers about tool use, from stored results alone: `summary.tool_metrics` of results.json."""

from __future__ import annotations

from collections import Counter
from math import ceil
from statistics import fmean, median

from waza.model import JSON, Run
from waza.runs.outcomes import outcomes_of

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
