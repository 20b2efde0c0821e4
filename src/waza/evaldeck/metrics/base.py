"""The base class of evaldeck's metrics: a number about a trace, which decides nothing."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any

from waza.evaldeck.results import MetricResult
from waza.evaldeck.trace import Trace


class BaseMetric(ABC):
    """A metric: a name, a unit, and a number for a trace."""

    name: str = "base"
    unit: str | None = None

    @abstractmethod
    def calculate(self, trace: Trace, test_case: Any = None) -> MetricResult:
        """Return the number."""

    async def calculate_async(self, trace: Trace, test_case: Any = None) -> MetricResult:
        """Return the number without blocking the event loop."""
        return await asyncio.to_thread(self.calculate, trace, test_case)

    def _result(self, value: float, **details: Any) -> MetricResult:
        return MetricResult(metric_name=self.name, value=value, unit=self.unit, details=details)
