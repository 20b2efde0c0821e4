"""What is asked of a run, and what came of it: frozen records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct, field

from waza.errors import EXIT_FAILED, EXIT_PASSED, EXIT_UNDECIDED
from waza.model import GradeStatus

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


def exit_code(found: Sequence[Gate]) -> int:
    """Return 1 when a gate is missed, else 3 when one is undecided, else 0."""
    statuses = {gate.status for gate in found}
    return EXIT_FAILED if "failed" in statuses else EXIT_UNDECIDED if "error" in statuses else EXIT_PASSED
