"""The `max_duration_ms` grader: how long the agent took (`expected.behavior.max_response_time_ms`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from waza.graders.base import Bound, Grader
from waza.graders.behavior import at_most
from waza.model import Check, Trace


class MaxDurationMsGrader(Grader):
    """Check that the agent took no longer than a time.

    ```yaml
    - type: max_duration_ms
      name: max_duration_ms
      config:
        max_duration_ms: 60000
    ```
    """

    checks_behavior: ClassVar[bool] = True

    max_duration_ms: Bound
    """Most milliseconds allowed. 0 is a real bound."""

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield the one bound."""
        actual = trace.duration_ms
        yield at_most("ms", actual, self.max_duration_ms)
