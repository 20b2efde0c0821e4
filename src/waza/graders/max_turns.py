"""The `max_turns` grader: that the agent took no more than a number of turns (`expected.behavior.max_iterations`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from waza.graders.base import Bound, Grader
from waza.graders.behavior import at_most
from waza.model import Check, Trace


class MaxTurnsGrader(Grader):
    """Check that the agent took no more than a number of turns.

    ```yaml
    - type: max_turns
      name: max_turns
      config:
        max_turns: 10
    ```
    """

    checks_behavior: ClassVar[bool] = True

    max_turns: Bound
    """Most turns allowed. 0 is a real bound."""

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield the one bound."""
        actual = trace.usage.turns if trace.usage else None
        yield at_most("turns", actual, self.max_turns)
