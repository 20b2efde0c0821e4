"""The `skill_invocation` grader: which skills the agent invoked, and in what order."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from msgspec.structs import replace
from pydantic import model_validator

from waza.errors import Undecidable
from waza.graders._align import Order
from waza.graders._base import Finding, Grader
from waza.graders._fields import Needles
from waza.graders._sequence import SequenceChecks, f1_of, sequence_checks
from waza.model import JSON, Check, Trace

_ORDERS: dict[str, Order] = {"exact_match": "exact", "in_order": "in_order", "any_order": "any"}
_EXTRA_PENALTY = 0.6


class SkillInvocationGrader(Grader):
    """Check which skills were invoked, and in what order.

    The mode decides whether it passes, and a forbidden skill always fails it with score 0. The score is the F1 of the
    required and the invoked skills; `allow_extra: false` takes up to 60 % off for invocations beyond the required ones.

    ```yaml
    - type: skill_invocation
      name: routing_check
      config:
        required_skills: [azure-prepare, azure-deploy]
        mode: in_order
        allow_extra: true
    ```
    """

    all_held: ClassVar[str] = "Skill invocation sequence matched"
    needs_one_of: ClassVar[tuple[str, ...]] = ("required_skills", "forbidden_skills")

    required_skills: Needles = []
    """Skills that must be invoked, by exact name; a name given twice needs two invocations."""
    forbidden_skills: Needles = []
    """Skills that must not be invoked, by exact name."""
    mode: Literal["exact_match", "in_order", "any_order"] | None = None
    """How required and invoked skills are compared; needed with `required_skills`."""
    allow_extra: bool = True
    """Whether invocations beyond the required ones are free of a further penalty; never decides passed or failed."""

    @model_validator(mode="after")
    def _has_mode(self) -> Self:
        if self.required_skills and self.mode is None:
            raise ValueError("'required_skills' needs a 'mode': exact_match, in_order or any_order")
        return self

    def checks(self, trace: Trace) -> SequenceChecks:
        """Return one check per required skill, one for extra ones in `exact_match`, one for the forbidden ones."""
        actual = _skills(trace)
        order = _ORDERS[self.mode or "any_order"] if self.required_skills else "any"
        checks = sequence_checks(order, self.required_skills, actual, "Skill")
        if self.forbidden_skills:
            violations = self._violations(actual)
            failure = f"Forbidden skills invoked: {', '.join(violations)}" if violations else ""
            checks.append(Check(not violations, "no forbidden skill is invoked", failure, actual=violations or None))
        return checks

    def verdict(self, trace: Trace, checks: list[Check]) -> tuple[float, bool]:
        """Return the F1, less the penalty for extra invocations, and whether every check held."""
        actual, required = _skills(trace), len(self.required_skills)
        score = f1_of(self.required_skills, actual)[2] if required else 1.0
        if self._penalised(actual):
            score *= 1 - _EXTRA_PENALTY * (len(actual) - required) / len(actual)
        return 0.0 if self._violations(actual) else score, all(check.ok for check in checks)

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return both sequences, precision, recall, F1, the alignment, and what the catalogue of skills says."""
        assert isinstance(checks, SequenceChecks)
        actual = checks.actual
        precision, recall, f1 = f1_of(self.required_skills, actual) if self.required_skills else (1.0, 1.0, 1.0)
        facts: dict[str, JSON] = {
            "mode": self.mode or "any_order",
            "required_skills": self.required_skills,
            "forbidden_skills": self.forbidden_skills,
            "forbidden_violations": self._violations(actual),
            "actual_skills": actual,
            "allow_extra": self.allow_extra,
            "precision": precision,
            "recall": recall,
            "f1": f1,
            "alignment": checks.alignment,
        }
        if trace.available_skills is not None:
            hidden, ignored = self._not_invoked(trace, trace.available_skills)
            facts["available_skills"] = trace.available_skills
            facts["not_surfaced_required_skills"] = hidden
            facts["surfaced_but_not_invoked_required_skills"] = ignored
        return facts

    def look(self, trace: Trace, judge: object) -> Finding:
        """Return what the checks come to, with what the skill catalogue tells about it."""
        finding = super().look(trace, judge)
        if finding.status == "passed":
            return replace(finding, feedback=self._praise(trace))
        return replace(finding, feedback=finding.feedback + self._hint(trace))

    def _praise(self, trace: Trace) -> str:
        """Return what was right, and the extra invocations that lowered the score."""
        actual = _skills(trace)
        if not self.required_skills:
            return "Forbidden skills were not invoked"
        if self._penalised(actual):
            return f"{self.all_held}, with extra invocations (got {len(actual)}, expected {len(self.required_skills)})"
        return self.all_held

    def _hint(self, trace: Trace) -> str:
        """Return what the catalogue of skills says about the required ones that were not invoked."""
        if trace.available_skills is None:
            return ""
        hidden, ignored = self._not_invoked(trace, trace.available_skills)
        return (f"; runtime never surfaced: {', '.join(hidden)}" if hidden else "") + (
            f"; surfaced but not invoked: {', '.join(ignored)}" if ignored else ""
        )

    def _penalised(self, actual: list[str]) -> bool:
        return not self.allow_extra and bool(self.required_skills) and len(actual) > len(self.required_skills)

    def _violations(self, actual: list[str]) -> list[str]:
        return [skill for skill in dict.fromkeys(self.forbidden_skills) if skill in actual]

    def _not_invoked(self, trace: Trace, catalogue: list[str]) -> tuple[list[str], list[str]]:
        """Return the required skills that were not invoked: those never offered, and those offered."""
        actual = _skills(trace)
        absent = [skill for skill in dict.fromkeys(self.required_skills) if skill not in actual]
        return [s for s in absent if s not in catalogue], [s for s in absent if s in catalogue]


def _skills(trace: Trace) -> list[str]:
    if trace.skill_invocations is None:
        raise Undecidable("skill use was not recorded: this engine cannot observe it")
    return [invocation.name for invocation in trace.skill_invocations]
