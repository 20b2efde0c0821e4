"""The `any_of` grader: at least one of several graders passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from waza.graders._combined import CombinedGrader, Parts
from waza.graders.base import Grader
from waza.model import Grade, GradeStatus


class AnyOfGrader(CombinedGrader):
    """Check that at least one of several graders passes.

    The score is the best one among the parts with the resulting status.

    ```yaml
    - type: any_of
      name: tells_of_removals
      config:
        graders:
          - {type: not, config: {grader: {type: tool_calls, config: {required_tools: [rm]}}}}
          - {type: text, name: says_it, config: {contains: [removed]}}
    ```
    """

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
        return 1

    def score(self, status: GradeStatus, grades: Sequence[Grade]) -> float:
        """Return the best score among the parts with the resulting status."""
        return max(grade.score for grade in grades if grade.status == status)
