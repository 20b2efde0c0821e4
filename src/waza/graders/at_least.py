"""The `at_least` grader: so many of several graders pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from pydantic import model_validator

from waza.graders._combined import CombinedGrader, Parts
from waza.graders.base import Grader, Least
from waza.model import Grade, GradeStatus


class AtLeastGrader(CombinedGrader):
    """Check that at least so many of several graders pass.

    It fails once too few could still pass. The score is the share of the needed parts that passed.

    ```yaml
    - type: at_least
      name: two_sources
      config:
        count: 2
        graders:
          - {type: tool_calls, name: docs, config: {required_tools: [search_docs]}}
          - {type: tool_calls, name: web, config: {required_tools: [search_web]}}
          - {type: text, name: quotes, config: {contains: ["according to"]}}
    ```
    """

    part_keys: ClassVar[tuple[str, ...]] = ("graders",)

    count: Least
    """How many must pass."""
    graders: Parts
    """The graders, as in a suite; each may be a combination itself."""

    @model_validator(mode="after")
    def _can_pass(self) -> Self:
        if self.count > len(self.graders):
            raise ValueError(
                f"count ({self.count}) is more than there are graders ({len(self.graders)}): it could never pass"
            )
        return self

    @property
    def parts(self) -> Sequence[Grader]:
        """The graders it is made of."""
        return self.graders

    @property
    def need(self) -> int:
        """How many parts must pass."""
        return self.count

    def score(self, status: GradeStatus, grades: Sequence[Grade]) -> float:
        """Return the share of the needed parts that passed."""
        return min(1.0, sum(grade.passed for grade in grades) / self.count)
