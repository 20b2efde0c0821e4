"""What changed between two runs, by the grades they have: tasks, graders, trials, and the verdict on the difference.

Tasks are paired by id. An undecided trial is never counted as failed: a task without a decided trial on either side
is left out of the tests, and the verdict says whether the undecided trials could change it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from sys import intern
from typing import Literal, NamedTuple

from msgspec.structs import replace

from waza.analysis.changes import (
    CheckChange,
    Comparison,
    Details,
    GraderChange,
    Pairing,
    Side,
    divergence,
    paired,
    task_changes,
)
from waza.analysis.evidence import Case, Evidence, evidence_of, first_trials, pairs_in_order
from waza.compact import where
from waza.model import JSON, Grade, Result, Run
from waza.runs.metrics import tool_metrics
from waza.runs.outcomes import outcomes_of, shown_names
from waza.runs.tasks import per_trial
from waza.stats.difference import MARGIN, DifferenceVerdict, verdict_at_any_time, with_p_value
from waza.stats.intervals import bounded_mean
from waza.stats.paired import holm, mcnemar, sign_flip
from waza.stats.scores import mean

MOST_DETAILS = 50
"""Flips whose trials are read and shown in full."""
FLIPS = ("broke", "mended", "undecided")
CASES: tuple[Case, ...] = ("best", "worst")


def compare(
    before: Run,
    after: Run,
    *,
    on: Literal["pass", "score"] = "pass",
    margin: float = MARGIN,
    these_tasks: bool = False,
    anytime: bool = False,
) -> Comparison:
    """Return what changed from one run to the other, judged by the grades they have.

    With `anytime` the verdict is one that stays valid however often one looks while a run grows.
    """
    pairing = paired(before, after)
    on_passing = evidence_of(before, after, pairing.pairs, "pass", these_tasks=these_tasks)
    on_scores = evidence_of(before, after, pairing.pairs, "score", these_tasks=these_tasks)
    passing, scores = on_passing.passing_verdict(margin), on_scores.score_verdict(margin)
    verdict = scores if on == "score" and scores else passing
    if anytime:
        differences = pairs_in_order(before, after, pairing.pairs, on)
        verdict = verdict_at_any_time(differences, len(on_passing.samples()), margin=margin)
    is_auto = any(run.spec.get("auto_trials") for run in (before, after))
    changes = task_changes(pairing.pairs, tested=not is_auto)
    details = read_details(before, after, [change.id for change in changes if change.kind in FLIPS][:MOST_DETAILS])
    return Comparison(
        before=_side(before, pairing, 0),
        after=_side(after, pairing, 1),
        on=on,
        verdict=verdict,
        passing=passing,
        scores=scores,
        mcnemar_p=mcnemar(*(sum(change.kind == kind for change in changes) for kind in ("mended", "broke"))),
        holds=_holds(on_passing, passing) if on == "pass" else _scores_hold(on_scores, scores),
        tasks=[replace(change, details=details[change.id]) if change.id in details else change for change in changes],
        graders=grader_changes(
            before, after, {intern(task.id) for task in pairing.pairs.side(0)}, first_trials(before, after)
        ),
        removed=pairing.removed,
        added=pairing.added,
        asked_otherwise=pairing.asked_otherwise,
        notes=[on_passing.note] if on_passing.note else [],
    )


def among(found: Sequence[Comparison]) -> list[Comparison]:
    """Return comparisons with one baseline, each verdict adjusted for how many of them there are (Holm)."""
    adjusted = holm([comparison.verdict.p_value for comparison in found])
    correction = f"Holm over {len(found)} comparisons"
    return [_adjusted(one, p_value, correction) for one, p_value in zip(found, adjusted, strict=True)]


def _adjusted(found: Comparison, p_value: float, correction: str) -> Comparison:
    """Return a comparison with another p-value, wherever it shows the one of its verdict."""
    verdict = with_p_value(found.verdict, p_value, correction)
    if found.verdict is found.scores:
        return replace(found, verdict=verdict, scores=verdict)
    if found.verdict is not found.passing:
        return replace(found, verdict=verdict)
    return replace(found, verdict=verdict, passing=verdict)


def _holds(evidence: Evidence, verdict: DifferenceVerdict) -> bool:
    """Return whether the verdict on passing is the same whatever the undecided trials were."""
    if not evidence.is_open:
        return True
    cases = (evidence.passing_verdict(verdict.margin, case, brief=True) for case in CASES)
    return all(case.word == verdict.word for case in cases)


def _scores_hold(evidence: Evidence, verdict: DifferenceVerdict | None) -> bool:
    """Return whether the verdict on scores is the same whatever the undecided grades were."""
    if verdict is None or not evidence.is_open:
        return True
    cases = (evidence.score_verdict(verdict.margin, case, brief=True) for case in CASES)
    return all(case is not None and case.word == verdict.word for case in cases)


def grader_changes(before: Run, after: Run, tasks: set[str], first: int | None = None) -> list[GraderChange]:
    """Return each grader's mean score in both runs, over the tasks where both have decided grades of that name."""
    ones, others = _grader_scores(before, tasks, first), _grader_scores(after, tasks, first)
    # The test by task needs as many trials in both runs, or runs that both stopped by the same rule.
    is_cut = not all(run.spec.get("auto_trials") for run in (before, after)) or first is not None
    found: list[GraderChange] = []
    for name in ones:
        its = others.get(name, {})
        shared = [task_id for task_id in ones[name] if task_id in its]
        most = [_count(ones[name][task_id], its[task_id]) if is_cut else None for task_id in shared]
        befores, afters = (
            [_mean(side[task_id], number) for task_id, number in zip(shared, most, strict=True)]
            for side in (ones[name], its)
        )
        differences = [after - before for before, after in zip(befores, afters, strict=True)]
        if shared:
            found.append(
                GraderChange(
                    name=name,
                    before=mean(befores) or 0.0,
                    after=mean(afters) or 0.0,
                    difference=mean(differences) or 0.0,
                    interval=bounded_mean(differences, -1.0),
                    p_value=sign_flip(differences),
                    tasks=len(shared),
                )
            )
    adjusted = holm([change.p_value for change in found])
    found = [replace(change, p_value=p_value) for change, p_value in zip(found, adjusted, strict=True)]
    return sorted(found, key=lambda change: (-abs(change.difference), change.name))


def _count(*sides: float | list[float]) -> int:
    return min(len(side) if isinstance(side, list) else 1 for side in sides)


def _mean(scores: float | list[float], most: int | None) -> float:
    return (mean(scores[:most]) or 0.0) if isinstance(scores, list) else scores


def _grader_scores(run: Run, tasks: set[str], first: int | None) -> dict[str, dict[str, float | list[float]]]:
    """Return by grader and task the scores that were decided; a number outside 0 to 1 is no score.

    The score of a task with one trial, as most of thousands have, is no list: that takes a quarter of the memory.
    """
    scores: dict[str, dict[str, float | list[float]]] = {}
    for result in run.results:
        if result.task_id in tasks and (first is None or result.trial <= first):
            for name, grade in zip(shown_names(result), result.grades, strict=True):
                if grade.status != "error" and 0.0 <= grade.score <= 1.0:
                    of_grader, task_id = scores.setdefault(name, {}), intern(result.task_id)
                    known = of_grader.get(task_id)
                    if isinstance(known, list):
                        known.append(grade.score)
                    else:
                        of_grader[task_id] = grade.score if known is None else [known, grade.score]
    return scores


def _side(run: Run, pairing: Pairing, which: int) -> Side:
    tasks = pairing.pairs.side(which)
    ids = {intern(task.id) for task in tasks}
    takes = per_trial(where(outcomes_of(run.results), lambda outcome: outcome.task_id in ids))
    return Side(
        id=run.id,
        name=run.name,
        engine=run.engine,
        model=run.model,
        pass_rate=mean([task.passed / (task.passed + task.failed) for task in tasks if task.passed + task.failed]),
        passed=sum(task.status == "passed" for task in tasks),
        total=len(tasks),
        score=mean([task.score.weighted for task in tasks if task.score.weighted is not None]),
        undecided=sum(task.errors for task in tasks),
        duration_ms=takes.duration_ms,
        tokens=takes.tokens,
        cost_usd=takes.cost_usd,
        tools=tool_metrics(run),
    )


def read_details(before: Run, after: Run, ids: Iterable[str]) -> dict[str, Details]:
    """Return for each task one trial of each run, as unlike as there are, and what differs between them."""
    ids = list(ids)
    places = [_places(run, set(ids)) for run in (before, after)]
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
        divergence=divergence(one.trace.tool_events, other.trace.tool_events),
    )


def _places(run: Run, tasks: set[str]) -> dict[str, list[tuple[int, str]]]:
    """Return by task the positions of its results, and their statuses."""
    places: dict[str, list[tuple[int, str]]] = {}
    for place, outcome in enumerate(outcomes_of(run.results)):
        if outcome.task_id in tasks:
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
