"""The `contains` grader: texts that must all be in the output (`expected.output_contains`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field

from waza.graders.base import Grader, Needles
from waza.graders.text import contains_all
from waza.model import Check, Trace
from waza.untrusted.text import fold_case


class ContainsGrader(Grader):
    """Check that the output contains every value.

    ```yaml
    - type: contains
      name: confirms
      config:
        values: ["confirmation", "booking reference"]
    ```
    """

    all_passed: ClassVar[str] = "All values found in output"

    values: Annotated[Needles, Field(min_length=1)]
    """Texts that must all appear; parts of words count."""
    case_sensitive: bool = False
    """Whether upper and lower case differ."""

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield one check per value."""
        folded = None if self.case_sensitive else fold_case(trace.output)
        yield from contains_all(self.values, trace.output, folded)
