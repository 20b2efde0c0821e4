"""A grader that looks at a conversation as it was after one of its prompts; made by specs, not named in YAML."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, SerializeAsAny

from waza.engines._turns import join_turns
from waza.errors import Undecidable
from waza.graders._base import Finding, Grader
from waza.model import Check, Trace


class AfterTurnGrader(Grader):
    """Check what happened up to one of several prompts, or between it and the one before.

    The files as they were then are not kept: a grader that needs them cannot decide.
    """

    grader: SerializeAsAny[Grader]
    """What is checked."""
    turn: Annotated[int, Field(ge=1)]
    """After which prompt, counted from 1."""
    is_alone: bool = False
    """Whether only what this prompt brought is looked at, not all that came before it."""

    def look(self, trace: Trace, judge: Any) -> Finding:
        """Return what the grader finds in the part of the trace it is to look at."""
        if trace.turns is None:
            raise Undecidable("the turns of the conversation were not recorded: this engine cannot tell them apart")
        if len(trace.turns) < self.turn:
            fact = f"turn {self.turn} was not reached: the agent ended with {trace.status} in turn {len(trace.turns)}"
            return Finding("failed", 0.0, fact, [Check(False, f"turn {self.turn} is reached", fact)])
        turns = trace.turns[: self.turn]
        part = turns[-1] if self.is_alone else join_turns([turn.input for turn in turns], turns)
        grade = self.grader.grade(part, judge=judge)
        return Finding(grade.status, grade.score, grade.feedback, grade.checks, grade.details | {"turn": self.turn})
