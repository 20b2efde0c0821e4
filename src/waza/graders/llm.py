"""The `llm` grader: a judge's score from 1 to 5, with a threshold."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from waza.graders._base import Finding
from waza.graders._judged import JudgedGrader
from waza.model import Trace


class LlmGrader(JudgedGrader):
    """Let a judge give a score from 1 to 5, and pass from a threshold on.

    The score of the grade is (n - 1) / 4, so 4 of 5 is 0.75. A rubric must have the scale `1-5`; a `pass-fail` rubric
    goes with the `prompt` grader.

    ```yaml
    - type: llm
      name: clarity
      config:
        prompt: How clear is the answer to somebody who does not know the product?
        threshold: 0.75
    ```
    """

    threshold: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.75
    """The lowest score that passes, from 0 to 1."""

    @model_validator(mode="after")
    def _has_the_scale(self) -> Self:
        if self._rubric and self._rubric.scale != "1-5" and not self.prompt:
            raise ValueError(
                f"rubric '{self._rubric.name}' has the scale {self._rubric.scale}; "
                "use it with type: prompt, or take a 1-5 rubric"
            )
        return self

    @property
    def pass_at(self) -> float | None:
        """The threshold."""
        return self.threshold

    async def consult(self, trace: Trace, judge: Any) -> Finding:
        """Return the judge's score."""
        return await self.ask_score(judge, [self.criteria, *self.evidence(trace)], self.threshold)
