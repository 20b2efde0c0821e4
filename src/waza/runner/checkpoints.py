"""What is looked at between the prompts of one trial: files are kept, and a conversation may end there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from waza.graders._base import Grader
from waza.graders._turn import AfterTurnGrader
from waza.model import Files, Grade, Trace

Grading = Callable[[list[Grader], Trace, Files | None], Awaitable[list[Grade]]]


class Checkpoints:
    """The checkpoints of one trial; an engine calls it before each follow-up prompt."""

    def __init__(self, graders: Sequence[Grader], grade: Grading) -> None:
        self._graders = graders
        self._grade = grade
        self.keep: Callable[[], tuple[str, Files]] | None = None
        """Keeps the files as they are now and returns their name; None where no file can be looked at."""
        self.snapshots: dict[str, str] = {}
        """By the number of a prompt: the files as they were before the next one."""
        self.decided: dict[int, Grade] = {}
        """By place among the graders: what was decided on the way, and is not decided again."""
        self.elapsed_s = 0.0
        """Time between the prompts, which is not the agent's."""

    async def __call__(self, turns: Sequence[Trace]) -> str:
        """Return why the conversation is to end after these turns; nothing when it goes on."""
        started = time.perf_counter()
        try:
            return await self._checked(turns)
        finally:
            self.elapsed_s += time.perf_counter() - started

    async def _checked(self, turns: Sequence[Trace]) -> str:
        number, files = len(turns), None
        here = {
            place: grader
            for place, grader in enumerate(self._graders)
            if isinstance(grader, AfterTurnGrader) and grader.turn == number
        }
        if here and self.keep is not None:
            self.snapshots[str(number)], files = await asyncio.to_thread(self.keep)
        stopping = {place: grader for place, grader in here.items() if grader.stops}
        so_far = replace(turns[-1], turns=list(turns))
        grades = await self._grade(list(stopping.values()), so_far, files) if stopping else []
        self.decided |= dict(zip(stopping, grades, strict=False))
        failed = [grade.name for grade in grades if grade.status == "failed"]
        return f"stopped after turn {number}, where {', '.join(failed)} failed" if failed else ""

    def passed_over(self, turns: Sequence[Trace], grades: Sequence[Grade]) -> list[str]:
        """Return the checkpoints that were to stop the conversation, and which the engine did not wait for."""
        found = zip(self._graders, grades, strict=False)
        late = [(grader, grade) for grader, grade in found if isinstance(grader, AfterTurnGrader) and grader.stops]
        return [grade.name for grader, grade in late if grade.status == "failed" and grader.turn < len(turns)]

    async def rest(self, trace: Trace, files: Files | None) -> list[Grade]:
        """Return every grader's verdict when it is all over, in order; none on an agent that could not run."""
        if trace.status == "error":
            return []
        if not self.decided:
            return await self._grade(list(self._graders), trace, files)
        places = [place for place in range(len(self._graders)) if place not in self.decided]
        grades = await self._grade([self._graders[place] for place in places], trace, files)
        found = self.decided | dict(zip(places, grades, strict=False))
        return [found[place] for place in sorted(found)]
