"""Gates: what a run must reach, decided on the interval and not only on the point.

A gate is met when its number reaches what is needed, and `sure` also needs the whole interval there. Where the number
falls short, the gate is missed if the whole interval does; otherwise nobody can tell yet. What undecided trials could
change is never decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from waza.compact import where
from waza.model import GradeStatus, Run
from waza.results.outcomes import outcomes_of
from waza.results.stats.baseline import gates_against
from waza.results.stats.needs import Gate, Needs
from waza.results.stats.partial import gaps_of, ran_alone, whole_suite, without
from waza.results.stats.suite import Part, part_of
from waza.results.summary import Summary, summarize
from waza.results.tasks import TOLERANCE, TaskSummary, summarize_tasks
from waza.results.triggers import trigger_metric
from waza.spending import NO_COSTS


def gates(run: Run, needs: Needs, against: tuple[Run, Run] | None = None, *, allow_partial: bool = False) -> list[Gate]:
    """Return every gate that is asked for; `against` is the baseline and the run, both by the same graders.

    What a partial run lacks is undecided, and so is the first gate, which names it; with `allow_partial` only what was
    run counts.
    """
    gaps, before = gaps_of(run), gaps_of(against[0]) if against is not None else []
    if allow_partial:
        run, against = ran_alone(run), (without(against[0], run), ran_alone(against[1])) if against else None
    else:
        run, against = whole_suite(run), (against[0], whole_suite(against[1])) if against else None
    tasks = where(summarize_tasks(run), lambda task: task.status != "skipped")
    found = [*_thresholds(run, tasks, summarize(run), needs), *_golden(tasks, needs)]
    found += list(gates_against(*against, needs)) if against is not None else []
    partial = [Gate(name="whole suite", status="error", reason=gap.fact, tasks=gap.tasks) for gap in gaps]
    # What the baseline lacks is not compared, like a new task; which is told, and no gate.
    found += [Gate(name="whole baseline", status="passed", reason=gap.fact, tasks=gap.tasks) for gap in before]
    return [*partial, *found] if found and not allow_partial else found


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
        yield _trigger(summary, needs.trigger_accuracy, needs.sure)
    if needs.cost_usd is not None:
        yield _cost(run, summary, needs.cost_usd)
    if needs.duration_s is not None:
        yield _at_most("duration", summary.duration_ms / 1000, needs.duration_s)


def _tagged(tag: str, tasks: Sequence[TaskSummary]) -> Part:
    return part_of(tag, where(tasks, lambda task: tag in task.tags))


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
    interval = (ci.lower, ci.upper) if ci and ci.tells else (part.score_low, part.score_high)
    return _reached(name, (part.score_low, part.score_high), interval, needed, sure)


def _reached(name: str, ends: tuple[float, float], interval: tuple[float, float], needed: float, sure: bool) -> Gate:
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


def _trigger(summary: Summary, needed: float, sure: bool) -> Gate:
    """Return whether these prompts reach it, as the metric `trigger_accuracy` decides; `sure` asks for the interval."""
    if summary.triggers is None:
        return Gate(name="trigger accuracy", status="error", needed=needed, reason="the run has no trigger tests")
    metric = trigger_metric(summary.triggers)
    if metric.low is None or metric.high is None:
        return Gate(name="trigger accuracy", status="error", needed=needed, reason=metric.reason)
    ends, ci = (metric.low, metric.high), summary.triggers.accuracy_ci
    low, high = (min(ci.lower, ends[0]), max(ci.upper, ends[1])) if ci else ends
    status, reason = _decided(ends, (low, ends[1]), needed - TOLERANCE, sure)
    reason = "not reached" if status == "failed" else reason
    value = metric.value
    return Gate(name="trigger accuracy", status=status, value=value, needed=needed, low=low, high=high, reason=reason)


def _cost(run: Run, summary: Summary, needed: float) -> Gate:
    """Return whether agents and judges cost no more; a cost that was not recorded leaves it open."""
    costs = summary.costs or NO_COSTS
    trials = [outcome.costs.without_cost > 0 for some in (run.results, run.triggers) for outcome in outcomes_of(some)]
    gate = _at_most("cost", costs.total_usd, needed)
    if gate.status == "failed" or (summary.cost_usd is not None and not costs.without_cost):
        return gate
    lacking = sum(trials) if summary.cost_usd is not None else len(trials)
    reason = f"{lacking} of {len(trials)} trials have a cost that was not recorded"
    return replace(gate, status="error", value=summary.cost_usd, reason=reason)


def _at_most(name: str, value: float, needed: float) -> Gate:
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
