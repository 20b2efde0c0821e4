"""Graders of one's own, and several as one."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from waza.errors import SpecError, what
from waza.evaldeck.graders.base import BaseGrader, WazaGrader, graded, graded_async
from waza.evaldeck.graders.code import (
    CodeGrader,
    ContainsGrader,
    EqualsGrader,
    MaxLLMCallsGrader,
    MaxStepsGrader,
    MaxToolCallsGrader,
    NotContainsGrader,
    RegexGrader,
    TaskCompletedGrader,
    ToolCalledGrader,
    ToolNotCalledGrader,
    ToolOrderGrader,
)
from waza.evaldeck.graders.llm import LLMGrader, LLMRubricGrader
from waza.evaldeck.results import GradeResult, GradeStatus
from waza.evaldeck.trace import as_waza
from waza.process.concurrency import wait_for
from waza.suites.evaldeck_cases import OUR_REGEX
from waza.suites.graders import load_grader


class CustomGrader(BaseGrader):
    """One's own function of trace and case, plain or async; it returns a GradeResult, or True or False."""

    name = "custom"

    def __init__(
        self, func: Callable[..., Any] | None = None, module: str | None = None, function: str | None = None
    ) -> None:
        if func is not None and not callable(func):
            raise ValueError(f"CustomGrader: func must be a function of trace and case, found {what(func)}")
        if func is None and not (module and function):
            raise ValueError("CustomGrader needs a function: func=, or module= and function=")
        self.func = func
        self.module = module
        self.function = function

    def grade(self, trace: Any, test_case: Any = None) -> GradeResult:
        """Return the function's verdict; what it raises is an ERROR."""
        return wait_for(self.grade_async(trace, test_case, in_thread=False))

    async def grade_async(self, trace: Any, test_case: Any = None, *, in_thread: bool = True) -> GradeResult:
        """Return the function's verdict; what it raises is an ERROR."""
        try:
            function = self._found()
            if in_thread and not inspect.iscoroutinefunction(function):
                returned = await asyncio.to_thread(function, trace, test_case)
            else:
                returned = function(trace, test_case)
            if inspect.isawaitable(returned):
                returned = await returned
        except Exception as error:  # noqa: BLE001  one broken grader must not discard the others
            return GradeResult.error_result(self.name, f"Custom grader error: {error}")
        return self._verdict(returned)

    def _found(self) -> Callable[..., Any]:
        if self.func is not None:
            return self.func
        found: Callable[..., Any] = getattr(importlib.import_module(str(self.module)), str(self.function))
        return found

    def _verdict(self, returned: Any) -> GradeResult:
        if isinstance(returned, GradeResult):
            return returned
        if isinstance(returned, bool):
            status = GradeStatus.PASS if returned else GradeStatus.FAIL
            return GradeResult(grader_name=self.name, status=status, message=f"the function returned {returned}")
        fact = f"it returned {type(returned).__name__}; a GradeResult, True or False is needed"
        return GradeResult.error_result(self.name, f"Custom grader error: {fact}")


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
        """Return the verdict of all graders, asked one after the other."""
        return self._together([graded(grader, trace, test_case) for grader in self.graders])

    async def grade_async(self, trace: Any, test_case: Any = None) -> GradeResult:
        """Return the verdict of all graders, asked at the same time."""
        asked = (graded_async(grader, trace, test_case) for grader in self.graders)
        return self._together(list(await asyncio.gather(*asked)))

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


# Which graders there are by name, and which look at waza's own shape of a trace.

CODE_GRADERS: list[type[CodeGrader]] = [
    ContainsGrader,
    NotContainsGrader,
    EqualsGrader,
    RegexGrader,
    ToolCalledGrader,
    ToolNotCalledGrader,
    ToolOrderGrader,
    MaxStepsGrader,
    MaxToolCallsGrader,
    MaxLLMCallsGrader,
    TaskCompletedGrader,
]
"""In the order in which grades of one turn are given."""
_JUDGED: list[type[BaseGrader]] = [LLMGrader, LLMRubricGrader]
_BY_NAME = {cls.name: cls for cls in [*CODE_GRADERS, *_JUDGED]}


def views(graders: Iterable[BaseGrader], trace: Any) -> Iterator[tuple[BaseGrader, Any]]:
    """Yield each grader with the trace as it wants it: one translation serves all that look at waza's shape."""
    seen: Any = None
    for grader in graders:
        own = type(grader).grade
        if own is not CodeGrader.grade and own is not WazaGrader.grade:
            yield grader, trace
            continue
        if seen is None:
            try:
                seen = as_waza(trace)
            except Exception:  # noqa: BLE001  each grader tells for itself what is wrong with the trace
                seen = trace
        yield grader, seen


def configured(type: str, params: dict[str, Any]) -> BaseGrader:
    """Return the grader a case names by its type; raise SpecError when there is none, or its parameters are wrong."""
    cls: Any = _BY_NAME.get(type.lower())
    if cls is None or (cls is RegexGrader and OUR_REGEX & set(params)):
        return WazaGrader(load_grader({"type": type.lower(), "config": params}))
    try:
        grader = cls(**params)
    except (TypeError, ValueError) as error:
        raise SpecError(f"grader '{type}': {error}") from None
    if not isinstance(grader, CodeGrader):
        return grader  # type: ignore[no-any-return]
    own = getattr(grader, cls.option)
    if own is None and cls is not TaskCompletedGrader:
        raise SpecError(f"grader '{type}' checks nothing; give params: {{{cls.option}: …}}")
    if own is not None:
        load_grader({"type": cls.type, "config": {cls.option: own} | grader.options()})
    return grader
