"""The fields of a stored result that summaries read: the same as in `model`, and no others, to make reading cheap."""

from __future__ import annotations

from msgspec import Struct, field

from waza.model import JSON, Attempt, GradeStatus, ResultStatus, Usage


class CallView(Struct, frozen=True, gc=False):
    """A tool call: whether it worked."""

    success: bool = True


class TurnView(Struct, frozen=True):
    """One prompt's own trace: what it cost."""

    usage: Usage | None = None


class TraceView(Struct, frozen=True):
    """A trace: what it cost and which calls there were."""

    duration_ms: float | None = None
    usage: Usage | None = None
    turns: list[TurnView] | None = None
    tool_events: list[CallView] | None = None


class GradeView(Struct, frozen=True):
    """A grade without its checks."""

    name: str
    status: GradeStatus
    score: float
    weight: float = 1.0
    details: dict[str, JSON] = field(default_factory=dict)


class ResultView(Struct, frozen=True, kw_only=True):
    """A result with the fields that summaries read."""

    task_id: str
    trial: int
    status: ResultStatus
    trace: TraceView
    reason: str = ""
    grades: list[GradeView] = field(default_factory=list)
    attempts: int = 1
    attempt_log: list[Attempt] = field(default_factory=list)
    started_at: str = ""
    duration_ms: float = 0.0
    grader_duration_ms: float | None = None
    judge_duration_ms: float | None = None
    fingerprint: str = ""
