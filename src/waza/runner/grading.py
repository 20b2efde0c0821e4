"""Grades of a trace, and the status of its trial that follows from them. No agent is started here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from waza.files.paths import SpecFolder
from waza.files.pinned import PinnedFiles
from waza.graders.base import SOURCE, Grader
from waza.model import Files, Grade, ResultStatus, Run, Task, Trace
from waza.process.concurrency import in_thread
from waza.suites.sources import source_of


def grade_trace(trace: Trace, graders: Iterable[Grader], files: Files | None = None) -> list[Grade]:
    """Return every grader's verdict, in order; a broken grader never discards the others."""
    return [grader.grade(trace, workspace=files) for grader in graders]


async def grades_of(
    trace: Trace, graders: Sequence[Grader], files: Files | None, context: GradingContext | None = None
) -> list[Grade]:
    """Return every grader's verdict, in order; those of judges are waited for together, after the others.

    Graders that wait for other processes run in a thread, off the event loop.
    """
    asking = [grader for grader in graders if grader.asks() is not None]
    local = [grader for grader in graders if grader.asks() is None] if asking else graders
    if any(grader.waits for grader in local):
        grades = await in_thread(lambda: grade_trace(trace, local, files))
    else:
        grades = grade_trace(trace, local, files)
    if not asking:
        return grades
    context = context or GradingContext()
    shown = context.with_source(trace)
    judged = await asyncio.gather(
        *(grader.agrade(shown, workspace=files, judge=context.judge_of(grader)) for grader in asking)
    )
    by_grader = dict(zip(map(id, [*local, *asking]), [*grades, *judged], strict=True))
    return [by_grader[id(grader)] for grader in graders]


class GradingContext(NamedTuple):
    """The judge that graders ask about a task, and what it is shown in addition to the trace."""

    judge: Any = None
    task: Task | None = None
    folder: SpecFolder | None = None
    """The folder of the files that the task names as its source."""
    session: Any = None
    """The agent itself, where its session can be continued."""
    pinned: PinnedFiles | None = None
    """Files as they were before the first agent started; a source that was changed since is not shown."""

    def judge_of(self, grader: Grader) -> Any:
        """Return the judge of a grader, or the agent's session where the grader continues it."""
        return self.session if grader.continues else self.judge

    def with_source(self, trace: Trace) -> Trace:
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
    """Return a trial's status and a reason that is not in the grades; `on_crash` is `config.on_agent_crash`."""
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
    """Return a stored run's `config.on_agent_crash`."""
    policy = run.suite.config.on_agent_crash
    return next((known for known in ON_CRASH if known == policy), "fail")
