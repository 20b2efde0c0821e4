"""evaldeck's graders: `grade(trace, test_case)` with a PASS, FAIL or ERROR; and their table by name and expectation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from waza.errors import SpecError
from waza.evaldeck.graders.base import BaseGrader, CompositeGrader, WazaGrader
from waza.evaldeck.graders.code import (
    CodeGrader,
    ContainsGrader,
    CustomGrader,
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
from waza.evaldeck.trace import as_waza
from waza.suites.evaldeck_cases import OUR_REGEX
from waza.suites.graders import load_grader

__all__ = [
    "BaseGrader",
    "CompositeGrader",
    "ContainsGrader",
    "CustomGrader",
    "EqualsGrader",
    "LLMGrader",
    "LLMRubricGrader",
    "MaxLLMCallsGrader",
    "MaxStepsGrader",
    "MaxToolCallsGrader",
    "NotContainsGrader",
    "RegexGrader",
    "TaskCompletedGrader",
    "ToolCalledGrader",
    "ToolNotCalledGrader",
    "ToolOrderGrader",
    "WazaGrader",
]


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
    """Yield each grader with the trace in the form it takes: one translation serves all that take waza's."""
    translated: Any = None
    for grader in graders:
        own = type(grader).grade
        if own is not CodeGrader.grade and own is not WazaGrader.grade:
            yield grader, trace
            continue
        if translated is None:
            try:
                translated = as_waza(trace)
            except Exception:  # noqa: BLE001  each grader reports for itself what is wrong with the trace
                translated = trace
        yield grader, translated


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
