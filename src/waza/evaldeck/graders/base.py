"""What every grader of evaldeck's shape is, and how waza's graders become one."""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from typing import Any

from waza.evaldeck.results import GradeResult, GradeStatus
from waza.evaldeck.trace import as_waza
from waza.graders.base import Grader
from waza.model import Grade

_STATUS = {"passed": GradeStatus.PASS, "failed": GradeStatus.FAIL, "error": GradeStatus.ERROR}


class BaseGrader(ABC):
    """What every grader is: a name, and a verdict on a trace of a case."""

    name: str = "base"

    @abstractmethod
    def grade(self, trace: Any, test_case: Any) -> GradeResult:
        """Return the verdict."""

    async def grade_async(self, trace: Any, test_case: Any) -> GradeResult:
        """Return the verdict without keeping the event loop waiting."""
        return await asyncio.to_thread(self.grade, trace, test_case)


class WazaGrader(BaseGrader):
    """Any grader of waza's, with a verdict in evaldeck's shape."""

    def __init__(self, grader: Grader) -> None:
        self.grader = grader
        self.name = grader.name or grader.type_name()

    def grade(self, trace: Any, test_case: Any = None) -> GradeResult:
        """Return the verdict, with the score and what was expected and found where it failed."""
        return as_result(self.name, self.grader.grade(as_waza(trace)))


def as_result(name: str, grade: Grade) -> GradeResult:
    """Return a grade of waza's in evaldeck's shape, with what was expected and found where it failed."""
    wrong = [check for check in grade.checks if check.ok is False]
    return GradeResult(
        grader_name=name,
        status=_STATUS[grade.status],
        score=None if grade.status == "error" else grade.score,
        message=grade.feedback,
        details=grade.details,
        expected=[check.claim if check.expected is None else check.expected for check in wrong] or None,
        actual=[check.failure if check.actual is None else check.actual for check in wrong] or None,
    )


def graded(grader: BaseGrader, trace: Any, test_case: Any) -> GradeResult:
    """Return a grader's verdict; what it raises, or gives back instead, is an ERROR."""
    try:
        return _result(grader, grader.grade(trace, test_case))
    except Exception as error:  # noqa: BLE001  one broken grader must not discard the others
        return GradeResult.error_result(grader.name, f"Grader error: {error}")


async def graded_async(grader: BaseGrader, trace: Any, test_case: Any) -> GradeResult:
    """Return a grader's verdict; what it raises, or gives back instead, is an ERROR."""
    try:
        return _result(grader, await grader.grade_async(trace, test_case))
    except Exception as error:  # noqa: BLE001  one broken grader must not discard the others
        return GradeResult.error_result(grader.name, f"Grader error: {error}")


def _result(grader: BaseGrader, returned: Any) -> GradeResult:
    if isinstance(returned, GradeResult):
        return returned
    if inspect.iscoroutine(returned):
        returned.close()
    raise TypeError(f"it returned {type(returned).__name__}; a GradeResult is needed")
