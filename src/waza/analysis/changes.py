"""The records of a comparison of two runs, how their tasks are paired, and where two trials diverge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from sys import intern
from typing import Literal, NamedTuple, overload

from msgspec import Struct, field

from waza.compact import picked
from waza.model import JSON, ResultStatus, Run, ToolEvent
from waza.runs.tasks import TaskSummary, TrialMean, summarize_tasks
from waza.stats.difference import DifferenceVerdict
from waza.stats.paired import Tally, holm, shuffled_trials
from waza.stats.scores import Bootstrap

Kind = Literal["broke", "mended", "undecided", "moved", "same"]
"""`broke` (regressed), `mended` (fixed), `undecided`: its status flipped; `moved`: another pass rate or score."""


class CheckChange(Struct, frozen=True, kw_only=True):
    """A check that passed in one of two trials only."""

    grader: str
    claim: str
    before: bool | None
    after: bool | None
    why: str = ""
    expected: JSON = None
    actual: JSON = None


class Details(Struct, frozen=True, kw_only=True):
    """Two trials of one task, one of each run: what differs."""

    trial_before: int
    trial_after: int
    checks: list[CheckChange]
    divergence: Divergence | None
    """None where the calls of one trial were not recorded."""


class TaskChange(Struct, frozen=True, kw_only=True):
    """One task in both runs."""

    id: str
    kind: Kind
    status_before: ResultStatus
    status_after: ResultStatus
    passed_before: int
    decided_before: int
    passed_after: int
    decided_after: int
    score_before: float | None
    score_after: float | None
    p_value: float | None
    """Of this task alone, adjusted for how many tasks there are (Holm); None where a side has no decided trial."""
    golden: bool = False
    details: Details | None = None


class GraderChange(Struct, frozen=True, kw_only=True):
    """A grader's mean score over the tasks that have it in both runs."""

    name: str
    before: float
    after: float
    difference: float
    interval: Bootstrap | None
    p_value: float
    """Adjusted for how many graders there are (Holm)."""
    tasks: int


class Side(Struct, frozen=True, kw_only=True):
    """One of the runs."""

    id: str
    name: str
    engine: str
    model: str
    pass_rate: float | None
    """The mean over the paired tasks of the share of decided trials that passed."""
    passed: int
    total: int
    score: float | None
    undecided: int
    duration_ms: TrialMean | None
    """Per trial, as are tokens and cost; None where it was not recorded."""
    tokens: TrialMean | None
    cost_usd: TrialMean | None
    tools: dict[str, JSON] | None


class Attribution(Struct, frozen=True, kw_only=True):
    """How much of a change comes from the agent and how much from the graders."""

    tasks: list[str]
    """Tasks whose graders, rubrics or judge differ between the runs."""
    graded: Literal["before", "after"]
    """Whose traces were graded again, by the other run's graders."""
    pass_total: float
    pass_agent: float
    pass_graders: float
    score_total: float | None
    score_agent: float | None
    score_graders: float | None


class Comparison(Struct, frozen=True, kw_only=True):
    """What changed between two runs."""

    before: Side
    after: Side
    on: Literal["pass", "score"]
    verdict: DifferenceVerdict
    """On what `on` says."""
    passing: DifferenceVerdict
    scores: DifferenceVerdict | None
    mcnemar_p: float
    """Of the tasks' statuses alone: how many regressed against how many were fixed."""
    holds: bool
    """Whether the verdict is the same whatever the undecided trials were."""
    tasks: list[TaskChange]
    """The flips first."""
    graders: list[GraderChange]
    removed: list[str]
    added: list[str]
    asked_otherwise: list[str]
    """Tasks of both runs whose prompt or files differ; they are not compared."""
    attribution: Attribution | None = None
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Which trials the verdict leaves out, and why."""


ASKED = ("prompt", "follow_up_prompts", "files", "context", "environment", "workdir")
"""Fields of a task that the agent gets; a task in which they differ is another task."""
_ORDER: dict[Kind, int] = {"broke": 0, "mended": 1, "undecided": 2, "moved": 3, "same": 4}


class TaskPair(NamedTuple):
    """A task in both runs."""

    before: TaskSummary
    after: TaskSummary

    @property
    def tally(self) -> Tally | None:
        """Its decided trials; None where a side has none."""
        one, other = self.before, self.after
        if not one.passed + one.failed or not other.passed + other.failed:
            return None
        return _tally(one.passed, one.passed + one.failed, other.passed, other.passed + other.failed)


@lru_cache(maxsize=1024)
def _tally(passed_before: int, trials_before: int, passed_after: int, trials_after: int) -> Tally:
    """Return a tally, shared: thousands of tasks have few different ones."""
    return Tally(passed_before, trials_before, passed_after, trials_after)


class Pairs(Sequence[TaskPair]):
    """The tasks of two runs that are paired; the summaries stay in the lists they are in."""

    def __init__(self, before: Sequence[TaskSummary], after: Sequence[TaskSummary]) -> None:
        self._before, self._after = before, after

    def __len__(self) -> int:
        return len(self._before)

    @overload
    def __getitem__(self, index: int) -> TaskPair: ...
    @overload
    def __getitem__(self, index: slice) -> list[TaskPair]: ...
    def __getitem__(self, index: int | slice) -> TaskPair | list[TaskPair]:
        if isinstance(index, slice):
            return list(map(TaskPair, self._before[index], self._after[index]))
        return TaskPair(self._before[index], self._after[index])

    def __iter__(self) -> Iterator[TaskPair]:
        return map(TaskPair, self._before, self._after)

    def side(self, which: int) -> Sequence[TaskSummary]:
        """Return the tasks of the earlier run (0), or of the later one."""
        return self._after if which else self._before


class Pairing(NamedTuple):
    """Which tasks two runs share."""

    pairs: Pairs
    removed: list[str]
    added: list[str]
    asked_otherwise: list[str]


def paired(before: Run, after: Run) -> Pairing:
    """Return the tasks of two runs, paired by id; those that were skipped in one are left out of it."""
    tasks = [summarize_tasks(run) for run in (before, after)]
    ones, others = (
        {intern(task.id): place for place, task in enumerate(some) if task.status != "skipped"} for some in tasks
    )
    otherwise = _asked_differently(before, after)
    shared = [task_id for task_id in ones if task_id in others]
    comparable = [task_id for task_id in shared if task_id not in otherwise]
    return Pairing(
        Pairs(
            picked(tasks[0], map(ones.__getitem__, comparable)), picked(tasks[1], map(others.__getitem__, comparable))
        ),
        [task_id for task_id in ones if task_id not in others],
        [task_id for task_id in others if task_id not in ones],
        [task_id for task_id in shared if task_id in otherwise],
    )


def _asked_differently(before: Run, after: Run) -> set[str]:
    others = after.suite.tasks
    places = {intern(str(task["id"])): place for place, task in enumerate(others)}
    found: set[str] = set()
    for task in before.suite.tasks:
        place = places.get(str(task["id"]))
        if place is None:
            continue
        other = others[place]
        if any(task.get(key) != other.get(key) for key in ASKED):
            found.add(str(task["id"]))
    return found


def bounds(pairs: Sequence[TaskPair]) -> tuple[list[Tally], list[Tally]]:
    """Return the tallies if all undecided trials were for the later run, and if all were against it."""
    best = [_tally(one.passed, _total(one), other.passed + other.errors, _total(other)) for one, other in pairs]
    worst = [_tally(one.passed + one.errors, _total(one), other.passed, _total(other)) for one, other in pairs]
    return best, worst


def _total(task: TaskSummary) -> int:
    return task.passed + task.failed + task.errors


def task_changes(pairs: Sequence[TaskPair], *, tested: bool = True) -> list[TaskChange]:
    """Return every paired task, the flips first; each with a test of its own, adjusted for how many there are.

    Without `tested` they have none, as where `auto` decided by the outcomes how many trials there are.
    """
    p_values = iter(holm([_p_value(tally) for pair in pairs if tested and (tally := pair.tally)]))
    changes = [_task_change(pair, next(p_values) if tested and pair.tally else None) for pair in pairs]
    return sorted(changes, key=lambda change: (_ORDER[change.kind], not change.golden, change.p_value or 1.0))


@lru_cache(maxsize=1024)
def _p_value(tally: Tally) -> float:
    return shuffled_trials([tally])


@lru_cache(maxsize=1024, typed=True)
def _shared(score: float | None) -> float | None:
    """Return the number, one object for all equal ones: thousands of tasks have few different scores."""
    return score


def _task_change(pair: TaskPair, p_value: float | None) -> TaskChange:
    one, other = pair
    return TaskChange(
        id=intern(one.id),
        kind=_kind(one, other),
        status_before=one.status,
        status_after=other.status,
        passed_before=one.passed,
        decided_before=one.passed + one.failed,
        passed_after=other.passed,
        decided_after=other.passed + other.failed,
        score_before=_shared(one.score.weighted),
        score_after=_shared(other.score.weighted),
        p_value=p_value,
        golden=one.golden or other.golden,
    )


def _kind(one: TaskSummary, other: TaskSummary) -> Kind:
    if one.status == other.status:
        same = (one.pass_rate, one.score.weighted) == (other.pass_rate, other.score.weighted)
        return "same" if same else "moved"
    if "error" in (one.status, other.status):
        return "undecided"
    return "mended" if other.status == "passed" else "broke"


MOST_CALLS = 1_000
"""Calls that are aligned after the first difference; later ones cannot change it."""
MOST_DIFFERENCES = 10


DivergenceKind = Literal["same", "arguments", "other call", "left out", "added"]
_KINDS: dict[str, DivergenceKind] = {"delete": "left out", "insert": "added"}


class Argument(Struct, frozen=True, kw_only=True):
    """One argument that differs; None where it was not given."""

    path: str
    before: JSON = None
    after: JSON = None


class Divergence(Struct, frozen=True, kw_only=True):
    """The first point where two trials did not do the same."""

    kind: DivergenceKind
    call: int
    """The number of the call, from 1: how many were the same, plus one."""
    before: str = ""
    """The tool called there before; empty where the trial had ended, or continues later."""
    after: str = ""
    arguments: list[Argument] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Tools of the calls that were left out or added there, until both continue alike."""


def divergence(before: Sequence[ToolEvent] | None, after: Sequence[ToolEvent] | None) -> Divergence | None:
    """Return where two trials diverge; None where the calls of one were not recorded."""
    if before is None or after is None:
        return None
    pairs = enumerate(zip(before, after, strict=False))
    place = next((i for i, (one, other) in pairs if not _same(one, other)), min(len(before), len(after)))
    left, right = before[place : place + MOST_CALLS], after[place : place + MOST_CALLS]
    if not left and not right:
        return Divergence(kind="same", call=place)
    if left and right and left[0].tool_name == right[0].tool_name:
        differing = list(_differing(left[0].args, right[0].args))[:MOST_DIFFERENCES]
        name = left[0].tool_name
        return Divergence(kind="arguments", call=place + 1, before=name, after=name, arguments=differing)
    return _other(place + 1, [event.tool_name for event in left], [event.tool_name for event in right])


def _other(call: int, before: list[str], after: list[str]) -> Divergence:
    """Return what happened where the tools differ: calls left out, calls added, or other ones."""
    one, other = before[0] if before else "", after[0] if after else ""
    tag, i, j, k, m = SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes()[0]
    kind = _KINDS.get(tag, "other call")
    skipped = {"left out": before[i:j], "added": after[k:m]}.get(kind, [])
    return Divergence(kind=kind, call=call, before=one, after=other, skipped=skipped)


def _same(one: ToolEvent, other: ToolEvent) -> bool:
    return one.tool_name == other.tool_name and one.args == other.args


def _differing(before: JSON, after: JSON, path: str = "") -> Iterator[Argument]:
    """Yield the arguments in which two calls differ, by their paths."""
    if isinstance(before, dict) and isinstance(after, dict) and (before or after):
        for key in [*before, *(key for key in after if key not in before)]:
            yield from _differing(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _differing(one, other, f"{path}[{place}]")
    elif before != after:
        yield Argument(path=path, before=before, after=after)
