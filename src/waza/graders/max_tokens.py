"""The `max_tokens` grader: that the agent used no more than a number of tokens (`expected.behavior.max_tokens`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from waza.graders.base import Bound, Grader
from waza.graders.behavior import at_most
from waza.model import Check, Trace, Usage


class MaxTokensGrader(Grader):
    """Check that the agent used no more than a number of tokens.

    ```yaml
    - type: max_tokens
      name: max_tokens
      config:
        max_tokens: 50000
    ```
    """

    checks_behavior: ClassVar[bool] = True

    max_tokens: Bound
    """Most input and output tokens allowed. 0 is a real bound."""

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield the one bound."""
        usage = trace.usage or Usage()
        yield at_most("tokens", usage.total_tokens, self.max_tokens, least=usage.least_tokens)
