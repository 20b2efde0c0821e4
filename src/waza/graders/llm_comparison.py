"""The `llm_comparison` grader: a judge compares the output with a reference answer."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, PrivateAttr, model_validator

from waza.graders.base import Finding
from waza.graders.judging import JudgedGrader
from waza.graders.llm import names_levels
from waza.judges.fencing import Data
from waza.model import Trace

_LEVELS = """\
5: nothing of weight is missing or different. 4: a small omission. 3: a part is missing or differs. 2: most of it is
missing or differs. 1: it says something else, or nothing."""
_DEFAULT = f"""\
Compare the candidate output with the reference answer. What counts is whether it says the same: facts, numbers, steps,
conclusions. Wording, order and length do not count. {_LEVELS}"""


class LlmComparisonGrader(JudgedGrader):
    """Let a judge compare the output with a reference answer, from 1 (another answer) to 5 (the same answer).

    ```yaml
    - type: llm_comparison
      name: same_answer
      config:
        reference: The refund is paid within five working days.
        threshold: 0.75
    ```
    """

    needs_one_of: ClassVar[tuple[str, ...]] = ("reference", "reference_file")
    criteria_heading: ClassVar[str] = _DEFAULT

    reference: str = ""
    """The answer to compare with."""
    reference_file: str = ""
    """A file with the answer, from the eval file's folder."""
    threshold: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.75
    """The lowest score that passes, from 0 to 1: (n - 1) / 4."""

    _answer: str = PrivateAttr(default="")

    @model_validator(mode="after")
    def _has_one_reference(self) -> Self:
        if self.reference and self.reference_file:
            raise ValueError("'reference' and 'reference_file' are both given; keep one of them")
        if self._rubric and self._rubric.scale != "1-5" and not self.prompt:
            raise ValueError(f"rubric '{self._rubric.name}' has the scale {self._rubric.scale}; a 1-5 rubric is needed")
        self._answer = self._reference()
        if not self._answer.strip():
            raise ValueError("the reference is blank; anything would be like it")
        return self

    def _reference(self) -> str:
        """Return the reference answer; raise ValueError where its file cannot be read."""
        if not self.reference_file:
            return self.reference
        try:
            return self.folder.find(self.reference_file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"'{self.reference_file}' cannot be read: {error}") from None

    def asks(self) -> list[str] | None:
        """Return the hash of the rubric in use, and the reference where it is in a file."""
        return [*(super().asks() or []), *([self._answer] if self.reference_file else [])]

    @property
    def pass_at(self) -> float | None:
        """The threshold."""
        return self.threshold

    async def consult(self, trace: Trace, judge: Any) -> Finding:
        """Return how near the output is to the reference."""
        *before, output = self.evidence(trace)
        asked = self.question_text or _DEFAULT
        is_bare = (self._rubric is None or bool(self.prompt)) and not names_levels(asked)
        parts = [asked, *([_LEVELS] if is_bare else []), *before, Data("Reference answer", self._answer), output]
        return await self.ask_score(judge, parts, self.threshold)
