"""A run in numbers: pure functions from results to frozen records, independent of the order in which trials ended.

Of `run.spec` these keys are read: `config.pass_rule` ("all", "any" or a rate such as 0.8), `config.min_pass_rate` and
`config.max_failures` (how many tasks may fail in a run that passes), `config.trials_per_task`,
`config.group_by` ("model", "tags" or "task"); `tasks`, a list of `{id, name, tags, golden}`: every task that was to be
run, in order; `graders`, by task id a list of `{name, type}`; `metrics`, a list of `{name, threshold, weight, grader,
tag}`. All may be left out; the tasks are then those that have results.

A task that was not run counts as an error ("not run"): an unfinished run never looks like a passed one.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct, field

from waza.compact import rare_collections
from waza.errors import EXIT_FAILED, EXIT_PASSED, EXIT_UNDECIDED
from waza.model import GradeStatus, Run, StoredConfig, Usage
from waza.runs.metrics import Metric, measure
from waza.runs.outcomes import TrialOutcome, outcomes_of, split_costs
from waza.runs.tasks import TOLERANCE, TaskSummary, UsageTotal, summarize_tasks
from waza.runs.triggers import METRIC, TriggerSummary, summarize_triggers, trigger_metric
from waza.spending import NO_COSTS, Costs, Spending, is_amount
from waza.stats.intervals import exact_share
from waza.stats.scores import Interval, Score, mean, mean_score, std_dev
from waza.untrusted.text import clipped, plural

__all__ = ["Group", "Interval", "Metric", "Summary", "TaskSummary", "summarize", "summarize_tasks"]
_MOST_RULES = 5
"""How many rules of one grader a warning names."""


class Group(Struct, frozen=True, kw_only=True):
    """Tasks that share a model, a tag or a name."""

    name: str
    passed: int
    total: int
    avg_score: float | None


class Summary(Struct, frozen=True, kw_only=True):
    """One run in numbers; scores are None where nothing was decided."""

    total_tests: int
    succeeded: int
    failed: int
    errors: int
    skipped: int
    not_run: int
    """Tasks counted under `errors` of which no trial was run."""
    success_rate: float | None
    success_rate_ci: Interval | None
    aggregate_score: float | None
    weighted_score: float | None
    min_score: float | None
    max_score: float | None
    std_dev: float | None
    undecided: int
    """Undecided grades, and trials that could not be graded at all."""
    score_low: float | None
    score_high: float | None
    duration_ms: float
    """For how long at least one agent worked; pauses before a resume, graders and judges do not count."""
    usage: Usage | None
    exit_code: int
    groups: list[Group] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)
    metrics_score: float | None = None
    warnings: list[str] = field(default_factory=list)
    triggers: TriggerSummary | None = None
    """The trigger tests that were run with the tasks, or alone."""
    grader_duration_ms: float | None = None
    """Time in graders that ask no judge, of all trials together; None where it was not recorded."""
    judge_duration_ms: float | None = None
    costs: Costs | None = None
    """What the run was billed: every attempt, every request, canaries too; None in summaries stored before."""
    agents_before: Spending | None = None
    """What agents had been billed before, where the run was graded from what they did; not part of `costs`."""
    times: Literal["trial", "agent"] = "trial"
    """Whose time `duration_ms` is: summaries that were stored before the two were recorded apart have the trial's."""

    @property
    def is_current(self) -> bool:
        """Whether it has all that summaries of this version have, in valid numbers; else it is computed again."""
        counts = (self.total_tests, self.succeeded, self.failed, self.errors, self.skipped, self.duration_ms)
        shares = (self.success_rate, self.aggregate_score, self.weighted_score, self.score_low, self.score_high)
        can_be_true = all(map(is_amount, counts)) and all(share is None or 0 <= share <= 1 for share in shares)
        return self.times == "agent" and self.costs is not None and can_be_true

    @property
    def decided(self) -> int:
        """How many tasks passed or failed."""
        return self.succeeded + self.failed

    @property
    def decided_rate(self) -> float | None:
        """The share of decided tasks that passed; None where none is decided."""
        return self.succeeded / self.decided if self.decided else None

    @property
    def decided_rate_ci(self) -> Interval | None:
        """The exact 95 % interval of that share."""
        return exact_share(self.succeeded, self.decided)

    @property
    def rate_bounds(self) -> tuple[float, float]:
        """The pass rate if all undecided tasks had failed, and if all had passed."""
        graded = max(1, self.decided + self.errors)
        return self.succeeded / graded, (self.succeeded + self.errors) / graded

    @property
    def cost_usd(self) -> float | None:
        """The dollars that are known of, agents and judges together; None where no cost was reported at all."""
        reported = self.usage.cost_usd if self.usage is not None else None
        if self.costs is None or (reported is None and not self.costs.total_usd):
            return None if reported is None else float(reported)
        return self.costs.total_usd

    @property
    def agent_tokens(self) -> int | None:
        """The tokens of all attempts of the agents; None where none were reported."""
        reported = self.usage.total_tokens if self.usage is not None else None
        counted = self.costs.agent.total_tokens if self.costs is not None else 0
        return counted or reported

    @property
    def judge_tokens(self) -> int:
        """The tokens of all requests to judges that are known of."""
        return self.costs.judge.total_tokens if self.costs is not None else 0


@rare_collections()
def summarize(
    run: Run, computed: Mapping[str, Metric] | None = None, tasks: Sequence[TaskSummary] | None = None
) -> Summary:
    """Return the run's numbers; `computed` are metrics computed elsewhere, `tasks` existing task summaries."""
    tasks = summarize_tasks(run) if tasks is None else tasks
    trials = _Trials(run)
    costs, agents_before = split_costs(run, trials.costs)
    triggers = summarize_triggers(run)
    known = {METRIC: trigger_metric(triggers)} if triggers else {}
    metrics, metrics_score, warnings = measure(run, tasks, known | dict(computed or {}))
    statuses: list[str] = []
    values = array("d")
    not_run = 0

    def scores() -> Iterator[Score]:
        nonlocal not_run
        for task in tasks:
            statuses.append(task.status)
            not_run += task.status == "error" and not _was_run(task)
            if task.score.value is not None:
                values.append(task.score.value)
            if task.status != "skipped":
                yield task.score

    score = mean_score(scores())
    return Summary(
        total_tests=len(tasks),
        succeeded=statuses.count("passed"),
        failed=statuses.count("failed"),
        errors=statuses.count("error"),
        skipped=statuses.count("skipped"),
        not_run=not_run,
        success_rate=statuses.count("passed") / len(tasks) if tasks else None,
        success_rate_ci=exact_share(statuses.count("passed"), len(tasks)),
        aggregate_score=score.value,
        weighted_score=score.weighted,
        min_score=min(values, default=None),
        max_score=max(values, default=None),
        std_dev=std_dev(values),
        undecided=score.undecided,
        score_low=score.low,
        score_high=score.high,
        duration_ms=trials.busy_ms(),
        usage=trials.usage.usage(),
        exit_code=exit_code(statuses, metrics, run.suite.config, triggers),
        groups=_groups(run, tasks),
        metrics=metrics,
        metrics_score=metrics_score,
        warnings=[
            *warnings,
            *_shared_names(trials.shared_names),
            *_unapplied_rules(trials.rules),
            *([run.integrity] if run.integrity else []),
        ],
        triggers=triggers,
        grader_duration_ms=math.fsum(trials.grader_ms) if trials.grader_ms else None,
        judge_duration_ms=math.fsum(trials.judge_ms) if trials.judge_ms else None,
        costs=costs,
        agents_before=agents_before,
        times="agent",
    )


def exit_code(
    statuses: Sequence[str],
    metrics: Sequence[Metric],
    config: StoredConfig,
    triggers: TriggerSummary | None = None,
) -> int:
    """Return 1 when more failed than may or a gate was missed, else 3 when something is undecided, else 0."""
    gates = [metric.status for metric in metrics if metric.threshold is not None]
    if triggers is not None:
        gates.append(_trigger_status(triggers, metrics, is_alone=not statuses))
    if "failed" in gates or not _tolerated(statuses, config):
        return EXIT_FAILED
    return EXIT_UNDECIDED if "error" in (*statuses, *gates) or not (statuses or triggers) else EXIT_PASSED


def trigger_verdict(summary: Summary) -> tuple[GradeStatus, str]:
    """Return the status of a run's trigger tests, their gate included, and the reason where they did not pass."""
    if summary.triggers is None:
        return "passed", ""
    gate = next((metric for metric in summary.metrics if metric.name == METRIC and metric.threshold is not None), None)
    if gate is not None:
        return gate.status, gate.reason
    numbers, is_alone = summary.triggers.all, not summary.total_tests
    status = _trigger_status(summary.triggers, summary.metrics, is_alone=is_alone)
    wrong = numbers.false_positives + numbers.false_negatives
    message = f"{wrong} of {summary.triggers.answers} answers are not right, {numbers.errors} of them undecided"
    message += f"; {summary.triggers.not_asked} trials were not asked" if summary.triggers.not_asked else ""
    invalid = "".join(f"INVALID: {reason}" for reason in summary.triggers.reasons[:1])
    return status, "" if status == "passed" else invalid or message


def _trigger_status(triggers: TriggerSummary, metrics: Sequence[Metric], *, is_alone: bool) -> GradeStatus:
    """Return the status of trigger tests besides their gate; without one they need every answer right if run alone."""
    if not triggers.is_valid:
        return "error"
    if any(metric.name == METRIC and metric.threshold is not None for metric in metrics):
        return "passed"
    if is_alone and triggers.accuracy_high < 1.0 - TOLERANCE:
        return "failed"
    return "error" if triggers.all.errors or triggers.not_asked else "passed"


def _tolerated(statuses: Sequence[str], config: StoredConfig) -> bool:
    """Return whether no more tasks failed than `config.max_failures` and `config.min_pass_rate` allow."""
    failed, rate, max_failures = statuses.count("failed"), config.min_pass_rate, config.max_failures
    if not failed or (rate is None and max_failures is None):
        return not failed
    enough = rate is None or statuses.count("passed") >= rate * len(statuses) - TOLERANCE
    return enough and (max_failures is None or failed <= max_failures)


def _was_run(task: TaskSummary) -> bool:
    return task.passed + task.failed + task.errors + task.skipped > task.not_run


def _groups(run: Run, tasks: Sequence[TaskSummary]) -> list[Group]:
    by = run.suite.config.group_by
    if not by:
        return []
    groups: dict[str, list[TaskSummary]] = {}
    for task in tasks:
        for name in {"model": [run.model], "tags": task.tags or ["untagged"], "task": [task.name]}.get(by, []):
            groups.setdefault(name, []).append(task)
    return [_group(name, members) for name, members in groups.items()]


def _group(name: str, tasks: Sequence[TaskSummary]) -> Group:
    scores = [task.score.value for task in tasks if task.score.value is not None]
    passed = sum(task.status == "passed" for task in tasks)
    return Group(name=name, passed=passed, total=len(tasks), avg_score=mean(scores))


def _shared_names(names: Iterable[str]) -> list[str]:
    """Return a warning for each grader name that two graders of one task share."""
    return [f"two graders are named '{name}'; both count, the second is shown as '{name}#2'" for name in sorted(names)]


def _unapplied_rules(rules: Mapping[tuple[str, str], bool]) -> list[str]:
    """Return a warning for each grader with rules that applied in no trial."""
    found: dict[str, list[str]] = {}
    for (grader, rule), applied in sorted(rules.items()):
        if not applied:
            found.setdefault(grader, []).append(clipped(rule, 100))
    return [
        f"grader '{grader}': {plural(len(names), 'rule')} applied in no trial: {'; '.join(names[:_MOST_RULES])}"
        f"{f'; and {len(names) - _MOST_RULES} more' if len(names) > _MOST_RULES else ''}"
        for grader, names in found.items()
    ]


class _Trials:
    """All trials of a run in numbers, gone through once: there may be a million."""

    def __init__(self, run: Run) -> None:
        self.starts, self.ends = array("d"), array("d")
        self.unplaced_ms = array("d")
        """The times of trials whose start was not recorded."""
        self.grader_ms, self.judge_ms = array("d"), array("d")
        self.usage = UsageTotal()
        self.costs = NO_COSTS
        self.shared_names: set[str] = set()
        self.rules: dict[tuple[str, str], bool] = {}
        """Whether each rule, by its grader and name, applied in any trial."""
        for results in (run.results, run.triggers):
            for outcome in outcomes_of(results):
                self._add(outcome)
                if results is run.results:
                    self.shared_names.update(outcome.shared_names)
                    for grader, rule, applied in outcome.rules:
                        self.rules[grader, rule] = applied or self.rules.get((grader, rule), False)

    def _add(self, outcome: TrialOutcome) -> None:
        if outcome.start_ms is None:
            self.unplaced_ms.append(outcome.duration_ms)
        else:
            self.starts.append(outcome.start_ms)
            self.ends.append(outcome.start_ms + outcome.duration_ms)
        if outcome.grader_duration_ms is not None:
            self.grader_ms.append(outcome.grader_duration_ms)
        if outcome.judge_duration_ms is not None:
            self.judge_ms.append(outcome.judge_duration_ms)
        self.usage.add(outcome.usage)
        self.costs += outcome.costs

    def busy_ms(self) -> float:
        """Return for how long at least one agent worked; the sum of their times where starts were not recorded."""
        busy, until = array("d", self.unplaced_ms), -math.inf
        for trial in sorted(range(len(self.starts)), key=self.starts.__getitem__):
            start, end = self.starts[trial], self.ends[trial]
            if end > until:
                busy.append(end - (start if start > until else until))
                until = end
        return math.fsum(busy)
