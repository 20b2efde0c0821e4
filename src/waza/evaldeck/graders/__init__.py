"""evaldeck's graders: `grade(trace, test_case)` with a PASS, FAIL or ERROR."""

from waza.evaldeck.graders.base import BaseGrader, CompositeGrader, WazaGrader
from waza.evaldeck.graders.code import (
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
