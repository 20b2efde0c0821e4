"""Know whether an AI agent did its job.

The public names are loaded when first used, so that `import waza` and `waza --help` stay fast. Their types are in
`__init__.pyi`; `waza.evaldeck` has evaldeck's names, `waza.recording` makes traces of one's own agent.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_MODULES = {
    "Check": "waza.model",
    "Grade": "waza.model",
    "Result": "waza.model",
    "Run": "waza.model",
    "Task": "waza.model",
    "ToolEvent": "waza.model",
    "Trace": "waza.model",
    "Usage": "waza.model",
    "WazaError": "waza.errors",
    "SpecError": "waza.errors",
    "TraceError": "waza.errors",
    "Grader": "waza.graders.base",
    "assert_grades": "waza.runner.verdicts",
    "grade": "waza.runner.verdicts",
    "grader": "waza.graders.composed",
    "load_expected": "waza.suites.graders",
    "load_grader": "waza.suites.graders",
    "load_spec": "waza.suites.load",
    "read_trace": "waza.traces.reading",
    "read_traces": "waza.traces.reading",
    "record": "waza.recording",
    "run": "waza.runner.run",
    "CompositeGrader": "waza.graders.composed",
    "ContainsGrader": "waza.graders.contains",
    "EqualsGrader": "waza.graders.equals",
    "MaxLLMCallsGrader": "waza.graders.max_llm_calls:MaxLlmCallsGrader",
    "MaxStepsGrader": "waza.graders.max_steps",
    "MaxToolCallsGrader": "waza.graders.max_tool_calls",
    "NotContainsGrader": "waza.graders.not_contains",
    "RegexGrader": "waza.graders.matches:MatchesGrader",
    "SideEffectsGrader": "waza.graders.side_effects",
    "TaskCompletedGrader": "waza.graders.task_completed",
    "ToolCalledGrader": "waza.graders.tool_called",
    "ToolNotCalledGrader": "waza.graders.tool_not_called",
    "ToolOrderGrader": "waza.graders.tool_order",
}
"""Each public name and the module that defines it, with its name there where that differs."""
_PACKAGES = ("engines", "evaldeck", "graders", "judges", "recording")

__all__ = [*_MODULES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        module, _, inner = _MODULES[name].partition(":")
        return getattr(import_module(module), inner or name)
    if name in _PACKAGES:
        return import_module(f"waza.{name}")
    raise AttributeError(f"module 'waza' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*__all__, *_PACKAGES])
