"""Gates: what a run must reach, decided on the interval and not only on the point.

A gate is met when its number reaches what is needed, and `sure` also needs the whole interval there. Where the number
falls short, the gate is missed if the whole interval does; otherwise it is undecided. What undecided trials could
change is undecided, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from waza.analysis.changes import Pairing, TaskPair, bounds, paired
from waza.compact import where
from waza.errors import EXIT_FAILED, EXIT_PASSED, EXIT_UNDECIDED
from waza.model import GradeStatus, Run
from waza.runs.outcomes import outcomes_of
from waza.runs.partial import gaps_of, ran_alone, whole_suite, without
from waza.runs.summary import Summary, summarize
from waza.runs.tasks import TOLERANCE, Part, TaskSummary, part_of, summarize_tasks
from waza.runs.triggers import WEIGHTS, TriggerAnswer, answers_of, summarize_triggers, trigger_metric, unanswered
from waza.spending import NO_COSTS, NOTHING, Costs
from waza.stats.difference import ALPHA, sign_flip
from waza.stats.scores import bootstrap_mean, mean

Policy = Literal["allow", "warn", "fail"]


class Gate(Struct, frozen=True, kw_only=True):
    """One requirement of a run, and whether it is met."""

    name: str
    status: GradeStatus
    """`error` when it is undecided."""
    value: float | None = None
    needed: float | None = None
    low: float | None = None
    """The interval of the value, where it has one."""
    high: float | None = None
    reason: str = ""
    tasks: list[str] = field(default_factory=list)


class Needs(Struct, frozen=True, kw_only=True):
    """The requirements of a run; those that are None or empty do not apply."""

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


def exit_code(found: Sequence[Gate]) -> int:
    """Return 1 when a gate is missed, else 3 when one is undecided, else 0."""
    statuses = {gate.status for gate in found}
    return EXIT_FAILED if "failed" in statuses else EXIT_UNDECIDED if "error" in statuses else EXIT_PASSED


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
    # What the baseline lacks is not compared, like a new task: that is reported, and fails nothing.
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
    """Return whether agents and judges cost no more; a cost that was not recorded leaves it open.

    Of a run that was graded from another one the agents count as well, though they were paid before.
    """
    costs = (summary.costs or NO_COSTS) + Costs(agent=summary.agents_before or NOTHING)
    trials = [outcome.costs.without_cost > 0 for some in (run.results, run.triggers) for outcome in outcomes_of(some)]
    gate = _at_most("cost", costs.total_usd, needed)
    if gate.status == "failed" or (summary.cost_usd is not None and not costs.without_cost):
        return gate
    lacking = sum(trials) if summary.cost_usd is not None else len(trials)
    reason = f"{lacking} of {len(trials)} trials have a cost that was not recorded"
    known = None if summary.cost_usd is None else costs.total_usd
    return replace(gate, status="error", value=known, reason=reason)


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


Change = Callable[[TaskPair], float | None]
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
        cost = lambda task: None if task.id in unknown else _cost_growth(task)  # noqa: E731
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
    pairs: Sequence[TaskPair],
    change: Callable[[TaskPair], float | None],
    worst: Callable[[TaskPair], float],
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
        return _missed_or_undecided(replace(gate, tasks=fell), "fell", [found + drop for found in differences])
    if (mean([worst(pair) for pair in pairs]) or 0.0) < -drop - TOLERANCE and any(map(_is_open, pairs)):
        undecided = [pair.before.id for pair in pairs if _is_open(pair)]
        return replace(gate, status="error", reason="the undecided ones could decide it either way", tasks=undecided)
    return gate


def _is_open(pair: TaskPair) -> bool:
    return bool(pair.before.score.undecided or pair.after.score.undecided)


def _no_growth(name: str, pairs: Sequence[TaskPair], of: Callable[[TaskSummary], float | None], growth: float) -> Gate:
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
    return _missed_or_undecided(gate, "grew", [other - (1 + growth) * one for one, other in known])


def _missed_or_undecided(gate: Gate, verb: str, differences: Sequence[float]) -> Gate:
    """Return a gate whose number is too far out: missed where the exact test shows it, else undecided."""
    if sign_flip(differences) < ALPHA:
        return replace(gate, status="failed", reason=f"it {verb}, and chance alone would hardly do that")
    return replace(gate, status="error", reason=f"it {verb}, but chance alone might do that")


def _pass_change(pair: TaskPair) -> float | None:
    return pair.tally.difference if pair.tally else None


def _worst_pass_change(pair: TaskPair) -> float:
    return bounds([pair])[1][0].difference


def _worst_score_change(pair: TaskPair) -> float:
    return (pair.after.score.low or 0.0) - (pair.before.score.high or 0.0)


def _score_change(pair: TaskPair) -> float | None:
    before, after = pair.before.score.weighted, pair.after.score.weighted
    return None if before is None or after is None else after - before


def _without_cost(run: Run) -> set[str]:
    """Return the tasks of which a trial has no recorded cost."""
    outcomes = outcomes_of(run.results)
    return {one.task_id for one in outcomes if one.usage is None or one.usage.cost_usd is None}


def _cost_growth(task: TaskSummary) -> float | None:
    known = task.usage is not None and task.usage.cost_usd is not None
    return float(task.usage.cost_usd or 0) / _trials(task) if known and task.usage else None


def _duration(task: TaskSummary) -> float | None:
    return task.duration_ms / _trials(task)


def _trials(task: TaskSummary) -> int:
    return max(1, task.passed + task.failed + task.errors - task.not_run)


NAME = "trigger accuracy against the baseline"
PromptKey = tuple[str, str, bool]
"""What identifies a prompt in both runs: its skill, its text and whether it should trigger; its number may change."""


class Shares(NamedTuple):
    """The answers to one prompt."""

    id: str
    weight: float
    right: float | None
    """The share of right ones among those that are decided; None where none is."""
    low: float
    """Their share if all others were wrong."""
    high: float
    """Their share if all others were right."""


def trigger_gate(before: Run, after: Run, drop: float) -> Gate | None:
    """Return whether the accuracy over the prompts of both runs fell by more than `drop`; None without trigger tests.

    Missed only where the exact test over prompts shows it, never by undecided answers.
    """
    now, then = summarize_triggers(after), summarize_triggers(before)
    if now is None:
        return None
    if then is None:
        return Gate(name=NAME, status="passed", reason="not compared: the baseline has no trigger tests")
    undecided = Gate(name=NAME, status="error", needed=0.0 - drop)
    if invalid := [*then.reasons, *now.reasons]:
        return replace(undecided, reason=f"INVALID: {invalid[0]}")
    old, new = _shares(before), _shares(after)
    both = [(old[key], new[key]) for key in new if key in old]
    changes = [
        (new.id, new.weight, new.right - old.right)
        for old, new in both
        if old.right is not None and new.right is not None
    ]
    if not changes:
        return replace(undecided, reason="no prompt was decided in both runs")
    worst = _mean((new.weight, new.low - old.high) for old, new in both)
    is_open = any(part.low < part.high for pair in both for part in pair)
    return _trigger_change(changes, worst if is_open else 0.0, undecided, drop)


def _trigger_change(by_prompt: Sequence[tuple[str, float, float]], worst: float, gate: Gate, drop: float) -> Gate:
    """Return the gate by how much each prompt changed; `worst` is the change if all undecided were against the run."""
    value, scale = (
        _mean((weight, change) for _, weight, change in by_prompt),
        len(by_prompt) / sum(weight for _, weight, _ in by_prompt),
    )
    changes = [weight * scale * change for _, weight, change in by_prompt]
    interval = bootstrap_mean(changes)
    gate = replace(gate, value=value, low=interval.lower, high=interval.upper) if interval else gate
    fell = [identity for identity, _, change in by_prompt if change < -TOLERANCE]
    if value < -drop - TOLERANCE:
        if sign_flip([change + drop for change in changes]) < ALPHA:
            return replace(gate, status="failed", reason="it fell, and chance alone would hardly do that", tasks=fell)
        return replace(gate, reason="it fell, but chance alone might do that", tasks=fell)
    if worst < -drop - TOLERANCE:
        return replace(gate, reason="the undecided ones could decide it either way")
    return replace(gate, status="passed")


def _mean(weighted: Iterable[tuple[float, float]]) -> float:
    parts = list(weighted)
    return sum(weight * change for weight, change in parts) / sum(weight for weight, _ in parts)


def _shares(run: Run) -> dict[PromptKey, Shares]:
    """Return the answers to each prompt, without the controls."""
    found: dict[PromptKey, list[TriggerAnswer]] = {}
    for answer in [*answers_of(run), *unanswered(run)]:
        if not answer.prompt.control:
            key = (answer.prompt.skill, answer.prompt.prompt, answer.prompt.should_trigger)
            found.setdefault(key, []).append(answer)
    return {key: _shares_of(answers) for key, answers in found.items()}


def _shares_of(answers: Sequence[TriggerAnswer]) -> Shares:
    right, known = sum(a.is_right for a in answers), sum(a.did_trigger is not None for a in answers)
    prompt, total = answers[0].prompt, len(answers)
    share = right / known if known else None
    return Shares(prompt.id, WEIGHTS[prompt.confidence], share, right / total, (right + total - known) / total)
