"""The `max_steps` grader: that the agent did no more than a number of steps (`expected.max_steps`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from waza.graders.base import Bound, Grader
from waza.graders.behavior import at_most, steps_of
from waza.model import Check, Trace


class MaxStepsGrader(Grader):
    """Check that the agent did no more than a number of steps.

    ```yaml
    - type: max_steps
      name: max_steps
      config:
        max_steps: 10
    ```
    """

    checks_behavior: ClassVar[bool] = True

    max_steps: Bound
    """Most steps allowed, framework steps included. 0 is a real bound."""

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield the one bound."""
        actual = steps_of(trace)
        yield at_most("steps", actual, self.max_steps)
