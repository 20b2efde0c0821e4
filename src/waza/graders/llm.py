"""The `llm` grader: a judge's score from 1 to 5, with a threshold."""

from __future__ import annotations

import re
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from waza.graders.base import Finding
from waza.graders.judging import JudgedGrader
from waza.model import Trace

LEVELS = """\
Give one of five levels:
5: it does what is asked for above completely; nothing of weight could be better.
4: it does it, with small flaws that change nothing of weight.
3: it does a part of it; something of weight is missing or wrong.
2: it mostly does not do it; little of it is right.
1: it does not do it at all, or does the opposite."""
"""Added to an instruction that does not say what the scores mean."""
_LEVEL = re.compile(r"(?<![\d.,])([1-5])\b\*{0,2}\s?(?::|=|—|–|-\s|\)|\.\s|means\b|if\b)")


class LlmGrader(JudgedGrader):
    """Let a judge give a score from 1 to 5, and pass from a threshold on.

    The score of the grade is (n - 1) / 4, so 4 of 5 is 0.75. With `criteria` each gets a score of its own and must
    reach the threshold; the grade's score is their mean. A rubric must have the scale `1-5`; a `pass-fail` rubric goes
    with the `prompt` grader. A prompt that does not say what the scores mean gets five levels. A `rubric` of several
    lines, or of more than 100 characters with spaces that names no file, is the text itself.

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
        is_bare = (self._rubric is None or bool(self.prompt)) and not names_levels(self.question_text)
        parts = [self.question_text, *([LEVELS] if is_bare else []), *self.evidence(trace)]
        return await self.ask_score(judge, parts, self.threshold)


def names_levels(text: str) -> bool:
    """Return whether an instruction says what at least two of the scores from 1 to 5 mean."""
    return len({found[1] for found in _LEVEL.finditer(text)}) > 1
