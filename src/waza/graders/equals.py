"""The `equals` grader: the output, word for word (`expected.output_equals`)."""

from __future__ import annotations

from collections.abc import Iterator

from waza.graders.base import Grader
from waza.graders.text import excerpt
from waza.model import Check, Trace


class EqualsGrader(Grader):
    """Check that the output equals a text, case-sensitively.

    ```yaml
    - type: equals
      name: exact_answer
      config:
        expected: "Operation completed successfully."
    ```
    """

    expected: str
    """The whole output that is wanted."""
    strip_whitespace: bool = True
    """Trim both sides and take each run of white space as one space before comparing."""

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield the one comparison."""
        wanted, found = self.expected, trace.output
        if self.strip_whitespace:
            wanted, found = " ".join(wanted.split()), " ".join(found.split())
        claim = f"the output equals {excerpt(self.expected)!r}"
        if wanted == found:
            yield Check(True, claim)
        else:
            yield Check(False, claim, "Output does not match expected", excerpt(wanted), excerpt(found))
