"""The `matches` grader: one pattern in Python's syntax (`expected.output_matches`)."""

from __future__ import annotations

from collections.abc import Iterator

from waza.graders._base import Grader
from waza.graders._fields import PythonPattern
from waza.graders._text import matches
from waza.model import Check, Trace


class MatchesGrader(Grader):
    r"""Check that a pattern with Python's syntax and meaning matches somewhere in the output.

    ```yaml
    - type: matches
      name: has_reference
      config:
        pattern: 'Confirmation: [A-Z]{3}\d{6}'
    ```
    """

    pattern: PythonPattern
    """A pattern for Python's `re`; it runs under a time limit."""

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield the one match."""
        yield from matches([self.pattern], trace.output)
