"""The `not` grader: another grader does not pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from waza.graders._combined import CombinedGrader, Part, Statuses
from waza.graders.base import Grader
from waza.model import JSON, Grade, GradeStatus


class NotGrader(CombinedGrader):
    """Check that another grader does not pass: it passes where that one failed.

    What is undecided stays so, a rule of `trace_rules` that did not apply too. The whole part is turned round: of a
    part with several checks it is enough that one of them failed.

    ```yaml
    - type: not
      name: no_apology
      config:
        grader: {type: text, config: {contains: [sorry]}}
    ```
    """

    part_keys: ClassVar[tuple[str, ...]] = ("grader",)

    grader: Part
    """The grader, as in a suite; it may be a combination itself."""

    @property
    def parts(self) -> Sequence[Grader]:
        """The grader it is made of."""
        return [self.grader]

    def possible_status(self, parts: Sequence[Statuses]) -> Statuses:
        """Return the statuses that are possible where the part has one of some statuses."""
        turned: dict[GradeStatus, GradeStatus] = {"passed": "failed", "failed": "passed", "error": "error"}
        return frozenset(turned[status] for status in parts[0])

    def score(self, status: GradeStatus, grades: Sequence[Grade]) -> float:
        """Return 1 where it passed and 0 where it did not: a part that failed in part has failed."""
        return float(status == "passed")

    def facts(self, grades: Sequence[Grade]) -> dict[str, JSON]:
        """Return nothing: that a call is not expected says nothing about the right one."""
        return {}

    def claim(self, names: Sequence[str]) -> str:
        """Return what is claimed about the part."""
        return f"{names[0]} does not pass"

    def feedback(self, status: GradeStatus, grades: Sequence[Grade], names: Sequence[str]) -> str:
        """Return the verdict in words."""
        reason = grades[0].feedback
        texts: dict[GradeStatus, str] = {
            "passed": f"{names[0]} did not pass: {reason}",
            "failed": f"{names[0]} passed, and must not: {reason}",
            "error": f"cannot tell whether {self.claim(names)}: {reason}",
        }
        return texts[status]
