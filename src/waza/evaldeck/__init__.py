"""evaldeck's names over waza's graders: `import waza.evaldeck as evaldeck`, and code written for it runs.

Where evaldeck lets things pass by accident (unknown keys, expectations that nothing checks, limits that are not read)
this package enforces or refuses them; `docs/guide/python.md` lists what differs. No check is implemented here.
"""

from waza import __version__
from waza.evaldeck.config import EvaldeckConfig
from waza.evaldeck.evaluator import EvaluationRunner, Evaluator
from waza.evaldeck.results import (
    EvaluationResult,
    GradeResult,
    GradeStatus,
    MetricResult,
    RunResult,
    SuiteResult,
    TurnResult,
)
from waza.evaldeck.test_case import EvalCase, EvalSuite, ExpectedBehavior, GraderConfig, Turn
from waza.evaldeck.trace import Message, Step, StepStatus, StepType, TokenUsage, Trace, TraceStatus

__all__ = [
    "EvalCase",
    "EvalSuite",
    "EvaldeckConfig",
    "EvaluationResult",
    "EvaluationRunner",
    "Evaluator",
    "ExpectedBehavior",
    "GradeResult",
    "GradeStatus",
    "GraderConfig",
    "Message",
    "MetricResult",
    "RunResult",
    "Step",
    "StepStatus",
    "StepType",
    "SuiteResult",
    "TokenUsage",
    "Trace",
    "TraceStatus",
    "Turn",
    "TurnResult",
    "__version__",
]
