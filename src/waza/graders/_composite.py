"""Several graders as one, all of them or any of them; made in Python, not in YAML."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from pydantic import Field, SerializeAsAny

from waza.graders._base import Finding, Grader
from waza.model import JSON, Check, Grade, GradeStatus, Trace
from waza.results.tool_use import merged_tool_facts
from waza.sandbox.pinned import PinnedFiles


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
        """Return what those that need a judge ask it by."""
        asked = [hashes for grader in self.graders if (hashes := grader.asks()) is not None]
        return [one for hashes in asked for one in hashes] if asked else None

    def pin(self, files: PinnedFiles) -> None:
        """Note the files of all of them."""
        for grader in self.graders:
            grader.pin(files)

    def reads(self) -> dict[str, str]:
        """Return the files that any of them reads."""
        return {name: digest for grader in self.graders for name, digest in grader.reads().items()}

    def look(self, trace: Trace, judge: Any) -> Finding:
        """Return what the grades come to: all of them, or the best one."""
        return self._found(trace, [grader.grade(trace, judge=judge) for grader in self.graders])

    async def alook(self, trace: Trace, judge: Any) -> Finding:
        """Return what `look` returns, once every judge has answered."""
        return self._found(trace, await asyncio.gather(*(grader.agrade(trace, judge=judge) for grader in self.graders)))

    def _found(self, trace: Trace, grades: list[Grade]) -> Finding:
        checks = [check for grade in grades for check in _told(grade)]
        about = self.details(trace, checks)
        about |= merged_tool_facts((grade.details for grade in grades), is_choice=not self.require_all)
        statuses = [grade.status for grade in grades]
        feedback = "; ".join(grade.feedback for grade in grades if not grade.passed) or self.all_held
        if not self.require_all:
            status: GradeStatus = min(statuses, key=("passed", "error", "failed").index)
            return Finding(status, float(status == "passed"), feedback, checks, about)
        status = min(statuses, key=("failed", "error", "passed").index)
        score = 0.0 if status == "error" else sum(check.ok is True for check in checks) / len(checks)
        return Finding(status, score, feedback, checks, about)

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return what was combined."""
        return {"graders": [grader.name or grader.type_name() for grader in self.graders], "all": self.require_all}


def _told(grade: Grade) -> list[Check]:
    """Return a grade's checks, and one for the grade itself where they do not explain it."""
    oks = [check.ok for check in grade.checks]
    explained = {"passed": bool(oks) and all(oks), "failed": False in oks, "error": None in oks and False not in oks}
    if explained[grade.status]:
        return grade.checks
    ok = {"passed": True, "failed": False, "error": None}[grade.status]
    return [*grade.checks, Check(ok, f"{grade.name} passes", "" if ok else grade.feedback)]
