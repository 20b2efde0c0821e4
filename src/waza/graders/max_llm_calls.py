"""The `max_llm_calls` grader: that the agent made no more than a number of model calls (`expected.max_llm_calls`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from waza.graders.base import Bound, Grader
from waza.graders.behavior import at_most
from waza.model import Check, Trace


class MaxLlmCallsGrader(Grader):
    """Check that the agent made no more than a number of model calls.

    ```yaml
    - type: max_llm_calls
      name: max_llm_calls
      config:
        max_llm_calls: 3
    ```
    """

    checks_behavior: ClassVar[bool] = True

    max_llm_calls: Bound
    """Most model calls allowed. 0 is a real bound."""

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield the one bound."""
        actual = trace.usage.llm_calls if trace.usage else None
        yield at_most("LLM calls", actual, self.max_llm_calls)
