"""evaldeck's metrics: numbers about a trace. They decide nothing."""

from waza.evaldeck.metrics.base import BaseMetric
from waza.evaldeck.metrics.builtin import (
    DEFAULT_METRICS,
    DurationMetric,
    ErrorRateMetric,
    LLMCallCountMetric,
    StepCountMetric,
    StepEfficiencyMetric,
    TokenUsageMetric,
    ToolCallCountMetric,
    ToolDiversityMetric,
)

__all__ = [
    "DEFAULT_METRICS",
    "BaseMetric",
    "DurationMetric",
    "ErrorRateMetric",
    "LLMCallCountMetric",
    "StepCountMetric",
    "StepEfficiencyMetric",
    "TokenUsageMetric",
    "ToolCallCountMetric",
    "ToolDiversityMetric",
]
