"""Two trials of one task, one of each run: the checks that changed and where the trajectories part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from waza.model import JSON, Grade, Result, Run
from waza.results.outcomes import outcomes_of, shown_names
from waza.results.parting import parting
from waza.results.stats.changes import CheckChange, Details


def read_details(before: Run, after: Run, ids: Iterable[str]) -> dict[str, Details]:
    """Return for each task one trial of each run, as unlike as there are, and what differs between them."""
    places = [_places(run) for run in (before, after)]
    found: dict[str, Details] = {}
    for task_id in ids:
        ones, others = (place.get(task_id, []) for place in places)
        if chosen := _unlike(ones, others):
            one, other = before.results[chosen[0]], after.results[chosen[1]]
            found[task_id] = details_of(one, other)
    return found


def details_of(one: Result, other: Result) -> Details:
    """Return what differs between two trials."""
    return Details(
        trial_before=one.trial,
        trial_after=other.trial,
        checks=list(_check_changes(one, other)),
        parting=parting(one.trace.tool_events, other.trace.tool_events),
    )


def _places(run: Run) -> dict[str, list[tuple[int, str]]]:
    """Return by task where its results stand, and their statuses."""
    places: dict[str, list[tuple[int, str]]] = {}
    for place, outcome in enumerate(outcomes_of(run.results)):
        places.setdefault(outcome.task_id, []).append((place, outcome.status))
    return places


def _unlike(ones: list[tuple[int, str]], others: list[tuple[int, str]]) -> tuple[int, int] | None:
    """Return the first two trials with unlike statuses, or the first two."""
    pairs = [(one, other) for one, before in ones for other, after in others if before != after]
    return pairs[0] if pairs else (ones[0][0], others[0][0]) if ones and others else None


def _check_changes(one: Result, other: Result) -> Iterator[CheckChange]:
    befores, afters = _checks(one), _checks(other)
    for key in [*befores, *(key for key in afters if key not in befores)]:
        before, after = befores.get(key), afters.get(key)
        if (before and before.ok) == (after and after.ok) and (before is None) == (after is None):
            continue
        wrong = next((check for check in (after, before) if check and check.ok is not True), None)
        yield CheckChange(
            grader=key[0],
            claim=key[1],
            before=before.ok if before else None,
            after=after.ok if after else None,
            why=wrong.failure if wrong else "",
            expected=wrong.expected if wrong else None,
            actual=wrong.actual if wrong else None,
        )


def _checks(result: Result) -> dict[tuple[str, str], _Claim]:
    found: dict[tuple[str, str], _Claim] = {}
    for name, grade in zip(shown_names(result), result.grades, strict=True):
        for claim in _claims(grade):
            found.setdefault((name, claim.claim), claim)
    return found


class _Claim(NamedTuple):
    claim: str
    ok: bool | None
    failure: str = ""
    expected: JSON = None
    actual: JSON = None


def _claims(grade: Grade) -> Iterator[_Claim]:
    """Yield the checks of a grade; its verdict where it has none."""
    for check in grade.checks:
        yield _Claim(check.claim, check.ok, check.failure, check.expected, check.actual)
    if not grade.checks:
        ok = {"passed": True, "failed": False, "error": None}[grade.status]
        yield _Claim("passes", ok, "" if ok else grade.feedback)
