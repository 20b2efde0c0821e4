"""The `trigger` grader: whether a prompt should activate a skill, by the words of its SKILL.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr, model_validator

from waza.graders.base import Grader, Text, content_hash
from waza.model import JSON, Check, Trace
from waza.skills import Skill, read_skill


def _mode(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


class TriggerGrader(Grader):
    """Check whether the task's prompt should activate a skill, by comparing it with the words of its SKILL.md.

    No model is asked and the output is not used. The relevance is the share of the prompt's words that the skill
    knows, or how close the prompt comes to one of its `USE FOR:` phrases. The score is the relevance, in `negative`
    mode one minus it.

    ```yaml
    - type: trigger
      name: deploy_trigger
      config:
        skill_path: skills/azure-deploy/SKILL.md
        mode: positive
        threshold: 0.6
    ```
    """

    needs_more_than_trace: ClassVar[bool] = True

    skill_path: Text
    """The SKILL.md file, or its folder; next to the eval file, or at the project's root."""
    mode: Annotated[Literal["positive", "negative"], BeforeValidator(_mode)]
    """`positive`: the prompt should activate the skill; `negative`: it should not."""
    threshold: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.6
    """The relevance from which on a prompt activates the skill, from 0 to 1."""

    _skill: Skill = PrivateAttr()

    @model_validator(mode="after")
    def _read(self) -> Self:
        if self.mode == "positive" and self.threshold == 0:
            raise ValueError("every prompt reaches a threshold of 0: this grader could not fail")
        path = self.folder.find(self.skill_path)
        self._skill = read_skill(self.folder.find(f"{self.skill_path}/SKILL.md") if path.is_dir() else path)
        if not self._skill.keywords:
            raise ValueError(f"'{self.skill_path}' has no words to compare a prompt with")
        return self

    def reads(self) -> dict[str, str]:
        """Return the SKILL.md."""
        text = "\0".join((self._skill.name, self._skill.description, self._skill.body))
        return {self.skill_path: content_hash(text.encode("utf-8", "replace"))}

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield the one comparison."""
        relevance = self._skill.relevance(trace.input).score
        wanted = "at least" if self.mode == "positive" else "below"
        claim = f"the prompt's relevance to the skill is {wanted} {self.threshold:g}"
        if (relevance >= self.threshold) == (self.mode == "positive"):
            yield Check(True, claim)
        else:
            failure = f"Relevance {relevance:.2f} is not {wanted} the threshold {self.threshold:.2f}"
            yield Check(False, claim, failure, f"{wanted} {self.threshold:g}", relevance)

    def verdict(self, trace: Trace, checks: list[Check]) -> tuple[float, bool]:
        """Return the relevance, in `negative` mode one minus it, and whether the check passed."""
        relevance = self._skill.relevance(trace.input).score
        return relevance if self.mode == "positive" else 1 - relevance, all(check.ok for check in checks)

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return the words that matched and how close the nearest phrase came."""
        relevance = self._skill.relevance(trace.input)
        return {
            "mode": self.mode,
            "threshold": self.threshold,
            "skill_path": self.skill_path,
            "matched_keywords": relevance.matched,
            "matched_count": len(relevance.matched),
            "keyword_count": len(self._skill.keywords),
            "phrase_score": relevance.phrase_score,
        }
