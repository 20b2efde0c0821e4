"""What did not hold in a trial, as plain text that every report can show; and its trials in the tasks' order."""

from __future__ import annotations

from array import array
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
"""How much of one text about a check is shown."""


class Fault(NamedTuple):
    """One check that did not hold, or of which nobody can tell."""

    grader: str
    is_failure: bool
    """False: nobody can tell."""
    words: str
    expected: str | None = None
    found: str | None = None


def faults(result: Result) -> list[Fault]:
    """Return what did not hold, grader by grader, what failed first; agents' text in it is not made safe yet."""
    found = [fault for name, grade in zip(shown_names(result), result.grades, strict=True)
             for fault in _faults(name, grade.status, grade.feedback, grade.checks)]  # fmt: skip
    return sorted(found, key=lambda fault: not fault.is_failure)


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
    """Return what else to say about the end of a trial that did not pass: attempts, and the end of standard error."""
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
    told = f"{first.grader}: {first.words}" if first else ""
    return " · ".join(part for part in (result.reason, told) if part) or result.status


def places_of(run: Run, statuses: Container[str] = ANY) -> dict[str, list[int]]:
    """Return by task id where its trials stand in the run's results, in their order; only those of some statuses."""
    found: dict[str, list[int]] = {}
    trials = array("q")
    for place, outcome in enumerate(outcomes_of(run.results)):
        trials.append(outcome.trial)
        if outcome.status in statuses:
            found.setdefault(outcome.task_id, []).append(place)
    for places in found.values():
        places.sort(key=trials.__getitem__)
    return found


def trials_of(task: TaskSummary) -> int:
    """Return how many trials the task was to have."""
    return task.passed + task.failed + task.errors + task.skipped


def missing_trials(task: TaskSummary, seen: set[int]) -> Iterator[int]:
    """Yield the numbers of the trials that were not run."""
    return islice((number for number in count(1) if number not in seen), task.not_run)
