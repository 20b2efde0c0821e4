"""The `skill_invocation` grader: which skills the agent invoked, and in what order."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from msgspec.structs import replace
from pydantic import model_validator

from waza.errors import Undecidable
from waza.graders._alignment import Order, SequenceChecks, f1_of, sequence_checks
from waza.graders.base import Finding, Grader, SkillName
from waza.graders.behavior import covered
from waza.graders.names import fits_of_names, names_of
from waza.model import JSON, Check, Trace
from waza.untrusted.patterns import fits_name

_ORDERS: dict[str, Order] = {"exact_match": "exact", "in_order": "in_order", "any_order": "any"}
_EXTRA_PENALTY = 0.6


class SkillInvocationGrader(Grader):
    """Check which skills were invoked, and in what order.

    The mode decides whether it passes, and a forbidden skill always fails it with score 0. The score is the F1 of the
    required and the invoked skills; `allow_extra: false` takes up to 60 % off for invocations beyond the required ones.
    `mode: exact_match`, `required_skills: []` and `allow_extra: false` together forbid every skill.

    ```yaml
    - type: skill_invocation
      name: routing_check
      config:
        required_skills: [azure-prepare, azure-deploy]
        mode: in_order
        allow_extra: true
    ```
    """

    checks_behavior: ClassVar[bool] = True
    checks_skill_use: ClassVar[bool] = True
    all_passed: ClassVar[str] = "Skill invocation sequence matched"
    required_skills: list[SkillName] | None = None
    """Skills that must be invoked, by exact name or a glob (`azure-*`), each for one invocation."""
    forbidden_skills: list[SkillName] = []
    """Skills that must not be invoked, by exact name or a glob."""
    mode: Literal["exact_match", "in_order", "any_order"] | None = None
    """How required and invoked skills are compared; needed with `required_skills`."""
    allow_extra: bool = True
    """Whether invocations beyond the required ones are free of a further penalty; never decides passed or failed."""

    @model_validator(mode="after")
    def _can_fail(self) -> Self:
        if self._required and self.mode is None:
            raise ValueError("'required_skills' needs a 'mode': exact_match, in_order or any_order")
        if not (self._required or self.forbidden_skills or self._allows_none):
            hint = "to forbid every skill, write mode: exact_match, required_skills: [] and allow_extra: false"
            raise ValueError(
                f"this grader checks nothing; give at least one of: required_skills, forbidden_skills; {hint}"
            )
        return self

    @property
    def _allows_none(self) -> bool:
        """Whether no skill at all may be invoked."""
        is_exact = self.mode == "exact_match" and not self.allow_extra
        return is_exact and self.required_skills == []

    @property
    def _required(self) -> list[str]:
        return self.required_skills or []

    def checks(self, trace: Trace) -> SequenceChecks:
        """Return one check per required skill, one for extra ones in `exact_match`, one for the forbidden ones."""
        actual = _skills(trace)
        order = _ORDERS[self.mode or "any_order"] if self._required or self._allows_none else "any"
        fits = fits_of_names(names_of(self._required), actual)
        checks = sequence_checks(order, self._required, actual, "Skill", fits)
        if self.forbidden_skills:
            violations = self._violations(actual)
            named = [skill + covered(skill, actual) for skill in violations]
            failure = f"Forbidden skills invoked: {', '.join(named)}" if violations else ""
            checks.append(Check(not violations, "no forbidden skill is invoked", failure, actual=violations or None))
        return checks

    def verdict(self, trace: Trace, checks: list[Check]) -> tuple[float, bool]:
        """Return the F1, less the penalty for extra invocations, and whether every check passed."""
        assert isinstance(checks, SequenceChecks)
        actual, required = checks.actual, len(self._required)
        score = self._f1(checks)[2]
        if self._penalised(actual):
            score *= 1 - _EXTRA_PENALTY * (len(actual) - required) / len(actual)
        return 0.0 if self._violations(actual) else score, all(check.ok for check in checks)

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return both sequences, precision, recall, F1, the alignment, and which required skills the catalogue had."""
        assert isinstance(checks, SequenceChecks)
        actual = checks.actual
        precision, recall, f1 = self._f1(checks)
        facts: dict[str, JSON] = {
            "mode": self.mode or "any_order",
            "required_skills": self._required,
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

    def evaluate(self, trace: Trace, judge: object) -> Finding:
        """Return the verdict of the checks, with a hint from the catalogue of skills."""
        finding = super().evaluate(trace, judge)
        if finding.status == "passed":
            return replace(finding, feedback=self._passed_feedback(trace))
        return replace(finding, feedback=finding.feedback + self._hint(trace))

    def _passed_feedback(self, trace: Trace) -> str:
        """Return the feedback of a pass, with the extra invocations that lowered the score."""
        actual = _skills(trace)
        if self._allows_none:
            return "No skill was invoked"
        if not self._required:
            return "Forbidden skills were not invoked"
        if self._penalised(actual):
            return f"{self.all_passed}, with extra invocations (got {len(actual)}, expected {len(self._required)})"
        return self.all_passed

    def _hint(self, trace: Trace) -> str:
        """Return whether the catalogue had the required skills that were not invoked."""
        if trace.available_skills is None:
            return ""
        hidden, ignored = self._not_invoked(trace, trace.available_skills)
        return (f"; runtime never surfaced: {', '.join(hidden)}" if hidden else "") + (
            f"; surfaced but not invoked: {', '.join(ignored)}" if ignored else ""
        )

    def _f1(self, checks: SequenceChecks) -> tuple[float, float, float]:
        """Return precision, recall and F1; without required skills all 1, or all 0 where none may be invoked."""
        if self._required:
            return f1_of(self._required, checks.actual, checks.fits)
        score = 0.0 if self._allows_none and checks.actual else 1.0
        return score, score, score

    def _penalised(self, actual: list[str]) -> bool:
        return not self.allow_extra and bool(self._required) and len(actual) > len(self._required)

    def _violations(self, actual: list[str]) -> list[str]:
        return [skill for skill in dict.fromkeys(self.forbidden_skills) if _is_among(skill, actual)]

    def _not_invoked(self, trace: Trace, catalogue: list[str]) -> tuple[list[str], list[str]]:
        """Return the required skills that were not invoked: those never offered, and those offered."""
        actual = _skills(trace)
        absent = [skill for skill in dict.fromkeys(self._required) if not _is_among(skill, actual)]
        offered = [skill for skill in absent if _is_among(skill, catalogue)]
        return [skill for skill in absent if skill not in offered], offered


def _is_among(skill: str, names: list[str]) -> bool:
    """Return whether a skill, or one that a glob covers, is among the names."""
    return skill in names or any(fits_name(skill, name) for name in names)


def _skills(trace: Trace) -> list[str]:
    if trace.skill_invocations is None:
        raise Undecidable("skill use was not recorded: this engine cannot observe it")
    return [invocation.name for invocation in trace.skill_invocations]
