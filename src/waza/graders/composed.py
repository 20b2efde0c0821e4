"""Graders that are made in Python or from other keys of a suite, not by a YAML `type`.

`CompositeGrader` combines several, `AfterTurnGrader` grades a conversation after one of its prompts, `MockCallsGrader`
counts the calls of a mock (`expect_calls`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Annotated, Any

from msgspec.structs import replace
from pydantic import Field, SerializeAsAny

from waza.errors import Undecidable
from waza.files.pinned import PinnedFiles
from waza.files.snapshot import SnapshotFiles
from waza.graders.base import Finding, Grader
from waza.graders.fields import Bound, Text
from waza.model import JSON, Check, Files, Grade, GradeStatus, Trace
from waza.runs.tool_use import merged_tool_facts
from waza.traces.conversation import join_turns


class CompositeGrader(Grader):
    """Check that all graders pass, or at least one of them.

    ```python
    CompositeGrader(graders=[ContainsGrader(values=["a"]), ToolCalledGrader(required=["b"])], require_all=False)
    ```
    """

    graders: Annotated[list[SerializeAsAny[Grader]], Field(min_length=1)]
    """The graders to combine."""
    require_all: bool = True
    """Whether all must pass, or one is enough."""

    @property
    def waits(self) -> bool:  # type: ignore[override]
        """Whether any of them waits for another process."""
        return any(grader.waits for grader in self.graders)

    def unready(self) -> str:
        """Return the first reason why one of them could not grade here."""
        return next(filter(None, (grader.unready() for grader in self.graders)), "")

    def asks(self) -> list[str] | None:
        """Return the rubrics of those that ask a judge."""
        rubrics = [hashes for grader in self.graders if (hashes := grader.asks()) is not None]
        return [one for hashes in rubrics for one in hashes] if rubrics else None

    def pin(self, files: PinnedFiles) -> None:
        """Record the files of all of them."""
        for grader in self.graders:
            grader.pin(files)

    def reads(self) -> dict[str, str]:
        """Return the files that any of them reads."""
        return {name: digest for grader in self.graders for name, digest in grader.reads().items()}

    def evaluate(self, trace: Trace, judge: Any) -> Finding:
        """Return the combined verdict: of all graders, or of the best one."""
        return self._finding(trace, [grader.grade(trace, judge=judge) for grader in self.graders])

    async def aevaluate(self, trace: Trace, judge: Any) -> Finding:
        """Return what `evaluate` returns, once every judge has answered."""
        return self._finding(
            trace, await asyncio.gather(*(grader.agrade(trace, judge=judge) for grader in self.graders))
        )

    def _finding(self, trace: Trace, grades: list[Grade]) -> Finding:
        checks = [check for grade in grades for check in _explaining_checks(grade)]
        about = self.details(trace, checks)
        about |= merged_tool_facts((grade.details for grade in grades), is_choice=not self.require_all)
        statuses = [grade.status for grade in grades]
        feedback = "; ".join(grade.feedback for grade in grades if not grade.passed) or self.all_passed
        if not self.require_all:
            status: GradeStatus = min(statuses, key=("passed", "error", "failed").index)
            return Finding(status, float(status == "passed"), feedback, checks, about)
        status = min(statuses, key=("failed", "error", "passed").index)
        score = 0.0 if status == "error" else sum(check.ok is True for check in checks) / len(checks)
        return Finding(status, score, feedback, checks, about)

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return the names of the combined graders."""
        return {"graders": [grader.name or grader.type_name() for grader in self.graders], "all": self.require_all}


def _explaining_checks(grade: Grade) -> list[Check]:
    """Return a grade's checks, and one for the grade itself where they do not explain it."""
    oks = [check.ok for check in grade.checks]
    explained = {"passed": bool(oks) and all(oks), "failed": False in oks, "error": None in oks and False not in oks}
    if explained[grade.status]:
        return grade.checks
    ok = {"passed": True, "failed": False, "error": None}[grade.status]
    return [*grade.checks, Check(ok, f"{grade.name} passes", "" if ok else grade.feedback)]


class AfterTurnGrader(Grader):
    """Check what happened up to one of several prompts, or between it and the one before.

    The files are those of that moment, where they were stored: a run stores them for its checkpoints.
    """

    grader: SerializeAsAny[Grader]
    """What is checked."""
    turn: Annotated[int, Field(ge=1)]
    """After which prompt, counted from 1."""
    prompts: Annotated[int, Field(ge=1)]
    """How many prompts the conversation has; after the last one there is nothing to cut off."""
    is_alone: bool = False
    """Whether only this prompt's turn is graded, without those before it."""
    stops: bool = False
    """Whether the conversation ends here when this fails."""

    @property
    def waits(self) -> bool:  # type: ignore[override]
        """Whether what is checked waits for another process."""
        return self.grader.waits

    def asks(self) -> list[str] | None:
        """Return what the grader asks a judge by."""
        return self.grader.asks()

    def pin(self, files: PinnedFiles) -> None:
        """Record the files of the inner grader."""
        self.grader.pin(files)

    def reads(self) -> dict[str, str]:
        """Return the files that the grader reads."""
        return self.grader.reads()

    def evaluate(self, trace: Trace, judge: Any) -> Finding:
        """Return what the grader finds in its part of the trace."""
        part = self.part(trace)
        return part if isinstance(part, Finding) else self._finding(self.grader.grade(part, judge=judge), trace)

    async def aevaluate(self, trace: Trace, judge: Any) -> Finding:
        """Return what `evaluate` returns, once the grader's judge has answered."""
        part = self.part(trace)
        return part if isinstance(part, Finding) else self._finding(await self.grader.agrade(part, judge=judge), trace)

    def part(self, trace: Trace) -> Trace | Finding:
        """Return the conversation as it was then, or a finding where it did not get there."""
        if self.prompts == 1:
            return trace
        if trace.turns is None:
            if self.turn == self.prompts and not self.is_alone and trace.status == "success":
                return trace
            raise Undecidable("the turns of the conversation were not recorded: this engine does not separate them")
        if len(trace.turns) < self.turn:
            return self._not_reached(trace, len(trace.turns))
        turns = trace.turns[: self.turn]
        part = turns[-1] if self.is_alone else join_turns([turn.input for turn in turns], turns)
        part = replace(part, files=self._files(trace, len(trace.turns)))
        return replace(part, extra=part.extra | trace.extra) if self.asks() is not None else part

    def _files(self, trace: Trace, last: int) -> Files | None:
        if self.turn == last:
            return trace.files
        return trace.files.after_turn(self.turn) if isinstance(trace.files, SnapshotFiles) else None

    def _not_reached(self, trace: Trace, last: int) -> Finding:
        why = trace.error or f"the agent ended with {trace.status} in turn {last}"
        fact = f"turn {self.turn} was not reached: {why}"
        return Finding("failed", 0.0, fact, [Check(False, f"turn {self.turn} is reached", fact)], {"turn": self.turn})

    def _finding(self, grade: Grade, trace: Trace) -> Finding:
        about: dict[str, JSON] = {"turn": self.turn} | self._places_in_all(grade.details, trace)
        feedback = grade.feedback
        if self.stops and grade.status == "failed" and self.turn == len(trace.turns or ()) < self.prompts:
            about["stopped"] = True
            feedback += f"; the conversation was stopped here, after turn {self.turn} of {self.prompts}"
        return Finding(grade.status, grade.score, feedback, grade.checks, grade.details | about)

    def _places_in_all(self, details: dict[str, JSON], trace: Trace) -> dict[str, JSON]:
        """Return `argument_calls` with indexes in the whole conversation."""
        stated = details.get("argument_calls")
        if not self.is_alone or not isinstance(stated, dict):
            return {}
        before = sum(len(turn.tool_events or []) for turn in (trace.turns or [])[: self.turn - 1])
        return {"argument_calls": {key: [before + place for place in places] for key, places in stated.items()}}


class MockCallsGrader(Grader):
    """Check how often a mocked program, or a tool of a mocked MCP server, was called."""

    command: Text | None = None
    """The program."""
    server: Text | None = None
    """The server."""
    tool: Text | None = None
    """Its tool."""
    expect_calls: Bound
    """How often it must be called, exactly."""

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield the one claim."""
        wanted = {"command": self.command} if self.command else {"server": self.server, "tool": self.tool}
        calls = _calls(trace)
        count = sum(all(call.get(key) == value for key, value in wanted.items()) for call in calls)
        calls_of = f"calls of the mock of {self.command or f'{self.server}.{self.tool}'}"
        claim = f"{calls_of}: {self.expect_calls}"
        yield Check(count == self.expect_calls, claim, f"{calls_of}: {count}, expected {self.expect_calls}")


def _calls(trace: Trace) -> list[dict[str, JSON]]:
    mocks = trace.outcome.get("mocks")
    calls = mocks.get("calls") if isinstance(mocks, dict) else None
    if not isinstance(calls, list):
        raise Undecidable("calls of mocks were not recorded: this engine does not use them")
    return [call for call in calls if isinstance(call, dict)]
