"""Which trials a run consists of, in which order."""

from __future__ import annotations

from collections.abc import Iterator

from waza.model import Trial
from waza.spec.suite import EvalSpec


def plan(spec: EvalSpec, *, trials: int | None = None, model: str | None = None) -> Iterator[Trial]:
    """Yield every trial of every task, tasks in the order of the suite."""
    for task in spec.tasks:
        for number in range(1, (trials or fewest_trials(spec)) + 1):
            yield Trial(task=task, number=number, model=model if model is not None else spec.config.model)


def fewest_trials(spec: EvalSpec) -> int:
    """Return how often each task is tried at least."""
    return 1 if spec.config.trials_per_task == "auto" else spec.config.trials_per_task


def concurrency(spec: EvalSpec, workers: int | None = None) -> int:
    """Return how many trials run at once: `workers`, else the suite's, else 4 if it is parallel, else 1."""
    return workers or spec.config.workers or (4 if spec.config.parallel else 1)
