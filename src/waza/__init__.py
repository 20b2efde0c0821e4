"""Know whether an AI agent did its job.

The public names are loaded when first used, so that `import waza` and `waza --help` stay fast.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_WHERE = {
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
    "Grader": "waza.graders._base",
    "load_expected": "waza.spec.graders",
    "load_grader": "waza.spec.graders",
    "load_spec": "waza.spec.load",
    "run": "waza.runner.run",
}

__all__ = [*_WHERE, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    if name in ("judges", "graders", "engines"):
        return import_module(f"waza.{name}")
    raise AttributeError(f"module 'waza' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
