"""The `not_contains` grader: texts that must not be in the output (`expected.output_not_contains`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field

from waza.graders.base import Grader, Needles
from waza.graders.text import contains_none
from waza.model import Check, Trace
from waza.untrusted.text import fold_case


class NotContainsGrader(Grader):
    """Check that the output contains none of the values.

    ```yaml
    - type: not_contains
      name: no_errors
      config:
        values: ["error", "exception"]
    ```
    """

    all_passed: ClassVar[str] = "No forbidden values found"

    values: Annotated[Needles, Field(min_length=1)]
    """Texts of which none may appear; parts of words count."""
    case_sensitive: bool = False
    """Whether upper and lower case differ."""

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield one check per value."""
        folded = None if self.case_sensitive else fold_case(trace.output)
        yield from contains_none(self.values, trace.output, folded)
