"""Gates: what a run must reach, decided on the interval and not only on the point.

A gate is met when its number reaches what is needed, and `sure` also needs the whole interval there. Where the number
falls short, the gate is missed if the whole interval does; otherwise it is undecided. What undecided trials could
change is undecided, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from waza.analysis.changes import Pairing, TaskPair, paired
from waza.analysis.corrected_rate import corrected_rates
from waza.analysis.evidence import FAILED, PASSED, UNDECIDED, Case, Evidence, PairedTrials, Sample, Trials, evidence_of
from waza.compact import where
from waza.errors import EXIT_FAILED, EXIT_PASSED, EXIT_UNDECIDED
from waza.model import GradeStatus, Run
from waza.runs.outcomes import outcomes_of
from waza.runs.partial import gaps_of, ran_alone, whole_suite, without
from waza.runs.summary import Summary, summarize
from waza.runs.tasks import TOLERANCE, Part, TaskSummary, part_of, summarize_tasks
from waza.runs.triggers import WEIGHTS, TriggerAnswer, answers_of, summarize_triggers, trigger_metric, unanswered
from waza.spending import NO_COSTS, NOTHING, Costs
from waza.stats.difference import MARGIN
from waza.stats.paired import holm, sign_flip
from waza.stats.power import ALPHA, ENOUGH
from waza.stats.scores import mean

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
    p_value: float | None = None
    """Against a baseline: one-sided, of a drop; adjusted where `correction` says so."""
    correction: str = ""
    """How the p-value was adjusted: `Holm over 2 comparisons`."""
    power: float | None = None
    """In what share of such runs a drop of `margin` would have been found, where it can be simulated."""
    trials_needed: int | None = None
    """How many trials of each task would find it in four of five runs, where these do not."""
    note: str = ""
    """Which trials the comparison leaves out."""


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
    corrected: bool = False
    """Whether the pass rate is corrected for the judges' error, by their calibrations."""
    drop: float = 0.0
    """How much pass rate or score may fall against the baseline."""
    margin: float = MARGIN
    """A drop larger than this that is not shown is undecided."""
    these_tasks: bool = True
    """Whether the question is about these very tasks, not about tasks like them."""
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
    if needs.pass_rate is not None and needs.corrected:
        yield from _corrected(run, whole, needs.pass_rate, needs.sure)
    elif needs.pass_rate is not None:
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


def _corrected(run: Run, whole: Part, needed: float, sure: bool) -> Iterator[Gate]:
    """Yield the corrected pass rate of each judge; the raw one too where other graders take part in it."""
    rates = {rate.grader: rate for rate in corrected_rates(run)}
    graders = {grade.name: "judge" in grade.details or "jury" in grade.details
               for result in run.results for grade in result.grades}  # fmt: skip
    if len(graders) != 1 or not any(graders.values()):
        yield _rate("pass rate", whole, needed, sure)
    for name in (name for name, asks_judge in graders.items() if asks_judge):
        rate, title = rates.get(name), f"corrected pass rate of {name}"
        if rate is None or rate.corrected is None:
            why = rate.reason if rate else f"no calibration of this judge: waza calibrate --grader {name}"
            yield Gate(name=title, status="error", needed=needed, reason=why)
            continue
        middle, ends = rate.corrected.mean, (rate.corrected.lower, rate.corrected.upper)
        yield _reached(title, (middle, middle), ends, needed, sure)


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
        return "error", OPEN
    if interval[1] < needed:
        return "failed", "not reached, nor by any value in the interval"
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


# Gates against a baseline: what must not fall, what must not grow, which tasks must still be there.

OPEN = "the undecided ones could decide it either way"


def gates_against(baseline: Run, run: Run, needs: Needs) -> Iterator[Gate]:
    """Yield the gates against a baseline; both runs are graded by the same graders."""
    pairing = paired(baseline, run)
    yield from _task_sets(pairing, needs)
    golden = [task.id for task in summarize_tasks(baseline) if task.golden and task.id in pairing.removed]
    if golden and needs.golden:
        yield Gate(name="golden tasks of the baseline", status="failed", reason="no longer run", tasks=golden)
    triggers = trigger_drop(baseline, run, these_tasks=needs.these_tasks)
    yield from drop_gates([*_task_drops(baseline, run, pairing, needs), *([triggers] if triggers else [])], needs)
    if not pairing.pairs:
        if triggers is None:
            yield Gate(name="against the baseline", status="error", reason="no task in common with it")
        return
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
        ("tasks whose inputs changed", pairing.asked_otherwise, "warn"),
    ]
    for name, ids, policy in asked:
        if ids and policy != "allow":
            reason = "not compared with the baseline" if policy == "warn" else "not allowed"
            yield Gate(name=name, status=statuses[policy], value=len(ids), reason=reason, tasks=ids)


class Drop(NamedTuple):
    """A number that must not fall against the baseline."""

    name: str
    evidence: Evidence
    invalid: Gate | None = None
    """Where there is nothing to test: the gate as it is."""


def _task_drops(baseline: Run, run: Run, pairing: Pairing, needs: Needs) -> Iterator[Drop]:
    if pairing.pairs:
        for name, on in (("pass rate", "pass"), ("score", "score")):
            evidence = evidence_of(baseline, run, pairing.pairs, on, these_tasks=needs.these_tasks)  # type: ignore[arg-type]
            yield Drop(f"{name} against the baseline", evidence)


def drop_gates(drops: Sequence[Drop], needs: Needs, *, with_power: bool = True) -> Iterator[Gate]:
    """Yield a gate for each number that must not fall; those with different values share the 5 % (Holm).

    The power is simulated, which takes longer than the rest.
    """
    samples = {drop.name: drop.evidence.samples() for drop in drops if drop.invalid is None}
    tests: dict[str, float] = {}
    asked: dict[str, str] = {}
    for drop in drops:
        if some := samples.get(drop.name):
            same = next((name for name in tests if samples[name] == some), None)
            asked[drop.name] = same or drop.name
            if same is None:
                tests[drop.name] = drop.evidence.p_value(some, needs.drop)
    adjusted = dict(zip(tests, holm(list(tests.values())), strict=True))
    correction = f"Holm over {len(tests)} comparisons" if len(tests) > 1 else ""
    for drop in drops:
        if drop.invalid is not None:
            yield drop.invalid
        elif not samples[drop.name]:
            reason = "no task was decided in both runs"
            yield Gate(name=drop.name, status="error", needed=0.0 - needs.drop, reason=reason)
        else:
            gate = _drop_gate(drop, samples[drop.name], adjusted[asked[drop.name]], correction, needs)
            is_shown = gate.status == "failed" or not with_power
            yield gate if is_shown else _with_power(gate, drop.evidence, samples[drop.name], needs)


def _drop_gate(drop: Drop, samples: list[Sample], p_value: float, correction: str, needs: Needs) -> Gate:
    evidence = drop.evidence
    value, interval = mean([sample.change for sample in samples]) or 0.0, evidence.interval(samples)
    gate = Gate(
        name=drop.name,
        status="passed",
        value=value,
        needed=0.0 - needs.drop,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        p_value=p_value,
        correction=correction,
        note=evidence.note,
    )
    fell = [sample.id for sample in samples if sample.change < -needs.drop - TOLERANCE]
    open_tasks = evidence.is_open
    if _is_shown(value, p_value, needs):
        if open_tasks and not _is_shown_in(evidence, "best", needs):
            return replace(gate, status="error", reason=OPEN, tasks=open_tasks)
        return replace(gate, status="failed", reason="it fell, and chance alone would hardly do that", tasks=fell)
    if value < -max(needs.drop, needs.margin) - TOLERANCE:
        reason = f"it fell by more than {needs.margin * 100:g} points, but chance alone might do that"
        return replace(gate, status="error", reason=reason, tasks=fell)
    if open_tasks:
        worst = evidence.samples("worst")
        falls = (mean([sample.change for sample in worst]) or 0.0) < -max(needs.drop, needs.margin) - TOLERANCE
        if falls or _is_shown_in(evidence, "worst", needs):
            return replace(gate, status="error", reason=OPEN, tasks=open_tasks)
    return gate


def _is_shown(value: float, p_value: float, needs: Needs) -> bool:
    return value < -needs.drop - TOLERANCE and p_value < ALPHA


def _is_shown_in(evidence: Evidence, case: Case, needs: Needs) -> bool:
    """Return whether a drop would be shown if all that is undecided were against the run, or for it."""
    samples = evidence.samples(case)
    value = mean([sample.change for sample in samples]) or 0.0
    return _is_shown(value, evidence.p_value(samples, needs.drop), needs)


def _with_power(gate: Gate, evidence: Evidence, samples: Sequence[Sample], needs: Needs) -> Gate:
    simulated = evidence.simulation(samples, needs.drop)
    power = simulated.power(needs.drop + needs.margin) if simulated else None
    if simulated is None or power is None:
        return gate
    enough = None if power >= ENOUGH else simulated.trials_needed(needs.drop + needs.margin)
    return replace(gate, power=power, trials_needed=enough)


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


def trigger_drop(before: Run, after: Run, *, these_tasks: bool = True) -> Drop | None:
    """Return the answers to the prompts of both runs, by weight; None without trigger tests."""
    now, then = summarize_triggers(after), summarize_triggers(before)
    if now is None:
        return None
    nothing = Evidence([], True, False, False)
    if then is None:
        gate = Gate(name=NAME, status="passed", reason="not compared: the baseline has no trigger tests")
        return Drop(NAME, nothing, gate)
    undecided = Gate(name=NAME, status="error")
    if invalid := [*then.reasons, *now.reasons]:
        return Drop(NAME, nothing, replace(undecided, reason=f"INVALID: {invalid[0]}"))
    old, new = _answers(before), _answers(after)
    both = [
        PairedTrials(new[key][0].prompt.id, _right(old[key]), _right(new[key]), WEIGHTS[new[key][0].prompt.confidence])
        for key in new
        if key in old
    ]
    drop = Drop(NAME, Evidence(both, these_tasks, not these_tasks, not these_tasks))
    if not drop.evidence.samples():
        return drop._replace(invalid=replace(undecided, reason="no prompt was decided in both runs"))
    return drop


def _answers(run: Run) -> dict[PromptKey, list[TriggerAnswer]]:
    """Return the answers to each prompt in order, without the controls."""
    found: dict[PromptKey, list[TriggerAnswer]] = {}
    for answer in sorted([*answers_of(run), *unanswered(run)], key=lambda answer: answer.trial):
        if not answer.prompt.control:
            key = (answer.prompt.skill, answer.prompt.prompt, answer.prompt.should_trigger)
            found.setdefault(key, []).append(answer)
    return found


def _right(answers: Sequence[TriggerAnswer]) -> Trials:
    values = ((PASSED if answer.is_right else FAILED, answer.did_trigger) for answer in answers)
    return tuple(UNDECIDED if did is None else value for value, did in values)
