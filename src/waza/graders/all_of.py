"""The `all_of` grader: all of several graders pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from waza.graders._combined import CombinedGrader, Parts
from waza.graders.base import Grader
from waza.model import Check, Grade, GradeStatus


class AllOfGrader(CombinedGrader):
    """Check that all of several graders pass.

    A part that failed decides; otherwise one that is undecided leaves the whole undecided. The score is the mean of
    the decided parts' scores, by their weights.

    ```yaml
    - type: all_of
      name: polite_and_right
      config:
        graders:
          - {type: text, name: right, weight: 2, config: {contains: ["19.50"]}}
          - {type: text, name: polite, config: {contains: [please]}}
    ```
    """

    weighs_parts: ClassVar[bool] = True
    part_keys: ClassVar[tuple[str, ...]] = ("graders",)

    graders: Parts
    """The graders, as in a suite; each may be a combination itself."""

    @property
    def parts(self) -> Sequence[Grader]:
        """The graders it is made of."""
        return self.graders

    @property
    def need(self) -> int:
        """How many parts must pass."""
        return len(self.graders)

    def score(self, status: GradeStatus, grades: Sequence[Grade]) -> float:
        """Return the mean score of the decided parts, by their weights."""
        decided = [grade for grade in grades if grade.status != "error"]
        total = sum(grade.weight for grade in decided)
        if not total:
            return sum(grade.score for grade in decided) / len(decided)
        return sum(grade.score * grade.weight for grade in decided) / total

    def part_checks(self, status: GradeStatus, grades: Sequence[Grade], names: Sequence[str]) -> list[Check]:
        """Return one check per part."""
        oks = {"passed": True, "failed": False, "error": None}
        return [
            Check(oks[grade.status], f"{name} passes", "" if grade.passed else f"{name}: {grade.feedback}")
            for name, grade in zip(names, grades, strict=True)
        ]

    def feedback(self, status: GradeStatus, grades: Sequence[Grade], names: Sequence[str]) -> str:
        """Return the parts that did not pass, with their reasons."""
        if status == "passed":
            return f"all {len(grades)} graders passed"
        reasons = [
            f"{name}: {grade.feedback}" for name, grade in zip(names, grades, strict=True) if grade.status == status
        ]
        return "; ".join(reasons)
