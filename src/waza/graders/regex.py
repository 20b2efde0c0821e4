"""The `regex` grader: patterns the output must, or must not, match."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from waza.graders.base import ForbiddenPatterns, Grader, RequiredPattern, RequiredPatterns
from waza.graders.text import matches_all, matches_none
from waza.model import JSON, Check, Trace
from waza.untrusted.patterns import Pattern


class RegexGrader(Grader):
    """Check the output for patterns; the older form of `text`.

    Patterns are RE2; those that need lookaround or backreferences run under a time limit. One check a pattern.

    ```yaml
    - type: regex
      name: format_check
      config:
        must_match: ["deployed to .+"]
        must_not_match: ["(?i)error|exception"]
    ```
    """

    all_passed: ClassVar[str] = "All patterns matched"
    needs_one_of: ClassVar[tuple[str, ...]] = ("must_match", "must_not_match", "pattern")

    must_match: RequiredPatterns = []
    """Patterns that must match somewhere in the output."""
    must_not_match: ForbiddenPatterns = []
    """Patterns that must match nowhere in the output."""
    pattern: RequiredPattern | None = None
    """Short for one more entry of `must_match`."""

    @property
    def _required(self) -> list[Pattern]:
        return [*self.must_match, *([self.pattern] if self.pattern else [])]

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield one check per pattern."""
        yield from matches_all(self._required, trace.output)
        yield from matches_none(self.must_not_match, trace.output)

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return the patterns and what failed."""
        return {
            "must_match": [pattern.source for pattern in self._required],
            "must_not_match": [pattern.source for pattern in self.must_not_match],
            "failures": [check.failure for check in checks if not check.ok],
        }
