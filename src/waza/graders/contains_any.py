"""The `contains_any` grader: at least one of several texts (`expected.output_contains_any`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec.structs import replace
from pydantic import Field

from waza.graders.base import Finding, Grader, Needles
from waza.graders.text import excerpt
from waza.model import Check, Trace
from waza.untrusted.text import fold_case


class ContainsAnyGrader(Grader):
    """Check that the output contains at least one of the values.

    ```yaml
    - type: contains_any
      name: greets
      config:
        values: ["hello", "good morning"]
    ```
    """

    values: Annotated[Needles, Field(min_length=1)]
    """Texts of which one must appear, in any case."""

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield one check for all values together."""
        found = bool(self._found(trace))
        claim = f"the output contains one of {self.values}"
        failure = f"None of the expected values found in output: {self.values}"
        yield Check(found, claim, failure, self.values, excerpt(trace.output)) if not found else Check(True, claim)

    def evaluate(self, trace: Trace, judge: Any) -> Finding:
        """Return what is found; where it passed, which of the values is there."""
        found = super().evaluate(trace, judge)
        return found if found.status != "passed" else replace(found, feedback=f"Found in output: {self._found(trace)}")

    def _found(self, trace: Trace) -> list[str]:
        folded = fold_case(trace.output)
        return [value for value in self.values if fold_case(value) in folded]
