"""Checks on one text, shared by every grader that looks for texts and patterns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from waza.model import Check
from waza.sandbox.patterns import Pattern, PatternTimeout

EXCERPT_CHARS = 200


def excerpt(text: str) -> str:
    """Return the text, or its head and tail when it is long."""
    if len(text) <= EXCERPT_CHARS:
        return text
    half = EXCERPT_CHARS // 2
    return f"{text[:half]} … ({len(text) - 2 * half} characters) … {text[-half:]}"


def around(text: str, start: int, length: int) -> str:
    """Return what stands at a place in a text, with a little before and after it."""
    head, tail = max(0, start - 40), min(len(text), start + length + 40)
    return ("…" if head else "") + text[head:tail] + ("…" if tail < len(text) else "")


def holds(needles: Iterable[str], text: str, folded: str | None = None, *, noun: str = "substring") -> Iterator[Check]:
    """Yield one check per needle that must be in the text; `folded` is its lower case, where case does not matter."""
    inside = text if folded is None else folded
    for needle in needles:
        claim = f"the output contains {needle!r}"
        if (needle if folded is None else needle.lower()) in inside:
            yield Check(True, claim)
        else:
            yield Check(False, claim, f"Missing expected {noun}: {needle}", needle, excerpt(text))


def lacks(needles: Iterable[str], text: str, folded: str | None = None, *, noun: str = "substring") -> Iterator[Check]:
    """Yield one check per needle that must not be in the text; `folded` is as in `holds`."""
    inside = text if folded is None else folded
    for needle in needles:
        claim = f"the output does not contain {needle!r}"
        at = inside.find(needle if folded is None else needle.lower())
        if at < 0:
            yield Check(True, claim)
        else:
            found = around(text, at, len(needle))
            yield Check(False, claim, f"Found forbidden {noun}: {needle}", f"no {needle!r}", found)


def matches(patterns: Iterable[Pattern], text: str, *, subject: str = "the output") -> Iterator[Check]:
    """Yield one check per pattern that must match somewhere in the text."""
    for pattern in patterns:
        claim = f"{subject} matches {pattern.source}"
        found = try_search(pattern, text)
        if found is True:
            yield Check(True, claim)
        else:
            ok = None if isinstance(found, str) else False
            failure = found if isinstance(found, str) else f"Missing expected pattern: {pattern.source}"
            yield Check(ok, claim, failure, f"a match of {pattern.source}", excerpt(text))


def matches_not(patterns: Iterable[Pattern], text: str, *, subject: str = "the output") -> Iterator[Check]:
    """Yield one check per pattern that must match nowhere in the text."""
    for pattern in patterns:
        claim = f"{subject} does not match {pattern.source}"
        found = try_search(pattern, text)
        if found is False:
            yield Check(True, claim)
        else:
            ok = None if isinstance(found, str) else False
            failure = found if isinstance(found, str) else f"Found forbidden pattern: {pattern.source}"
            yield Check(ok, claim, failure, f"no match of {pattern.source}", excerpt(text))


def try_search(pattern: Pattern, text: str) -> bool | str:
    """Return whether the pattern matches, or a sentence when time ran out."""
    try:
        return pattern.search(text)
    except PatternTimeout as error:
        return str(error)
