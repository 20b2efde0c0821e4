"""Grades for a trace, and what they mean for its trial. The agent is not needed here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from waza.files.paths import SpecFolder
from waza.files.pinned import PinnedFiles
from waza.graders.base import Grader
from waza.graders.judging import SOURCE
from waza.model import Files, Grade, ResultStatus, Run, Task, Trace
from waza.process.concurrency import in_thread
from waza.suites.sources import source_of


def grade_trace(trace: Trace, graders: Iterable[Grader], files: Files | None = None) -> list[Grade]:
    """Return every grader's verdict, in order; a broken grader never discards the others."""
    return [grader.grade(trace, workspace=files) for grader in graders]


async def grades_of(
    trace: Trace, graders: Sequence[Grader], files: Files | None, asked: GradingContext | None = None
) -> list[Grade]:
    """Return every grader's verdict, in order; those of judges are waited for together, after the others.

    Graders that wait for other processes do so beside the event loop.
    """
    asking = [grader for grader in graders if grader.asks() is not None]
    plain = [grader for grader in graders if grader.asks() is None] if asking else graders
    if any(grader.waits for grader in plain):
        found = await in_thread(lambda: grade_trace(trace, plain, files))
    else:
        found = grade_trace(trace, plain, files)
    if not asking:
        return found
    asked = asked or GradingContext()
    shown = asked.shown(trace)
    said = await asyncio.gather(*(grader.agrade(shown, workspace=files, judge=asked.by(grader)) for grader in asking))
    by_grader = dict(zip(map(id, [*plain, *asking]), [*found, *said], strict=True))
    return [by_grader[id(grader)] for grader in graders]


class GradingContext(NamedTuple):
    """Whom graders ask about a task, and what they show beside the trace."""

    judge: Any = None
    task: Task | None = None
    folder: SpecFolder | None = None
    """Where files that the task names as its source stand."""
    session: Any = None
    """The agent itself, where its session can be gone on with."""
    pinned: PinnedFiles | None = None
    """Files as they were before the first agent started; a source that was changed since is not shown."""

    def by(self, grader: Grader) -> Any:
        """Return whom a grader asks."""
        return self.session if grader.continues else self.judge

    def shown(self, trace: Trace) -> Trace:
        """Return the trace with the task's source context."""
        if self.task is None or SOURCE in trace.extra:
            return trace
        return replace(
            trace, extra=trace.extra | {SOURCE: source_of(self.task, self.folder or SpecFolder(), self.pinned)}
        )


def grading_times(graders: Sequence[Grader], grades: Sequence[Grade]) -> tuple[float, float]:
    """Return the milliseconds in graders that ask no judge and in those that do; the grades are theirs, in order."""
    grader_ms = judge_ms = 0.0
    for grader, grade in zip(graders, grades, strict=False):
        if grader.asks() is None:
            grader_ms += grade.duration_ms
        else:
            judge_ms += grade.duration_ms
    return grader_ms, judge_ms


OnCrash = Literal["fail", "error", "grade"]
ON_CRASH: tuple[OnCrash, ...] = ("fail", "error", "grade")


def status_of(trace: Trace, grades: list[Grade], on_crash: OnCrash = "fail") -> tuple[ResultStatus, str]:
    """Return a trial's status and the reason the grades do not tell; `on_crash` is `config.on_agent_crash`."""
    if trace.status == "error":
        return "error", trace.error or "the agent ended with an error"
    if trace.status == "timeout":
        return "failed", "timeout"
    if trace.crash is not None and on_crash != "grade":
        return "failed" if on_crash == "fail" else "error", trace.error or "the agent crashed"
    statuses = [grade.status for grade in grades]
    if "failed" in statuses:
        return "failed", ""
    if "error" in statuses:
        return "error", ""
    if trace.crash is not None and trace.crash.omitted_bytes:
        return "error", "the agent crashed and printed more than is kept, so the checks cannot be trusted"
    return "passed", ""


def on_crash_of(run: Run) -> OnCrash:
    """Return what a stored run's suite says about agents that crash."""
    policy = (run.spec.get("config") or {}).get("on_agent_crash")
    return next((known for known in ON_CRASH if known == policy), "fail")
