"""The `llm` grader: a judge's score from 1 to 5, with a threshold."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from waza.graders.base import Finding
from waza.graders.judging import JudgedGrader
from waza.model import Trace

MAX_REFERENCE = 100
"""The longest `rubric` in one line that is taken for a name or a path, unless a file is called so."""


class LlmGrader(JudgedGrader):
    """Let a judge give a score from 1 to 5, and pass from a threshold on.

    The score of the grade is (n - 1) / 4, so 4 of 5 is 0.75. With `criteria` each gets a score of its own and must
    reach the threshold; the grade's score is their mean. A rubric must have the scale `1-5`; a `pass-fail` rubric goes
    with the `prompt` grader. A `rubric` of several lines, or of more than 100 characters with spaces that names no
    file, is the text itself.

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

    def _is_rubric_text(self) -> bool:
        text = self.rubric
        if "\n" in text or "\r" in text:
            return True
        if len(text) <= MAX_REFERENCE or not any(letter.isspace() for letter in text) or text.endswith(".md"):
            return False
        try:
            self.folder.find(text)
        except ValueError:
            return True
        return False

    @model_validator(mode="after")
    def _says_it_once(self) -> Self:
        if self.prompt and self.rubric and self._rubric is None:
            raise ValueError("'prompt' and the text in 'rubric' both say what is judged; keep one of them")
        return self

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
        return await self.ask_score(judge, [self.question_text, *self.evidence(trace)], self.threshold)
