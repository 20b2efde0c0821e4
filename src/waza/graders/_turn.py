"""A grader that looks at a conversation as it was after one of its prompts; made by specs, not named in YAML."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec.structs import replace
from pydantic import Field, SerializeAsAny

from waza.engines._turns import join_turns
from waza.errors import Undecidable
from waza.graders._base import Finding, Grader
from waza.model import JSON, Check, Files, Grade, Trace
from waza.sandbox.pinned import PinnedFiles
from waza.sandbox.snapshot import SnapshotFiles


class AfterTurnGrader(Grader):
    """Check what happened up to one of several prompts, or between it and the one before.

    The files are those of that moment, where they were kept: a run keeps them for its checkpoints.
    """

    grader: SerializeAsAny[Grader]
    """What is checked."""
    turn: Annotated[int, Field(ge=1)]
    """After which prompt, counted from 1."""
    prompts: Annotated[int, Field(ge=1)]
    """How many prompts the conversation has; after the last one there is nothing to cut off."""
    is_alone: bool = False
    """Whether only what this prompt brought is looked at, not all that came before it."""
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
        """Note the files of what is checked."""
        self.grader.pin(files)

    def reads(self) -> dict[str, str]:
        """Return the files that the grader reads."""
        return self.grader.reads()

    def look(self, trace: Trace, judge: Any) -> Finding:
        """Return what the grader finds in the part of the trace it is to look at."""
        part = self.part(trace)
        return part if isinstance(part, Finding) else self._found(self.grader.grade(part, judge=judge), trace)

    async def alook(self, trace: Trace, judge: Any) -> Finding:
        """Return what `look` returns, once the grader's judge has answered."""
        part = self.part(trace)
        return part if isinstance(part, Finding) else self._found(await self.grader.agrade(part, judge=judge), trace)

    def part(self, trace: Trace) -> Trace | Finding:
        """Return the conversation as it was then, or what to say where there is none."""
        if self.prompts == 1:
            return trace
        if trace.turns is None:
            if self.turn == self.prompts and not self.is_alone and trace.status == "success":
                return trace
            raise Undecidable("the turns of the conversation were not recorded: this engine cannot tell them apart")
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

    def _found(self, grade: Grade, trace: Trace) -> Finding:
        about: dict[str, JSON] = {"turn": self.turn} | self._places_in_all(grade.details, trace)
        feedback = grade.feedback
        if self.stops and grade.status == "failed" and self.turn == len(trace.turns or ()) < self.prompts:
            about["stopped"] = True
            feedback += f"; the conversation was stopped here, after turn {self.turn} of {self.prompts}"
        return Finding(grade.status, grade.score, feedback, grade.checks, grade.details | about)

    def _places_in_all(self, details: dict[str, JSON], trace: Trace) -> dict[str, JSON]:
        """Return the calls a grader counts arguments of by their places in the whole conversation."""
        stated = details.get("argument_calls")
        if not self.is_alone or not isinstance(stated, dict):
            return {}
        before = sum(len(turn.tool_events or []) for turn in (trace.turns or [])[: self.turn - 1])
        return {"argument_calls": {key: [before + place for place in places] for key, places in stated.items()}}
