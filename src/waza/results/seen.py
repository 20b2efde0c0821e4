"""What summaries look at in a stored result: the same fields as in `model`, and no others, so that reading is cheap."""

from __future__ import annotations

from msgspec import Struct, field

from waza.model import JSON, Attempt, GradeStatus, ResultStatus, Usage


class SeenCall(Struct, frozen=True, gc=False):
    """A tool call: whether it worked."""

    success: bool = True


class SeenTurn(Struct, frozen=True):
    """One prompt's own trace: what it cost."""

    usage: Usage | None = None


class SeenTrace(Struct, frozen=True):
    """A trace: what it cost and which calls there were."""

    duration_ms: float | None = None
    usage: Usage | None = None
    turns: list[SeenTurn] | None = None
    tool_events: list[SeenCall] | None = None


class SeenGrade(Struct, frozen=True):
    """A grade without its checks."""

    name: str
    status: GradeStatus
    score: float
    weight: float = 1.0
    details: dict[str, JSON] = field(default_factory=dict)


class SeenResult(Struct, frozen=True, kw_only=True):
    """A result as far as summaries look at it."""

    task_id: str
    trial: int
    status: ResultStatus
    trace: SeenTrace
    reason: str = ""
    grades: list[SeenGrade] = field(default_factory=list)
    attempts: int = 1
    attempt_log: list[Attempt] = field(default_factory=list)
    started_at: str = ""
    duration_ms: float = 0.0
    grader_duration_ms: float | None = None
    judge_duration_ms: float | None = None
    fingerprint: str = ""
