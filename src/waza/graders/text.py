"""The `text` grader: what the output must, and must not, contain; and the checks of texts that other graders share.

A check that passed is the same record for every text, so it is made once.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import ClassVar

from waza.graders.base import ForbiddenPatterns, Grader, Needles, RequiredPattern, RequiredPatterns
from waza.model import Check, Trace
from waza.untrusted.patterns import Pattern, PatternTimeout
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


EXCERPT_CHARS = 200


def excerpt(text: str) -> str:
    """Return the text, or its head and tail when it is long."""
    if len(text) <= EXCERPT_CHARS:
        return text
    half = EXCERPT_CHARS // 2
    return f"{text[:half]} … ({len(text) - 2 * half} characters) … {text[-half:]}"


def around(text: str, start: int, length: int) -> str:
    """Return a part of a text, with a little before and after it."""
    head, tail = max(0, start - 40), min(len(text), start + length + 40)
    return ("…" if head else "") + text[head:tail] + ("…" if tail < len(text) else "")


def contains_all(
    needles: Iterable[str], text: str, folded: str | None = None, *, noun: str = "substring"
) -> list[Check]:
    """Return one check per needle that must be in the text; `folded` is it folded, where case does not matter."""
    inside = text if folded is None else folded
    return [
        _is_there(needle)
        if (needle if folded is None else fold_case(needle)) in inside
        else Check(False, _is_there(needle).claim, f"Missing expected {noun}: {needle}", needle, excerpt(text))
        for needle in needles
    ]


def contains_none(
    needles: Iterable[str], text: str, folded: str | None = None, *, noun: str = "substring"
) -> list[Check]:
    """Return one check per needle that must not be in the text; `folded` is as in `contains_all`."""
    inside = text if folded is None else folded
    checks = []
    for needle in needles:
        at = inside.find(needle if folded is None else fold_case(needle))
        if at < 0:
            checks.append(_is_absent(needle))
        else:
            found = around(text, at, len(needle))
            failure = f"Found forbidden {noun}: {needle}"
            checks.append(Check(False, _is_absent(needle).claim, failure, f"no {needle!r}", found))
    return checks


def matches_all(patterns: Iterable[Pattern], text: str, *, subject: str = "the output") -> list[Check]:
    """Return one check per pattern that must match somewhere in the text."""
    checks = []
    for pattern in patterns:
        found = try_search(pattern, text)
        passed = _does_match(subject, pattern.source)
        if found is True:
            checks.append(passed)
        else:
            ok = None if isinstance(found, str) else False
            failure = found if isinstance(found, str) else f"Missing expected pattern: {pattern.source}"
            checks.append(Check(ok, passed.claim, failure, f"a match of {pattern.source}", excerpt(text)))
    return checks


def matches_none(patterns: Iterable[Pattern], text: str, *, subject: str = "the output") -> list[Check]:
    """Return one check per pattern that must match nowhere in the text."""
    checks = []
    for pattern in patterns:
        found = try_search(pattern, text)
        passed = _does_not_match(subject, pattern.source)
        if found is False:
            checks.append(passed)
        else:
            ok = None if isinstance(found, str) else False
            failure = found if isinstance(found, str) else f"Found forbidden pattern: {pattern.source}"
            checks.append(Check(ok, passed.claim, failure, f"no match of {pattern.source}", excerpt(text)))
    return checks


def try_search(pattern: Pattern, text: str) -> bool | str:
    """Return whether the pattern matches, or a sentence when time ran out."""
    try:
        return pattern.search(text)
    except PatternTimeout as error:
        return str(error)


@lru_cache(maxsize=1024)
def _is_there(needle: str) -> Check:
    return Check(True, f"the output contains {needle!r}")


@lru_cache(maxsize=1024)
def _is_absent(needle: str) -> Check:
    return Check(True, f"the output does not contain {needle!r}")


@lru_cache(maxsize=1024)
def _does_match(subject: str, source: str) -> Check:
    return Check(True, f"{subject} matches {source}")


@lru_cache(maxsize=1024)
def _does_not_match(subject: str, source: str) -> Check:
    return Check(True, f"{subject} does not match {source}")
