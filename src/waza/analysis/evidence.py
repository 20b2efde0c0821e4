"""The trials of two runs that a test may compare, and what they say about a drop.

Which trials these are depends on how many each run made. Trials permuted within a task need no equal numbers. The test
by task does: of a task with three trials before and five after it uses the first three of each, since a mean of five
varies less than one of three. Where `auto` decided by the outcomes when to stop, a task's share of passed trials is
biased: then only the trials that `auto` makes in any case are compared, unless both runs stopped by the same rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Literal, NamedTuple

from msgspec.structs import replace

from waza.analysis.changes import TaskPair
from waza.model import JSON, Run
from waza.runs.outcomes import TrialOutcome, outcomes_of
from waza.stats.difference import DifferenceVerdict, verdict_on_passing, verdict_on_scores
from waza.stats.intervals import bounded_mean
from waza.stats.paired import Tally, fell_over_tasks, fell_within_tasks, scores_fell_within_tasks
from waza.stats.power import Question, Simulation, simulation
from waza.stats.scores import Z95, fewest_to_settle

Case = Literal["decided", "worst", "best"]
"""What undecided trials count as: nothing, all against the later run, or all for it."""


class TrialValue(NamedTuple):
    """What a trial counts for: its score, or 1 where it passed and 0 where it failed."""

    value: float | None
    """None where it is undecided."""
    low: float
    high: float


UNDECIDED = TrialValue(None, 0.0, 1.0)
PASSED = TrialValue(1.0, 1.0, 1.0)
FAILED = TrialValue(0.0, 0.0, 0.0)
Trials = tuple[TrialValue, ...]


class PairedTrials(NamedTuple):
    """The trials of one task, or answers to one prompt, in both runs, in order."""

    id: str
    before: Trials
    after: Trials
    weight: float = 1.0


class Sample(NamedTuple):
    """The values of one task that are compared."""

    id: str
    before: tuple[float, ...]
    after: tuple[float, ...]
    weight: float

    @property
    def change(self) -> float:
        """How much the mean rose, times the task's weight."""
        return self.weight * (math.fsum(self.after) / len(self.after) - math.fsum(self.before) / len(self.before))


class Evidence(NamedTuple):
    """The trials of two runs, and how they are compared."""

    tasks: list[PairedTrials]
    these_tasks: bool
    by_task: bool
    """Whether each task counts as a whole; otherwise trials are permuted within tasks."""
    cut: bool
    """Whether a task's trials are cut to as many as both runs have."""
    note: str = ""
    """Which trials are left out, and why."""

    def samples(self, case: Case = "decided") -> list[Sample]:
        """Return the values that are compared, of tasks that have one in both runs; the mean weight is 1."""
        found = []
        for task in self.tasks:
            before, after = _values(task.before, case, False), _values(task.after, case, True)
            most = min(len(before), len(after)) if self.cut else None
            if before and after:
                found.append(Sample(task.id, before[:most], after[:most], task.weight))
        scale = len(found) / math.fsum(sample.weight for sample in found) if found else 1.0
        return found if scale == 1.0 else [sample._replace(weight=sample.weight * scale) for sample in found]

    @property
    def is_open(self) -> list[str]:
        """Return the tasks of which something is undecided."""
        return [task.id for task in self.tasks if any(one.low < one.high for one in (*task.before, *task.after))]

    def p_value(self, samples: Sequence[Sample], allowed: float = 0.0) -> float:
        """Return the one-sided p-value of a drop by more than `allowed`."""
        if self.by_task:
            return fell_over_tasks([sample.change for sample in samples], allowed=allowed)
        if (tallies := tallies_of(samples)) is not None:
            return fell_within_tasks(tallies, allowed=allowed, weights=[sample.weight for sample in samples])
        weighed = [([s.weight * x for x in s.before], [s.weight * x for x in s.after]) for s in samples]
        return scores_fell_within_tasks(weighed, allowed=allowed)

    def interval(self, samples: Sequence[Sample]) -> tuple[float, float] | None:
        """Return the 95 % interval of the mean change; None where the numbers do not vary."""
        if self.by_task:
            most = max((sample.weight for sample in samples), default=1.0)
            found = bounded_mean([sample.change for sample in samples], -most, most)
            return (found.lower, found.upper) if found else None
        middle, error = math.fsum(sample.change for sample in samples) / len(samples), _error_within(samples)
        return (max(-1.0, middle - Z95 * error), min(1.0, middle + Z95 * error)) if error else None

    def passing_verdict(self, margin: float, case: Case = "decided", *, brief: bool = False) -> DifferenceVerdict:
        """Return the two-sided verdict on pass rates."""
        tallies = tallies_of(self.samples(case)) or []
        return verdict_on_passing(
            tallies, margin=margin, these_tasks=self.these_tasks, by_task=self.by_task, brief=brief
        )

    def score_verdict(self, margin: float, case: Case = "decided", *, brief: bool = False) -> DifferenceVerdict | None:
        """Return the two-sided verdict on scores; None where none was decided in both runs."""
        samples = self.samples(case)
        trials = None if self.by_task else [(sample.before, sample.after) for sample in samples]
        changes = [sample.change for sample in samples]
        verdict = verdict_on_scores(changes, margin=margin, within=trials, brief=brief) if samples else None
        return replace(verdict, these_tasks=self.these_tasks) if verdict else None

    def simulation(self, samples: Sequence[Sample], allowed: float) -> Simulation | None:
        """Return simulated runs like these; None where values are no mere passes and failures of equal weight."""
        tallies = tallies_of(samples)
        if tallies is None or any(abs(sample.weight - 1) > 1e-9 for sample in samples):
            return None
        return simulation(tallies, Question(these_tasks=not self.by_task, one_sided=True, allowed=allowed))


def evidence_of(
    before: Run, after: Run, pairs: Iterable[TaskPair], on: Literal["pass", "score"], *, these_tasks: bool
) -> Evidence:
    """Return the trials of the paired tasks that a test may compare."""
    autos = [run.spec.get("auto_trials") for run in (before, after)]
    both_auto = all(autos) and autos[0] == autos[1]
    first = first_trials(before, after)
    value = _passed if on == "pass" else _scored
    ones, others = _by_task(before, first, value), _by_task(after, first, value)
    tasks = []
    for one, other in pairs:
        trials = (
            some.get(one.id, ()) + (() if first else (UNDECIDED,) * task.not_run)
            for some, task in ((ones, one), (others, other))
        )
        tasks.append(PairedTrials(one.id, *trials))  # type: ignore[arg-type]
    by_task = both_auto or not these_tasks
    found = Evidence(tasks, these_tasks, by_task, by_task and not both_auto)
    return found._replace(note=_note(found, first, both_auto))


def first_trials(before: Run, after: Run) -> int | None:
    """Return how many trials of each task may be compared where `auto` stopped one run; None where all of them may."""
    autos = [run.spec.get("auto_trials") for run in (before, after)]
    if autos[0] == autos[1] or not any(autos):
        return None
    return min(fewest_to_settle(_share(auto)) for auto in autos if auto)


def pairs_in_order(before: Run, after: Run, pairs: Iterable[TaskPair], on: Literal["pass", "score"]) -> list[float]:
    """Return the difference of each pair of trials with the same number, in the order in which pairs were complete.

    That order does not change when a run grows. Where times were not recorded, it is that of trials and tasks.
    """
    value = _passed if on == "pass" else _scored
    ids = {task.id: place for place, (task, _) in enumerate(pairs)}
    earlier = {(one.task_id, one.trial): one for one in outcomes_of(before.results) if one.task_id in ids}
    found: list[tuple[float, int, int, float]] = []
    for other in outcomes_of(after.results):
        one = earlier.get((other.task_id, other.trial))
        if one is None or (first := value(one).value) is None or (second := value(other).value) is None:
            continue
        when = -1.0 if one.start_ms is None or other.start_ms is None else max(one.start_ms, other.start_ms)
        found.append((when, other.trial, ids[other.task_id], second - first))
    return [difference for *_, difference in sorted(found)]


def tallies_of(samples: Sequence[Sample]) -> list[Tally] | None:
    """Return how many trials passed; None where some values are neither 0 nor 1."""
    if any(value not in (0.0, 1.0) for sample in samples for value in (*sample.before, *sample.after)):
        return None
    return [Tally(int(sum(s.before)), len(s.before), int(sum(s.after)), len(s.after)) for s in samples]


def _note(found: Evidence, first: int | None, both_auto: bool) -> str:
    if first:
        trials = "first trial" if first == 1 else f"first {first} trials"
        return f"`auto` stops by the outcomes: only the {trials} of each task, made in any case, are compared"
    if both_auto and found.these_tasks:
        return "both runs stopped trials early by the same rule: each task is compared as a whole"
    if found.cut and (unequal := sum(len(task.before) != len(task.after) for task in found.tasks)):
        tasks = "1 task has" if unequal == 1 else f"{unequal} tasks have"
        return f"{tasks} more trials in one run: only as many as both have are compared, the first ones"
    return ""


def _share(auto: JSON) -> float:
    share = auto.get("share") if isinstance(auto, dict) else None
    return float(share) if isinstance(share, int | float) else 1.0


def _by_task(run: Run, first: int | None, value: Callable[[TrialOutcome], TrialValue]) -> dict[str, Trials]:
    """Return the trials of each task in order, without skipped ones; with `first` only those up to that number."""
    found: dict[str, list[tuple[int, TrialValue]]] = {}
    for outcome in outcomes_of(run.results):
        if outcome.status != "skipped" and (first is None or outcome.trial <= first):
            found.setdefault(outcome.task_id, []).append((outcome.trial, value(outcome)))
    shared: dict[Trials, Trials] = {}  # thousands of tasks have few different ones
    ordered = ((task, tuple(value for _, value in sorted(trials, key=itemgetter(0)))) for task, trials in found.items())
    return {task: shared.setdefault(trials, trials) for task, trials in ordered}


def _passed(trial: TrialOutcome) -> TrialValue:
    return {"passed": PASSED, "failed": FAILED}.get(trial.status, UNDECIDED)


def _scored(trial: TrialOutcome) -> TrialValue:
    score = trial.score
    return TrialValue(score.weighted, score.low or 0.0, 1.0 if score.high is None else score.high)


@lru_cache(maxsize=4096)
def _values(trials: Trials, case: Case, is_later: bool) -> tuple[float, ...]:
    if case == "decided":
        return tuple(trial.value for trial in trials if trial.value is not None)
    return tuple(trial.high if (case == "best") == is_later else trial.low for trial in trials)


def _error_within(samples: Sequence[Sample]) -> float:
    """Return the standard error of the mean change, from how trials vary within tasks.

    Each task's variance is shrunken towards that of all tasks, as few trials of a task say little about it.
    """
    spreads = []
    for sample in samples:
        both = [*sample.before, *sample.after]
        middle = math.fsum(both) / len(both)
        spreads.append(math.fsum((value - middle) ** 2 for value in both))
    freedom = sum(len(sample.before) + len(sample.after) - 1 for sample in samples)
    usual = math.fsum(spreads) / freedom
    variances = (
        sample.weight**2
        * ((spread + usual) / (len(sample.before) + len(sample.after)))
        * (1 / len(sample.before) + 1 / len(sample.after))
        for sample, spread in zip(samples, spreads, strict=True)
    )
    return math.sqrt(math.fsum(variances)) / len(samples)
