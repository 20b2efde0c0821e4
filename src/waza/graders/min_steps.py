"""The `min_steps` grader: that the agent did at least a number of steps (`expected.min_steps`)."""

from __future__ import annotations

from collections.abc import Iterator

from waza.graders.base import Grader, Least
from waza.graders.behavior import at_least, steps_of
from waza.model import Check, Trace


class MinStepsGrader(Grader):
    """Check that the agent did at least a number of steps.

    ```yaml
    - type: min_steps
      name: min_steps
      config:
        min_steps: 2
    ```
    """

    min_steps: Least
    """Fewest steps allowed, framework steps included."""

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield the one bound."""
        actual = steps_of(trace)
        yield at_least("steps", actual, self.min_steps)
