"""evaldeck's metrics by name."""

from __future__ import annotations

from typing import Any

from waza.evaldeck.metrics.base import BaseMetric
from waza.evaldeck.results import MetricResult
from waza.evaldeck.trace import StepStatus, Trace
from waza.spending import is_amount


class StepCountMetric(BaseMetric):
    """How many steps there are."""

    name = "step_count"
    unit = "steps"

    def calculate(self, trace: Trace, test_case: Any = None) -> MetricResult:
        """Return the number of steps."""
        return self._result(trace.step_count)


class TokenUsageMetric(BaseMetric):
    """How many tokens were used."""

    name = "token_usage"
    unit = "tokens"

    def calculate(self, trace: Trace, test_case: Any = None) -> MetricResult:
        """Return the sum over all calls of a model."""
        return self._result(trace.total_tokens, llm_calls=len(trace.llm_calls))


class ToolCallCountMetric(BaseMetric):
    """How many tool calls there are."""

    name = "tool_call_count"
    unit = "calls"

    def calculate(self, trace: Trace, test_case: Any = None) -> MetricResult:
        """Return the number of tool calls."""
        return self._result(len(trace.tool_calls), tools=trace.tools_called)


class DurationMetric(BaseMetric):
    """How long it took."""

    name = "duration"
    unit = "ms"

    def calculate(self, trace: Trace, test_case: Any = None) -> MetricResult:
        """Return the milliseconds, 0 where they were not recorded."""
        duration = trace.duration_ms
        return self._result(duration if duration is not None and is_amount(duration) else 0.0)


class ToolDiversityMetric(BaseMetric):
    """How different the tool calls are."""

    name = "tool_diversity"
    unit = "ratio"

    def calculate(self, trace: Trace, test_case: Any = None) -> MetricResult:
        """Return the number of different tools for each call, 0 without calls."""
        unique, total = len(set(trace.tools_called)), len(trace.tool_calls)
        return self._result(unique / total if total else 0.0, unique_tools=unique, total_calls=total)


class StepEfficiencyMetric(BaseMetric):
    """How far the steps stay within what the case allows."""

    name = "step_efficiency"
    unit = "ratio"

    def calculate(self, trace: Trace, test_case: Any = None) -> MetricResult:
        """Return 1 within `max_steps` or without one, else the share that would have been allowed."""
        most = test_case.expected.max_steps if test_case is not None else None
        actual = trace.step_count
        value = 1.0 if most is None or actual <= most else most / actual
        return self._result(value, actual_steps=actual, max_steps=most)


class LLMCallCountMetric(BaseMetric):
    """How many calls of a model there are."""

    name = "llm_call_count"
    unit = "calls"

    def calculate(self, trace: Trace, test_case: Any = None) -> MetricResult:
        """Return the number of calls of a model."""
        return self._result(len(trace.llm_calls))


class ErrorRateMetric(BaseMetric):
    """How many steps failed."""

    name = "error_rate"
    unit = "ratio"

    def calculate(self, trace: Trace, test_case: Any = None) -> MetricResult:
        """Return the share of steps that failed, 0 without steps."""
        failed = sum(step.status == StepStatus.FAILURE for step in trace.steps)
        total = trace.step_count
        return self._result(failed / total if total else 0.0, error_count=failed, total_steps=total)


DEFAULT_METRICS: list[type[BaseMetric]] = [StepCountMetric, TokenUsageMetric, ToolCallCountMetric, DurationMetric]
