"""The public names with their types; `__init__.py` loads them when they are first used.

The graders that are made by hand have their arguments written out: they may be given in their order.
"""

from waza import engines as engines
from waza import evaldeck as evaldeck
from waza import graders as graders
from waza import judges as judges
from waza import recording as recording
from waza.errors import SpecError as SpecError
from waza.errors import TraceError as TraceError
from waza.errors import WazaError as WazaError
from waza.graders import composed as _composed
from waza.graders import contains as _contains
from waza.graders import equals as _equals
from waza.graders import matches as _matches
from waza.graders import max_llm_calls as _max_llm_calls
from waza.graders import max_steps as _max_steps
from waza.graders import max_tool_calls as _max_tool_calls
from waza.graders import not_contains as _not_contains
from waza.graders import task_completed as _task_completed
from waza.graders import tool_called as _tool_called
from waza.graders import tool_not_called as _tool_not_called
from waza.graders import tool_order as _tool_order
from waza.graders.base import Grader as Grader
from waza.graders.composed import grader as grader
from waza.graders.names import ToolNames as _ToolNames
from waza.graders.side_effects import SideEffectsGrader as SideEffectsGrader
from waza.model import Check as Check
from waza.model import Grade as Grade
from waza.model import Result as Result
from waza.model import Run as Run
from waza.model import Task as Task
from waza.model import ToolEvent as ToolEvent
from waza.model import Trace as Trace
from waza.model import Usage as Usage
from waza.recording import record as record
from waza.runner.run import run as run
from waza.runner.verdicts import assert_grades as assert_grades
from waza.runner.verdicts import grade as grade
from waza.suites.graders import load_expected as load_expected
from waza.suites.graders import load_grader as load_grader
from waza.suites.load import load_spec as load_spec
from waza.traces.reading import read_trace as read_trace
from waza.traces.reading import read_traces as read_traces

__version__: str

class CompositeGrader(_composed.CompositeGrader):
    def __init__(
        self, graders: list[Grader], require_all: bool = True, *, name: str = "", weight: float = 1.0
    ) -> None: ...

class ContainsGrader(_contains.ContainsGrader):
    def __init__(
        self, values: list[str], case_sensitive: bool = False, *, name: str = "", weight: float = 1.0
    ) -> None: ...

class EqualsGrader(_equals.EqualsGrader):
    def __init__(
        self, expected: str, strip_whitespace: bool = True, *, name: str = "", weight: float = 1.0
    ) -> None: ...

class MaxLLMCallsGrader(_max_llm_calls.MaxLlmCallsGrader):
    def __init__(self, max_llm_calls: int, *, name: str = "", weight: float = 1.0) -> None: ...

class MaxStepsGrader(_max_steps.MaxStepsGrader):
    def __init__(self, max_steps: int, *, name: str = "", weight: float = 1.0) -> None: ...

class MaxToolCallsGrader(_max_tool_calls.MaxToolCallsGrader):
    def __init__(self, max_tool_calls: int, *, name: str = "", weight: float = 1.0) -> None: ...

class NotContainsGrader(_not_contains.NotContainsGrader):
    def __init__(
        self, values: list[str], case_sensitive: bool = False, *, name: str = "", weight: float = 1.0
    ) -> None: ...

class RegexGrader(_matches.MatchesGrader):
    def __init__(self, pattern: str, flags: int = 0, *, name: str = "", weight: float = 1.0) -> None: ...

class TaskCompletedGrader(_task_completed.TaskCompletedGrader):
    def __init__(self, require_success: bool = True, *, name: str = "", weight: float = 1.0) -> None: ...

class ToolCalledGrader(_tool_called.ToolCalledGrader):
    def __init__(
        self, required: list[str], tool_names: _ToolNames = "known", *, name: str = "", weight: float = 1.0
    ) -> None: ...

class ToolNotCalledGrader(_tool_not_called.ToolNotCalledGrader):
    def __init__(
        self, forbidden: list[str], tool_names: _ToolNames = "known", *, name: str = "", weight: float = 1.0
    ) -> None: ...

class ToolOrderGrader(_tool_order.ToolOrderGrader):
    def __init__(
        self,
        expected_order: list[str],
        tool_names: _ToolNames = "known",
        *,
        name: str = "",
        weight: float = 1.0,
    ) -> None: ...
