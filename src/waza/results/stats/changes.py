"""What a comparison of two runs consists of: frozen records, ready to be written as JSON."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from waza.model import JSON, ResultStatus
from waza.results.parting import Parting
from waza.results.stats.resampling import Bootstrap
from waza.results.stats.verdicts import Verdict

Kind = Literal["broke", "mended", "undecided", "moved", "same"]
"""`broke`, `mended` and `undecided` are flips of a task's status; `moved` is another pass rate or score."""


class CheckChange(Struct, frozen=True, kw_only=True):
    """A claim that held in one of two trials only."""

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
    parting: Parting | None
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
    duration_ms: Bootstrap | None
    """Per trial, as are tokens and cost; None where it was not recorded."""
    tokens: Bootstrap | None
    cost_usd: Bootstrap | None
    tools: dict[str, JSON] | None


class Attribution(Struct, frozen=True, kw_only=True):
    """How much of a change is the agent's and how much the graders'."""

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
    verdict: Verdict
    """On what `on` says."""
    passing: Verdict
    scores: Verdict | None
    mcnemar_p: float
    """Of the tasks' statuses alone: how many broke against how many were mended."""
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
