"""The `keyword` grader: words the output must, or must not, contain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from waza.graders.base import Grader, Needles
from waza.graders.text import contains_all, contains_none
from waza.model import JSON, Check, Trace
from waza.untrusted.text import fold_case


class KeywordGrader(Grader):
    """Check the output for words, in any case; the older form of `text`.

    ```yaml
    - type: keyword
      name: mentions_auth
      config:
        must_contain: [authentication, JWT]
        must_not_contain: [password]
    ```
    """

    all_passed: ClassVar[str] = "All keyword checks passed"
    needs_one_of: ClassVar[tuple[str, ...]] = ("must_contain", "keywords", "must_not_contain")

    must_contain: Needles = []
    """Words that must appear, in any case."""
    keywords: Needles = []
    """More words that must appear."""
    must_not_contain: Needles = []
    """Words that must not appear, in any case."""

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield one check per word."""
        folded = fold_case(trace.output)
        yield from contains_all([*self.must_contain, *self.keywords], trace.output, folded, noun="keyword")
        yield from contains_none(self.must_not_contain, trace.output, folded, noun="keyword")

    def details(self, trace: Trace, checks: list[Check]) -> dict[str, JSON]:
        """Return the words and what failed."""
        return {
            "must_contain": [*self.must_contain, *self.keywords],
            "must_not_contain": self.must_not_contain,
            "failures": [check.failure for check in checks if not check.ok],
        }
