"""Grades for a trace, and what they mean for its trial. The agent is not needed here."""

from __future__ import annotations

from collections.abc import Iterable

from waza.graders._base import Grader
from waza.model import Files, Grade, ResultStatus, Trace


def grade_trace(trace: Trace, graders: Iterable[Grader], files: Files | None = None) -> list[Grade]:
    """Return every grader's verdict, in order; a broken grader never discards the others."""
    return [grader.grade(trace, workspace=files) for grader in graders]


def status_of(trace: Trace, grades: list[Grade]) -> tuple[ResultStatus, str]:
    """Return a trial's status and the reason the grades do not tell (decision 4)."""
    if trace.status == "error":
        return "error", trace.error or "the agent ended with an error"
    if trace.status == "timeout":
        return "failed", "timeout"
    if any(grade.status == "failed" for grade in grades):
        return "failed", ""
    if any(grade.status == "error" for grade in grades):
        return "error", ""
    return "passed", ""
