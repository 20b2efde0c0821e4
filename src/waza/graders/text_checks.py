"""Checks of one text, shared by every grader that searches for texts or patterns.

A check that passed is the same record for every text, so it is made once.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from waza.model import Check
from waza.untrusted.patterns import Pattern, PatternTimeout
from waza.untrusted.text import fold_case

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
