"""What the impact of a skill consists of: frozen records, ready to be written as JSON."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from msgspec import Struct, field

from waza.model import JSON, Run
from waza.stats.difference import DifferenceVerdict
from waza.stats.intervals import HalfWins, clustered_share, half_wins
from waza.stats.lift import Estimate
from waza.stats.scores import Interval

CONTROL = "control"
"""The folder in a run's folder with its control arm, itself a run folder."""
BASELINE = "baseline"
"""The key of `run.spec` for it: `{arm: skill|control, skill: NAME, these_tasks: bool, injected: bool}`."""
UNCLEAN = "the control arm is not clean"
"""How the error of a control trial begins that had the skill."""

Word = Literal["improvement shown", "regression shown", "no difference shown", "too little evidence"]


class Change(Struct, frozen=True, kw_only=True):
    """A number per trial in both arms, the mean over the tasks that have it in both."""

    with_skill: float
    without_skill: float
    difference: float
    lower: float | None = None
    """The 95 % interval of the mean difference over tasks; None where there are too few tasks for one."""
    upper: float | None = None
    tasks: int = 0


class TaskImpact(Struct, frozen=True, kw_only=True):
    """One task with and without the skill."""

    id: str
    passed_with: int
    trials_with: int
    """Decided trials."""
    passed_without: int
    trials_without: int
    undecided_with: int
    undecided_without: int
    triggered: int | None
    """Decided trials with the skill that used it; None where that was not recorded."""
    difference: Estimate | None
    """Of the pass rates, with the interval for pairs of trials; None where an arm has no decided trial."""
    score: Change | None = None
    tokens: Change | None = None
    duration_ms: Change | None = None
    cost_usd: Change | None = None
    pairwise: JSON = None
    """The verdict of a comparing judge on the first trial: `{winner, magnitude, reasoning, position_consistent}`."""


class Impact(Struct, frozen=True, kw_only=True):
    """What a skill does to a suite: `skill_impact` in results.json, and what `stored_impact(run)` returns.

    Shares and differences of shares run from 0 to 1 and from -1 to 1. `lift` is the difference of the pass rates, with
    minus without; `lift = activation x benefit`. `activation` and `benefit` are None where the use of skills was not
    recorded, `benefit` also where no trial used it. `score`, `tokens`, `duration_ms` and `cost_usd` are per trial and
    None where not recorded. `tasks` has an entry for each task that was run in both arms.
    """

    skill: str
    word: Word
    verdict: DifferenceVerdict
    """The p-value of the exact test behind the verdict, on the pass rates."""
    holds: bool
    """Whether the verdict is the same whatever the undecided trials were."""
    lift: Estimate | None
    activation: Estimate | None
    benefit: Estimate | None
    silent: Change | None
    """Pass rates of trials with the skill that did not use it, against the control arm: about 0 if all is well."""
    score: Change | None
    tokens: Change | None
    duration_ms: Change | None
    cost_usd: Change | None
    pairwise: list[WinRate]
    """Judges that compared both arms' outputs; the skill's arm is the candidate."""
    undecided_with: int
    undecided_without: int
    unclean: int
    """Control trials that had the skill; they are among the undecided."""
    these_tasks: bool
    """Whether intervals and test speak of these tasks alone, not of tasks like them."""
    tasks: list[TaskImpact]
    not_compared: list[str] = field(default_factory=list)
    """Tasks that were run with the skill only: they have no grader that both arms could pass."""
    notes: list[str] = field(default_factory=list)


def task_impacts(found: Impact | None) -> dict[str, dict[str, JSON]]:
    """Return by task what the original calls `skill_impact`, with the interval, counts and other numbers."""
    return {task.id: {"skill_impact": _task_impact(task)} for task in found.tasks} if found else {}


def _task_impact(task: TaskImpact) -> dict[str, JSON]:
    one = task.passed_with / task.trials_with if task.trials_with else None
    other = task.passed_without / task.trials_without if task.trials_without else None
    delta = one - other if one is not None and other is not None else None
    return {
        "pass_rate_with_skills": one,
        "pass_rate_baseline": other,
        "delta": delta,
        "percent_change": 100 * delta / other if delta is not None and other else None,
        **({"pairwise": task.pairwise} if task.pairwise is not None else {}),
        "interval": task.difference,
        "triggered": task.triggered,
        "runs_with_skills": task.trials_with,
        "runs_baseline": task.trials_without,
        **{name: change for name in _CHANGES if (change := getattr(task, name)) is not None},
    }


_CHANGES = ("score", "tokens", "duration_ms", "cost_usd")


class WinRate(Struct, frozen=True, kw_only=True):
    """The result of the comparisons of one grader."""

    grader: str
    wins: int
    ties: int
    losses: int
    undecided: int
    """Comparisons that changed with the order, or to which no judge answered."""
    win_rate: float | None
    """Wins among wins and losses; None where there is neither."""
    win_rate_ci: Interval | None
    """The 95 % interval of that share, with tasks as the units."""
    ties_as_half: HalfWins | None = None
    """The win rate with ties as half a win, as AlpacaEval has it; None where nothing was decided."""
    compared: int = 0
    """Comparisons that were judged in both orders."""
    consistent: int = 0
    """Those with the same winner in both orders."""
    consistent_share: float | None = None
    """Their share; None where nothing was compared."""


CONSISTENT, INCONSISTENT = "in both orders", "in one order"


def win_rates(run: Run) -> list[WinRate]:
    """Return the win rate of each grader of the run that compares with another run, sorted by name."""
    names = {name for name in map(_compares, run.suite.every_grader) if name}
    if not names:
        return []
    counts: dict[str, Counter[str]] = {name: Counter() for name in sorted(names)}
    tasks: dict[str, dict[str, Counter[str]]] = {name: {} for name in names}
    for result in run.results:
        for grade in result.grades:
            if grade.name in counts:
                verdict = grade.details.get("pairwise")
                winner = verdict.get("winner") if isinstance(verdict, dict) and grade.status != "error" else ""
                winner = winner if isinstance(winner, str) else ""
                counts[grade.name][winner] += 1
                tasks[grade.name].setdefault(result.task_id, Counter())[winner] += 1
                if isinstance(verdict, dict) and isinstance(verdict.get("position_consistent"), bool):
                    counts[grade.name][CONSISTENT if verdict["position_consistent"] else INCONSISTENT] += 1
    return [_rate(name, count, list(tasks[name].values())) for name, count in counts.items()]


def _compares(entry: dict[str, JSON]) -> str:
    """Return a grader's name if it compares with another run."""
    config = entry.get("config")
    return str(entry.get("name")) if isinstance(config, dict) and config.get("mode") == "pairwise" else ""


def _rate(name: str, count: Counter[str], tasks: list[Counter[str]]) -> WinRate:
    wins, losses = count["candidate"], count["baseline"]
    compared = count[CONSISTENT] + count[INCONSISTENT]
    return WinRate(
        grader=name,
        wins=wins,
        ties=count["tie"],
        losses=losses,
        undecided=count[""],
        win_rate=wins / (wins + losses) if wins + losses else None,
        win_rate_ci=clustered_share((task["candidate"], task["candidate"] + task["baseline"]) for task in tasks),
        ties_as_half=half_wins((task["candidate"], task["tie"], task["baseline"]) for task in tasks),
        compared=compared,
        consistent=count[CONSISTENT],
        consistent_share=count[CONSISTENT] / compared if compared else None,
    )
