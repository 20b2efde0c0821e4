"""evaldeck's results: grades of a case, of a suite, of a run."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from pydantic import Field

from waza.suites.positions import Checked


class GradeStatus(StrEnum):
    """A verdict; printed as PASS, FAIL, ERROR, SKIP."""

    PASS = "pass"
    FAIL = "fail"
    ERROR = "error"
    SKIP = "skip"

    def __str__(self) -> str:
        return self.name

    def __format__(self, how: str) -> str:
        return format(self.name, how)


class GradeResult(Checked):
    """A grader's verdict; as text it shows the expected and the actual value and what is missing."""

    grader_name: str
    status: GradeStatus
    score: float | None = None
    message: str | None = None
    details: dict[str, Any] = Field(default_factory=dict)
    expected: Any = None
    actual: Any = None

    @property
    def passed(self) -> bool:
        """Whether the verdict is PASS."""
        return self.status == GradeStatus.PASS

    @classmethod
    def passed_result(cls, grader_name: str, message: str | None = None, **more: Any) -> Self:
        """Return a PASS."""
        return cls(grader_name=grader_name, status=GradeStatus.PASS, message=message, **more)

    @classmethod
    def failed_result(
        cls, grader_name: str, message: str, expected: Any = None, actual: Any = None, **more: Any
    ) -> Self:
        """Return a FAIL."""
        return cls(
            grader_name=grader_name,
            status=GradeStatus.FAIL,
            message=message,
            expected=expected,
            actual=actual,
            **more,
        )

    @classmethod
    def error_result(cls, grader_name: str, message: str, **more: Any) -> Self:
        """Return an ERROR: the check is undecided."""
        return cls(grader_name=grader_name, status=GradeStatus.ERROR, message=message, **more)

    def __str__(self) -> str:
        words = "".join(part.capitalize() for part in self.grader_name.split("_")).replace("Llm", "LLM")
        lines = [f"{words}Grader: {self.status}"]
        if self.status != GradeStatus.FAIL:
            return "\n".join([*lines, *([f"  {self.message}"] if self.message else [])])
        lines += [f"  Expected: {self.expected}", f"  Actual: {self.actual}"]
        lines += [
            f"  {key.capitalize()}: {self.details[key]}" for key in ("missing", "forbidden") if key in self.details
        ]
        return "\n".join(lines)


class MetricResult(Checked):
    """A number about a trace; never a verdict."""

    metric_name: str
    value: float
    unit: str | None = None
    details: dict[str, Any] = Field(default_factory=dict)


class _Graded(Checked):
    """A status with the grades it comes from."""

    status: GradeStatus
    grades: list[GradeResult] = Field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether the status is PASS."""
        return self.status == GradeStatus.PASS

    @property
    def failed_grades(self) -> list[GradeResult]:
        """The grades that failed or could not be given."""
        return [grade for grade in self.grades if grade.status in (GradeStatus.FAIL, GradeStatus.ERROR)]


class TurnResult(_Graded):
    """What came of one turn of a conversation."""

    turn_index: int
    user_input: str
    trace_id: str | None = None
    duration_ms: float | None = None
    skipped: bool = False


class EvaluationResult(_Graded):
    """What came of one case. An ERROR outweighs a FAIL, a FAIL a PASS; SKIP weighs nothing."""

    test_case_name: str
    status: GradeStatus = GradeStatus.PASS
    metrics: list[MetricResult] = Field(default_factory=list)
    turn_results: list[TurnResult] = Field(default_factory=list)
    failed_at_turn: int | None = None
    duration_ms: float | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    trace_id: str | None = None
    error: str | None = None

    @property
    def pass_rate(self) -> float:
        """The share of grades that passed; 0 when there are none."""
        return sum(grade.passed for grade in self.grades) / len(self.grades) if self.grades else 0.0

    @property
    def is_multi_turn(self) -> bool:
        """Whether the case is a conversation of several turns."""
        return len(self.turn_results) > 1

    @property
    def turns_completed(self) -> int:
        """How many turns were played."""
        return sum(not turn.skipped for turn in self.turn_results)

    @property
    def total_turns(self) -> int:
        """How many turns the case has."""
        return len(self.turn_results)

    def add_grade(self, grade: GradeResult) -> None:
        """Add a grade and what it means for the status."""
        self.grades.append(grade)
        self.status = worst([self.status, grade.status])

    def add_metric(self, metric: MetricResult) -> None:
        """Add a metric."""
        self.metrics.append(metric)

    def add_turn_result(self, turn: TurnResult) -> None:
        """Add a turn with its grades."""
        self.turn_results.append(turn)
        for grade in turn.grades:
            self.add_grade(grade)
        self.status = worst([self.status, turn.status])


def worst(statuses: list[GradeStatus]) -> GradeStatus:
    """Return the status that outweighs the others; PASS when there is none."""
    order = (GradeStatus.ERROR, GradeStatus.FAIL)
    return next((status for status in order if status in statuses), GradeStatus.PASS)


class SuiteResult(Checked):
    """What came of all cases of a suite."""

    suite_name: str
    results: list[EvaluationResult] = Field(default_factory=list)
    started_at: datetime | None = None
    completed_at: datetime | None = None

    @property
    def total(self) -> int:
        """How many cases there are."""
        return len(self.results)

    @property
    def passed(self) -> int:
        """How many passed."""
        return self._count(GradeStatus.PASS)

    @property
    def failed(self) -> int:
        """How many failed."""
        return self._count(GradeStatus.FAIL)

    @property
    def errors(self) -> int:
        """How many could not be decided."""
        return self._count(GradeStatus.ERROR)

    @property
    def pass_rate(self) -> float:
        """The share that passed; 0 when there are none."""
        return self.passed / self.total if self.total else 0.0

    @property
    def duration_ms(self) -> float:
        """How long it took."""
        if self.started_at is None or self.completed_at is None:
            return 0.0
        return (self.completed_at - self.started_at).total_seconds() * 1000

    def _count(self, status: GradeStatus) -> int:
        return sum(result.status == status for result in self.results)


class RunResult(Checked):
    """What came of several suites."""

    suites: list[SuiteResult] = Field(default_factory=list)
    started_at: datetime | None = None
    completed_at: datetime | None = None
    config: dict[str, Any] = Field(default_factory=dict)

    @property
    def suite_results(self) -> list[SuiteResult]:
        """The documentation's name for `suites`."""
        return self.suites

    @property
    def total(self) -> int:
        """How many cases there are."""
        return sum(suite.total for suite in self.suites)

    @property
    def passed(self) -> int:
        """How many passed."""
        return sum(suite.passed for suite in self.suites)

    @property
    def failed(self) -> int:
        """How many failed."""
        return sum(suite.failed for suite in self.suites)

    @property
    def errors(self) -> int:
        """How many could not be decided."""
        return sum(suite.errors for suite in self.suites)

    @property
    def pass_rate(self) -> float:
        """The share that passed; 0 when there are none."""
        return self.passed / self.total if self.total else 0.0

    @property
    def all_passed(self) -> bool:
        """Whether every case passed; no case is no pass."""
        return self.total > 0 and self.passed == self.total
