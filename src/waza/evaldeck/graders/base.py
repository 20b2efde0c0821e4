"""The base class of evaldeck's graders, the wrapper around any grader of waza's, and several graders as one."""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from typing import Any

from waza.errors import what
from waza.evaldeck.results import GradeResult, GradeStatus
from waza.evaldeck.trace import as_waza
from waza.graders.base import Grader
from waza.model import Grade

_STATUS = {"passed": GradeStatus.PASS, "failed": GradeStatus.FAIL, "error": GradeStatus.ERROR}


class BaseGrader(ABC):
    """A grader with a name that gives a verdict on a trace of a case."""

    name: str = "base"

    @abstractmethod
    def grade(self, trace: Any, test_case: Any) -> GradeResult:
        """Return the verdict."""

    async def grade_async(self, trace: Any, test_case: Any) -> GradeResult:
        """Return the verdict without blocking the event loop."""
        return await asyncio.to_thread(self.grade, trace, test_case)


class WazaGrader(BaseGrader):
    """Any grader of waza's, with a verdict in evaldeck's shape."""

    def __init__(self, grader: Grader) -> None:
        self.grader = grader
        self.name = grader.name or grader.type_name()

    def grade(self, trace: Any, test_case: Any = None) -> GradeResult:
        """Return the verdict, with the score, and with expected and actual values where it failed."""
        return as_result(self.name, self.grader.grade(as_waza(trace)))


def as_result(name: str, grade: Grade) -> GradeResult:
    """Return a grade of waza's in evaldeck's shape, with expected and actual values where it failed."""
    failed = [check for check in grade.checks if check.ok is False]
    return GradeResult(
        grader_name=name,
        status=_STATUS[grade.status],
        score=None if grade.status == "error" else grade.score,
        message=grade.feedback,
        details=grade.details,
        expected=[check.claim if check.expected is None else check.expected for check in failed] or None,
        actual=[check.failure if check.actual is None else check.actual for check in failed] or None,
    )


def graded(grader: BaseGrader, trace: Any, test_case: Any) -> GradeResult:
    """Return a grader's verdict; an exception, or another return value than a GradeResult, is an ERROR."""
    try:
        return _result(grader, grader.grade(trace, test_case))
    except Exception as error:  # noqa: BLE001  one broken grader must not discard the others
        return GradeResult.error_result(grader.name, f"Grader error: {error}")


async def graded_async(grader: BaseGrader, trace: Any, test_case: Any) -> GradeResult:
    """Return a grader's verdict; an exception, or another return value than a GradeResult, is an ERROR."""
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


class CompositeGrader(BaseGrader):
    """Several graders as one: all of them must pass, or one of them. What none can decide is an ERROR."""

    name = "composite"

    def __init__(self, graders: list[BaseGrader], require_all: bool = True, *, mode: str | None = None) -> None:
        if not isinstance(graders, list | tuple) or not all(isinstance(one, BaseGrader) for one in graders):
            raise ValueError(f"CompositeGrader: a list of graders is needed, found {what(graders)}")
        if not graders:
            raise ValueError("CompositeGrader needs at least one grader: without any it could not fail")
        if mode not in (None, "all", "any"):
            raise ValueError(f"mode is 'all' or 'any', not {mode!r}")
        self.graders = graders
        self.require_all = require_all if mode is None else mode == "all"

    def grade(self, trace: Any, test_case: Any = None) -> GradeResult:
        """Return the verdict of all graders, one after the other."""
        return self._together([graded(grader, trace, test_case) for grader in self.graders])

    async def grade_async(self, trace: Any, test_case: Any = None) -> GradeResult:
        """Return the verdict of all graders, at the same time."""
        pending = (graded_async(grader, trace, test_case) for grader in self.graders)
        return self._together(list(await asyncio.gather(*pending)))

    def _together(self, results: list[GradeResult]) -> GradeResult:
        statuses = [result.status for result in results]
        passed = statuses.count(GradeStatus.PASS)
        if passed == len(results) if self.require_all else passed:
            status = GradeStatus.PASS
        elif GradeStatus.ERROR in statuses and not (self.require_all and GradeStatus.FAIL in statuses):
            status = GradeStatus.ERROR
        else:
            status = GradeStatus.FAIL
        message = f"{passed}/{len(results)} graders passed" + ("" if self.require_all else " (require any)")
        details = {"results": [result.model_dump(mode="json") for result in results]}
        return GradeResult(grader_name=self.name, status=status, message=message, details=details)
