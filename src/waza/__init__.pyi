"""The public names with their types; `__init__.py` loads them when they are first used."""

from waza import engines as engines
from waza import evaldeck as evaldeck
from waza import graders as graders
from waza import judges as judges
from waza import recording as recording
from waza.errors import SpecError as SpecError
from waza.errors import TraceError as TraceError
from waza.errors import WazaError as WazaError
from waza.graders._base import Grader as Grader
from waza.graders._composite import CompositeGrader as CompositeGrader
from waza.graders._function import grader as grader
from waza.graders.contains import ContainsGrader as ContainsGrader
from waza.graders.equals import EqualsGrader as EqualsGrader
from waza.graders.matches import MatchesGrader as RegexGrader
from waza.graders.max_llm_calls import MaxLlmCallsGrader as MaxLLMCallsGrader
from waza.graders.max_steps import MaxStepsGrader as MaxStepsGrader
from waza.graders.max_tool_calls import MaxToolCallsGrader as MaxToolCallsGrader
from waza.graders.not_contains import NotContainsGrader as NotContainsGrader
from waza.graders.task_completed import TaskCompletedGrader as TaskCompletedGrader
from waza.graders.tool_called import ToolCalledGrader as ToolCalledGrader
from waza.graders.tool_not_called import ToolNotCalledGrader as ToolNotCalledGrader
from waza.graders.tool_order import ToolOrderGrader as ToolOrderGrader
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
from waza.spec.graders import load_expected as load_expected
from waza.spec.graders import load_grader as load_grader
from waza.spec.load import load_spec as load_spec
from waza.traces._read import read_trace as read_trace

__version__: str
__all__ = ["MaxLLMCallsGrader", "RegexGrader"]
