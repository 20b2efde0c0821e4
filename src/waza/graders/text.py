"""The `text` grader: what the output must, and must not, contain."""

from __future__ import annotations

from typing import ClassVar

from waza.graders.base import Grader
from waza.graders.fields import ForbiddenPatterns, Needles, RequiredPattern, RequiredPatterns
from waza.graders.text_checks import contains_all, contains_none, matches_all, matches_none
from waza.model import Check, Trace
from waza.untrusted.text import fold_case


class TextGrader(Grader):
    r"""Check the output for texts and patterns that must, or must not, be there.

    Patterns are RE2; those that need lookaround or backreferences run under a time limit. One check an entry.

    ```yaml
    - type: text
      name: format_checker
      config:
        contains: ["deployed to", "Resource group"]
        not_contains: ["permission denied"]
        regex_match: ["https?://.+"]
        regex_not_match: ["(?i)error|failed|exception"]
    ```
    """

    all_passed: ClassVar[str] = "All text checks passed"
    needs_one_of: ClassVar[tuple[str, ...]] = (
        "contains",
        "not_contains",
        "contains_cs",
        "not_contains_cs",
        "regex_match",
        "regex_not_match",
        "pattern",
    )

    contains: Needles = []
    """Texts that must appear, in any case."""
    not_contains: Needles = []
    """Texts that must not appear, in any case."""
    contains_cs: Needles = []
    """Texts that must appear, letter for letter."""
    not_contains_cs: Needles = []
    """Texts that must not appear, letter for letter."""
    regex_match: RequiredPatterns = []
    """Patterns that must match somewhere in the output."""
    regex_not_match: ForbiddenPatterns = []
    """Patterns that must match nowhere in the output."""
    pattern: RequiredPattern | None = None
    """Short for one more entry of `regex_match`."""

    def checks(self, trace: Trace) -> list[Check]:
        """Return one check per text and pattern."""
        output = trace.output
        checks: list[Check] = []
        if self.contains or self.not_contains:
            folded = fold_case(output)
            checks += contains_all(self.contains, output, folded)
            checks += contains_none(self.not_contains, output, folded)
        if self.contains_cs or self.not_contains_cs:
            checks += contains_all(self.contains_cs, output, noun="substring (case-sensitive)")
            checks += contains_none(self.not_contains_cs, output, noun="substring (case-sensitive)")
        if self.regex_match or self.regex_not_match or self.pattern:
            checks += matches_all([*self.regex_match, *([self.pattern] if self.pattern else [])], output)
            checks += matches_none(self.regex_not_match, output)
        return checks
