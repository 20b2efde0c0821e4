"""Types of grader options that several graders share; each refuses what could never fail."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

from waza.sandbox.folders import inner_path
from waza.sandbox.patterns import Pattern


def _pattern(value: Any) -> Pattern:
    return _compile(value, ignore_case=False)


def _folding_pattern(value: Any) -> Pattern:
    return _compile(value, ignore_case=True)


def _python_pattern(value: Any) -> Pattern:
    return _compile(value, python=True)


def _compile(value: Any, **how: bool) -> Pattern:
    if isinstance(value, Pattern):
        return value
    if not isinstance(value, str):
        raise ValueError(f"a pattern is a text, found {type(value).__name__}")
    return Pattern(value, **how)


def _can_fail(pattern: Pattern) -> Pattern:
    return _not_always(pattern, "the check could never fail; write what must be there, such as '.+' for any text")


def _can_pass(pattern: Pattern) -> Pattern:
    return _not_always(pattern, "the check could never pass; write what must not be there")


def _not_always(pattern: Pattern, outcome: str) -> Pattern:
    if pattern.matches_every_text():
        raise ValueError(f"the pattern '{pattern.source}' matches every text, an empty one too: {outcome}")
    return pattern


def _inner_path(path: str) -> str:
    inner_path(path)
    return path


_AS_SOURCE = PlainSerializer(lambda pattern: pattern.source, return_type=str)
_PATTERN_SCHEMA = WithJsonSchema({"type": "string", "format": "regex", "minLength": 1})

Text = Annotated[str, Field(min_length=1)]
"""A text that is not empty."""
Needles = list[Text]
"""Texts to look for; an empty one would always be found."""
PatternField = Annotated[Pattern, BeforeValidator(_pattern), _AS_SOURCE, _PATTERN_SCHEMA]
"""An RE2 pattern, compiled when the spec is loaded."""
RequiredPattern = Annotated[PatternField, AfterValidator(_can_fail)]
"""An RE2 pattern that a text must match; one that every text matches is refused."""
RequiredPatterns = list[RequiredPattern]
"""RE2 patterns that a text must match."""
ForbiddenPatterns = list[Annotated[PatternField, AfterValidator(_can_pass)]]
"""RE2 patterns that a text must not match; one that every text matches is refused."""
FoldingPattern = Annotated[Pattern, BeforeValidator(_folding_pattern), _AS_SOURCE, _PATTERN_SCHEMA]
"""An RE2 pattern that ignores case."""
PythonPattern = Annotated[
    Pattern, BeforeValidator(_python_pattern), AfterValidator(_can_fail), _AS_SOURCE, _PATTERN_SCHEMA
]
"""A pattern with the syntax and meaning of Python's `re` that a text must match."""
InnerPath = Annotated[str, AfterValidator(_inner_path)]
"""A path in the workspace that cannot leave it."""
Limit = Annotated[int, Field(ge=0)]
"""A whole number; 0 means no limit."""
Bound = Annotated[int, Field(ge=0)]
"""A whole number that is a real bound, 0 too."""
Least = Annotated[int, Field(ge=1)]
"""A whole number that must be reached; 0 always is."""
