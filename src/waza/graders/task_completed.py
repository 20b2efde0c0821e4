"""The `task_completed` grader: the agent came to an end with an answer (`expected.task_completed`)."""

from __future__ import annotations

from collections.abc import Iterator

from waza.graders.base import Grader
from waza.model import Check, Trace


class TaskCompletedGrader(Grader):
    """Check that the agent ended with success and an answer, or that it did not.

    ```yaml
    - type: task_completed
      name: finished
    ```
    """

    require_success: bool = True
    """False turns the claim around: the agent must not complete the task."""

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield the one claim."""
        completed = trace.status == "success" and bool(trace.output)
        actual = f"status {trace.status}, {'an' if trace.output else 'no'} output"
        if self.require_success:
            claim, failure = "the task is completed", f"Task not completed: {actual}"
        else:
            claim, failure = "the task is not completed", f"Task completed but was expected to fail: {actual}"
        if completed == self.require_success:
            yield Check(True, claim)
        else:
            yield Check(False, claim, failure, claim, actual)
