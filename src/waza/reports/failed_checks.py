"""The failed and undecided checks of a trial, as plain text for every report; and the places of a task's trials."""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import count, islice
from typing import NamedTuple, TypeVar

from waza.model import JSON, Check, Result, Run
from waza.runs.outcomes import outcomes_of, shown_names
from waza.runs.tasks import TaskSummary
from waza.untrusted.json import encode
from waza.untrusted.text import clipped

T = TypeVar("T")
ANY = ("passed", "failed", "error", "skipped")
LONGEST = 2_000
"""Characters of one text about a check that are shown."""


class Fault(NamedTuple):
    """A check that failed, or that is undecided."""

    grader: str
    is_failure: bool
    """False: undecided."""
    words: str
    expected: str | None = None
    found: str | None = None


def faults(result: Result) -> list[Fault]:
    """Return the failed checks, then the undecided ones; text of agents in them is not escaped yet."""
    every = [fault for name, grade in zip(shown_names(result), result.grades, strict=True)
             for fault in _faults(name, grade.status, grade.feedback, grade.checks)]  # fmt: skip
    return sorted(every, key=lambda fault: not fault.is_failure)


def _faults(name: str, status: str, feedback: str, checks: list[Check]) -> Iterator[Fault]:
    if status == "passed":
        return
    wrong = [check for check in checks if check.ok is not True]
    if not wrong:
        yield Fault(name, status == "failed", clipped(feedback, LONGEST))
    for check in wrong:
        words = clipped(check.failure or check.claim, LONGEST)
        is_failure = check.ok is False
        yield Fault(name, is_failure, words, shown_value(check.expected), shown_value(check.actual))


def shown_value(value: JSON, most: int = LONGEST) -> str | None:
    """Return what was expected or found as text; None where there is none."""
    if value is None:
        return None
    return clipped(value if isinstance(value, str) else encode(value).decode(), most)


def ending(result: Result) -> list[str]:
    """Return how a trial that did not pass ended: its attempts, and the last lines of standard error."""
    lines = [f"{result.attempts} attempts"] if result.attempts > 1 else []
    trace = result.trace
    if trace.crash is not None:
        lines += trace.crash.stderr.split("\n") if "\n" in trace.crash.stderr else []
    elif trace.status == "timeout" and trace.error:
        lines += trace.error.split("\n")
    return lines


def headline(result: Result) -> str:
    """Return in one line why a trial did not pass."""
    first = next(iter(faults(result)), None)
    failure = f"{first.grader}: {first.words}" if first else ""
    return " · ".join(part for part in (result.reason, failure) if part) or result.status


def places_of(run: Run, statuses: Container[str] = ANY) -> dict[str, list[int]]:
    """Return by task id the places of its trials in the run's results, by trial; only those of some statuses."""
    places_by_task: dict[str, list[int]] = {}
    trials: list[int] = []  # no array: the numbers of a foreign file may be of any size
    for place, outcome in enumerate(outcomes_of(run.results)):
        trials.append(outcome.trial)
        if outcome.status in statuses:
            places_by_task.setdefault(outcome.task_id, []).append(place)
    for places in places_by_task.values():
        places.sort(key=trials.__getitem__)
    return places_by_task


def trials_of(task: TaskSummary) -> int:
    """Return how many trials the task was to have."""
    return task.passed + task.failed + task.errors + task.skipped


def missing_trials(task: TaskSummary, known: set[int]) -> Iterator[int]:
    """Yield the numbers of the trials that were not run."""
    return islice((number for number in count(1) if number not in known), task.not_run)
