"""Gates: what a run must reach, decided on the interval and not only on the point.

A gate is met when its number reaches what is needed, and `sure` also needs the whole interval there. Where the number
falls short, the gate is missed if the whole interval does; otherwise nobody can tell yet. What undecided trials could
change is never decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct, field

from waza.model import GradeStatus, Run
from waza.results.stats.paired import sign_flip
from waza.results.stats.pairs import Pair, Pairing, paired
from waza.results.stats.power import ALPHA
from waza.results.stats.resampling import bootstrap_mean
from waza.results.stats.suite import Part, part_of
from waza.results.summary import Summary, summarize
from waza.results.tasks import TOLERANCE, TaskSummary, summarize_tasks

Policy = Literal["allow", "warn", "fail"]


class Gate(Struct, frozen=True, kw_only=True):
    """One thing a run must reach, and whether it does."""

    name: str
    status: GradeStatus
    """`error` when nobody can tell."""
    value: float | None = None
    needed: float | None = None
    low: float | None = None
    """The interval of the value, where it has one."""
    high: float | None = None
    reason: str = ""
    tasks: list[str] = field(default_factory=list)


class Needs(Struct, frozen=True, kw_only=True):
    """What is asked of a run; what is None or empty is not asked."""

    pass_rate: float | None = None
    score: float | None = None
    tag_pass_rates: Mapping[str, float] = {}
    tag_scores: Mapping[str, float] = {}
    trigger_accuracy: float | None = None
    cost_usd: float | None = None
    """At most, in all."""
    duration_s: float | None = None
    golden: bool = True
    """Whether every golden task must pass."""
    sure: bool = False
    drop: float = 0.0
    """How much pass rate or score may fall against the baseline."""
    cost_growth: float | None = None
    """How much the cost of a trial may grow against the baseline, as a share."""
    duration_growth: float | None = None
    on_new: Policy = "allow"
    on_removed: Policy = "warn"


def gates(run: Run, needs: Needs, baseline: Run | None = None) -> list[Gate]:
    """Return every gate that is asked for."""
    tasks = [task for task in summarize_tasks(run) if task.status != "skipped"]
    summary = summarize(run)
    found = [*_thresholds(run, tasks, summary, needs), *_golden(tasks, needs)]
    return found + (list(_against(run, baseline, needs)) if baseline is not None else [])


def _thresholds(run: Run, tasks: Sequence[TaskSummary], summary: Summary, needs: Needs) -> Iterator[Gate]:
    whole = part_of("all", tasks)
    if needs.pass_rate is not None:
        yield _rate("pass rate", whole, needs.pass_rate, needs.sure)
    if needs.score is not None:
        yield _score("score", whole, needs.score, needs.sure)
    for tag, needed in needs.tag_pass_rates.items():
        yield _rate(f"pass rate of {tag}", _tagged(tag, tasks), needed, needs.sure)
    for tag, needed in needs.tag_scores.items():
        yield _score(f"score of {tag}", _tagged(tag, tasks), needed, needs.sure)
    if needs.trigger_accuracy is not None:
        yield _trigger(summary, needs.trigger_accuracy)
    usage = summary.usage
    if needs.cost_usd is not None:
        yield _at_most("cost", float(usage.cost_usd) if usage and usage.cost_usd is not None else None, needs.cost_usd)
    if needs.duration_s is not None:
        yield _at_most("duration", summary.duration_ms / 1000, needs.duration_s)


def _tagged(tag: str, tasks: Sequence[TaskSummary]) -> Part:
    return part_of(tag, [task for task in tasks if tag in task.tags])


def _rate(name: str, part: Part, needed: float, sure: bool) -> Gate:
    if part.pass_rate_low is None or part.pass_rate_high is None or part.pass_rate_ci is None:
        return Gate(name=name, status="error", needed=needed, reason="no such task was run")
    ci = part.pass_rate_ci
    ends = (part.pass_rate_low, part.pass_rate_high)
    return _reached(name, ends, (ci.lower, ci.upper), needed, sure)


def _score(name: str, part: Part, needed: float, sure: bool) -> Gate:
    if part.score_low is None or part.score_high is None:
        return Gate(name=name, status="error", needed=needed, reason="nothing was decided")
    ci = part.score_ci
    interval = (ci.lower, ci.upper) if ci and ci.num_bootstraps else (part.score_low, part.score_high)
    return _reached(name, (part.score_low, part.score_high), interval, needed, sure)


def _reached(
    name: str, ends: tuple[float, float], interval: tuple[float, float], needed: float, sure: bool
) -> Gate:
    """Return whether a number reaches what is needed; `ends` are its worst and best case over what is undecided."""
    worst, best = ends
    low, high = min(interval[0], worst), max(interval[1], best)
    status, reason = _decided(ends, (low, high), needed - TOLERANCE, sure)
    return Gate(name=name, status=status, value=worst, needed=needed, low=low, high=high, reason=reason)


def _decided(
    ends: tuple[float, float], interval: tuple[float, float], needed: float, sure: bool
) -> tuple[GradeStatus, str]:
    worst, best = ends
    if worst >= needed:
        if sure and interval[0] < needed:
            return "error", "reached, but the interval goes below it"
        return "passed", ""
    if best >= needed:
        return "error", "the undecided ones could decide it either way"
    if interval[1] < needed:
        return "failed", "not reached, and neither by any value within the interval"
    return "error", "not reached, but within the interval: too little evidence to call it missed"


def _trigger(summary: Summary, needed: float) -> Gate:
    metric = next((metric for metric in summary.metrics if metric.name == "trigger_accuracy"), None)
    if metric is None or metric.low is None or metric.high is None:
        return Gate(name="trigger accuracy", status="error", needed=needed, reason="the run has no trigger tests")
    return _reached("trigger accuracy", (metric.low, metric.high), (metric.low, metric.high), needed, False)


def _at_most(name: str, value: float | None, needed: float) -> Gate:
    if value is None:
        return Gate(name=name, status="error", needed=needed, reason="not recorded")
    return Gate(name=name, status="passed" if value <= needed + TOLERANCE else "failed", value=value, needed=needed)


def _golden(tasks: Sequence[TaskSummary], needs: Needs) -> Iterator[Gate]:
    golden = [task for task in tasks if task.golden]
    if not needs.golden or not golden:
        return
    wrong = [task.id for task in golden if task.status == "failed"]
    unknown = [task.id for task in golden if task.status == "error"]
    status: GradeStatus = "failed" if wrong else "error" if unknown else "passed"
    reason = "did not pass" if wrong else "undecided" if unknown else ""
    share = sum(task.status == "passed" for task in golden) / len(golden)
    yield Gate(name="golden tasks", status=status, value=share, needed=1.0, reason=reason, tasks=wrong or unknown)


def _against(run: Run, baseline: Run, needs: Needs) -> Iterator[Gate]:
    pairing = paired(baseline, run)
    yield from _task_sets(pairing, needs)
    if not pairing.pairs:
        yield Gate(name="against the baseline", status="error", reason="no task in common with it")
        return
    yield _no_drop("pass rate against the baseline", pairing.pairs, _pass_change, needs.drop)
    yield _no_drop("score against the baseline", pairing.pairs, _score_change, needs.drop)
    if needs.cost_growth is not None:
        yield _no_growth("cost a trial against the baseline", pairing.pairs, _cost, needs.cost_growth)
    if needs.duration_growth is not None:
        yield _no_growth("duration a trial against the baseline", pairing.pairs, _duration, needs.duration_growth)


def _task_sets(pairing: Pairing, needs: Needs) -> Iterator[Gate]:
    statuses: dict[Policy, GradeStatus] = {"allow": "passed", "warn": "passed", "fail": "failed"}
    for name, ids, policy in (
        ("new tasks", pairing.added, needs.on_new),
        ("removed tasks", pairing.removed, needs.on_removed),
        ("tasks asked otherwise", pairing.asked_otherwise, "warn"),
    ):
        if ids and policy != "allow":
            reason = "not compared with the baseline" if policy == "warn" else "not allowed"
            yield Gate(name=name, status=statuses[policy], value=len(ids), reason=reason, tasks=ids)  # type: ignore[index]


def _no_drop(name: str, pairs: Sequence[Pair], change: Callable[[Pair], float | None], drop: float) -> Gate:
    """Return whether a number fell by more than `drop`: missed only where the exact test shows it."""
    changes = [(pair, found) for pair in pairs if (found := change(pair)) is not None]
    if not changes:
        return Gate(name=name, status="error", needed=-drop, reason="no task was decided in both runs")
    differences = [found for _, found in changes]
    interval = bootstrap_mean(differences)
    value = interval.mean if interval else 0.0
    fell = [pair.before.id for pair, found in changes if found < -drop - TOLERANCE]
    gate = Gate(
        name=name,
        status="passed",
        value=value,
        needed=-drop,
        low=interval.lower if interval else None,
        high=interval.upper if interval else None,
    )
    if value >= -drop - TOLERANCE:
        return gate
    shown = sign_flip([found + drop for found in differences]) < ALPHA
    return _missed(gate, fell) if shown else _unclear(gate, fell)


def _missed(gate: Gate, tasks: list[str]) -> Gate:
    from msgspec.structs import replace

    return replace(gate, status="failed", reason="it fell, and chance alone would hardly do that", tasks=tasks)


def _unclear(gate: Gate, tasks: list[str]) -> Gate:
    from msgspec.structs import replace

    return replace(gate, status="error", reason="it fell, but chance alone might do that", tasks=tasks)


def _no_growth(name: str, pairs: Sequence[Pair], of: Callable[[TaskSummary], float | None], growth: float) -> Gate:
    numbers = [(of(pair.before), of(pair.after)) for pair in pairs]
    known = [(one, other) for one, other in numbers if one is not None and other is not None]
    before = sum(one for one, _ in known)
    if not known or not before:
        return Gate(name=name, status="error", needed=growth, reason="not recorded in both runs")
    value = sum(other for _, other in known) / before - 1
    if value <= growth + TOLERANCE:
        return Gate(name=name, status="passed", value=value, needed=growth)
    shown = sign_flip([other - (1 + growth) * one for one, other in known]) < ALPHA
    gate = Gate(name=name, status="passed", value=value, needed=growth)
    return _missed(gate, []) if shown else _unclear(gate, [])
