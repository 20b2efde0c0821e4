"""Suite-level numbers about tool use, from stored results alone: `summary.tool_metrics` of results.json."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from statistics import fmean, median

from waza.model import JSON, Result, Run

_BUCKETS = (0, 1, 2, 5, 10, 20, 50)
"""The most calls of each bucket of the histogram; one more bucket holds the rest."""


def tool_metrics(run: Run) -> dict[str, JSON] | None:
    """Return how the run's agent used its tools; None when no trial's tool calls were recorded.

    `selection_accuracy`: of tasks with a tool expectation, the share whose first call was of an expected tool (a task
    with several trials counts with its share of trials). `input_correctness`: of the calls assigned to an expectation
    with arguments, the share whose arguments all matched. `call_count`: calls per trial. `success_rate`: of all calls,
    the share that succeeded. Each is None where there is nothing to count.
    """
    observed = [result for result in run.results if result.trace.tool_events is not None]
    if not observed:
        return None
    calls = [event.success for result in observed for event in result.trace.tool_events or []]
    return {
        "selection_accuracy": _selection_accuracy(observed),
        "input_correctness": _mean([fit for result in observed for fit in _assigned(result)]),
        "call_count": _distribution([len(result.trace.tool_events or []) for result in observed]),
        "success_rate": _mean(calls),
    }


def _selection_accuracy(results: Sequence[Result]) -> float | None:
    """Return the mean over tasks; a task's first calls are looked at in every trial that was decided."""
    by_task: dict[str, list[bool]] = {}
    for result in results:
        fits = [grade.details["first_call_fits"] for grade in result.grades if "first_call_fits" in grade.details]
        if fits:
            by_task.setdefault(result.task_id, []).append(any(fits))
    return _mean([fmean(trials) for trials in by_task.values()])


def _assigned(result: Result) -> Iterator[bool]:
    """Yield for each call assigned to an expectation with arguments whether they all matched."""
    for grade in result.grades:
        match grade.details.get("alignment"):
            case {"expectations": [*entries]}:
                for entry in entries:
                    yield from _calls_of(entry)


def _calls_of(entry: JSON) -> Iterator[bool]:
    match entry:
        case {"checks_arguments": True, "calls": [*calls]}:
            yield from [True] * len(calls)
            if "nearest" in entry:
                yield False


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


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
