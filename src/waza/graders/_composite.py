"""Several graders as one, all of them or any of them; made in Python, not in YAML."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, SerializeAsAny

from waza.graders._base import Grader
from waza.model import JSON, Check, Trace


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

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield every check of every grader, or one check that any grader passed."""
        grades = [grader.grade(trace) for grader in self.graders]
        if self.require_all:
            for grade in grades:
                yield from grade.checks or [Check(None, f"{grade.name} decides", grade.feedback)]
            return
        statuses = {grade.status for grade in grades}
        ok = True if "passed" in statuses else None if "error" in statuses else False
        yield Check(ok, "one of the graders passes", "; ".join(f"{grade.name}: {grade.feedback}" for grade in grades))

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return what was combined."""
        return {"graders": [grader.name or grader.type_name() for grader in self.graders], "all": self.require_all}
