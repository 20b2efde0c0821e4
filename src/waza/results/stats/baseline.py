"""Gates against a baseline: what must not fall, what must not grow, which tasks must still be there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from waza.model import GradeStatus, Run
from waza.results.outcomes import outcomes_of
from waza.results.scores import mean
from waza.results.stats.needs import Gate, Needs, Policy
from waza.results.stats.paired import sign_flip
from waza.results.stats.pairs import Pair, Pairing, bounds, paired
from waza.results.stats.power import ALPHA
from waza.results.stats.resampling import bootstrap_mean
from waza.results.stats.trigger_change import trigger_gate
from waza.results.tasks import TOLERANCE, TaskSummary, summarize_tasks

Change = Callable[[Pair], float | None]
"""How much a task's number changed; None where that is not decided."""


def gates_against(baseline: Run, run: Run, needs: Needs) -> Iterator[Gate]:
    """Yield the gates against a baseline; both runs are graded by the same graders."""
    pairing = paired(baseline, run)
    yield from _task_sets(pairing, needs)
    golden = [task.id for task in summarize_tasks(baseline) if task.golden and task.id in pairing.removed]
    if golden and needs.golden:
        yield Gate(name="golden tasks of the baseline", status="failed", reason="no longer run", tasks=golden)
    triggers = trigger_gate(baseline, run, needs.drop)
    if triggers is not None:
        yield triggers
        if not pairing.pairs:
            return
    if not pairing.pairs:
        yield Gate(name="against the baseline", status="error", reason="no task in common with it")
        return
    yield _no_drop("pass rate against the baseline", pairing.pairs, _pass_change, _worst_pass_change, needs.drop)
    yield _no_drop("score against the baseline", pairing.pairs, _score_change, _worst_score_change, needs.drop)
    if needs.cost_growth is not None:
        unknown = {task for each in (baseline, run) for task in _without_cost(each)}
        cost = lambda task: None if task.id in unknown else _cost(task)  # noqa: E731
        yield _no_growth("cost a trial against the baseline", pairing.pairs, cost, needs.cost_growth)
    if needs.duration_growth is not None:
        yield _no_growth("duration a trial against the baseline", pairing.pairs, _duration, needs.duration_growth)


def _task_sets(pairing: Pairing, needs: Needs) -> Iterator[Gate]:
    statuses: dict[Policy, GradeStatus] = {"allow": "passed", "warn": "passed", "fail": "failed"}
    asked: list[tuple[str, list[str], Policy]] = [
        ("new tasks", pairing.added, needs.on_new),
        ("removed tasks", pairing.removed, needs.on_removed),
        ("tasks asked otherwise", pairing.asked_otherwise, "warn"),
    ]
    for name, ids, policy in asked:
        if ids and policy != "allow":
            reason = "not compared with the baseline" if policy == "warn" else "not allowed"
            yield Gate(name=name, status=statuses[policy], value=len(ids), reason=reason, tasks=ids)


def _no_drop(
    name: str,
    pairs: Sequence[Pair],
    change: Callable[[Pair], float | None],
    worst: Callable[[Pair], float],
    drop: float,
) -> Gate:
    """Return whether a number fell by more than `drop`: missed only where the exact test shows it.

    `worst` is the change if all that is undecided were against the run.
    """
    changes = [(pair, found) for pair in pairs if (found := change(pair)) is not None]
    if not changes:
        return Gate(name=name, status="error", needed=0.0 - drop, reason="no task was decided in both runs")
    differences = [found for _, found in changes]
    interval = bootstrap_mean(differences)
    value = interval.mean if interval else 0.0
    fell = [pair.before.id for pair, found in changes if found < -drop - TOLERANCE]
    low, high = (interval.lower, interval.upper) if interval else (None, None)
    gate = Gate(name=name, status="passed", value=value, needed=0.0 - drop, low=low, high=high)
    if value < -drop - TOLERANCE:
        return _doubted(replace(gate, tasks=fell), "fell", [found + drop for found in differences])
    if (mean([worst(pair) for pair in pairs]) or 0.0) < -drop - TOLERANCE and any(map(_is_open, pairs)):
        undecided = [pair.before.id for pair in pairs if _is_open(pair)]
        return replace(gate, status="error", reason="the undecided ones could decide it either way", tasks=undecided)
    return gate


def _is_open(pair: Pair) -> bool:
    return bool(pair.before.score.undecided or pair.after.score.undecided)


def _no_growth(name: str, pairs: Sequence[Pair], of: Callable[[TaskSummary], float | None], growth: float) -> Gate:
    """Return whether a number per trial grew by more than the share `growth`."""
    numbers = [(of(pair.before), of(pair.after)) for pair in pairs]
    known = [(one, other) for one, other in numbers if one is not None and other is not None]
    before = math.fsum(one for one, _ in known)
    if not before:
        return Gate(name=name, status="error", needed=growth, reason="not recorded in both runs")
    value = math.fsum(other for _, other in known) / before - 1
    gate = Gate(name=name, status="passed", value=value, needed=growth)
    if value <= growth + TOLERANCE:
        lacking = [pair.before.id for pair, (one, other) in zip(pairs, numbers, strict=True) if None in (one, other)]
        reason = f"not recorded for every trial of {len(lacking)} of {len(pairs)} tasks"
        return replace(gate, status="error", reason=reason, tasks=lacking) if lacking else gate
    return _doubted(gate, "grew", [other - (1 + growth) * one for one, other in known])


def _doubted(gate: Gate, verb: str, differences: Sequence[float]) -> Gate:
    """Return a gate whose number is too far out: missed where the exact test shows it, else undecided."""
    if sign_flip(differences) < ALPHA:
        return replace(gate, status="failed", reason=f"it {verb}, and chance alone would hardly do that")
    return replace(gate, status="error", reason=f"it {verb}, but chance alone might do that")


def _pass_change(pair: Pair) -> float | None:
    return pair.tally.difference if pair.tally else None


def _worst_pass_change(pair: Pair) -> float:
    return bounds([pair])[1][0].difference


def _worst_score_change(pair: Pair) -> float:
    return (pair.after.score.low or 0.0) - (pair.before.score.high or 0.0)


def _score_change(pair: Pair) -> float | None:
    before, after = pair.before.score.weighted, pair.after.score.weighted
    return None if before is None or after is None else after - before


def _without_cost(run: Run) -> set[str]:
    """Return the tasks of which a trial has no recorded cost."""
    outcomes = outcomes_of(run.results)
    return {one.task_id for one in outcomes if one.usage is None or one.usage.cost_usd is None}


def _cost(task: TaskSummary) -> float | None:
    known = task.usage is not None and task.usage.cost_usd is not None
    return float(task.usage.cost_usd or 0) / _trials(task) if known and task.usage else None


def _duration(task: TaskSummary) -> float | None:
    return task.duration_ms / _trials(task)


def _trials(task: TaskSummary) -> int:
    return max(1, task.passed + task.failed + task.errors - task.not_run)
