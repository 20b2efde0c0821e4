"""Types of grader options that several graders share; each refuses what could never fail."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError, PydanticKnownError

from waza.files.paths import inner_path
from waza.untrusted.patterns import Pattern, name_glob

_LISTS = re.compile(r"\{[^{}/]*(?:,|\.\.)[^{}/]*\}|(?<=[*?])[^/]*?(\[[^\]/]+\])|(\[[^\]/]+\])(?=[^/]*[*?])")
_STARS = re.compile(r"\*\*+")


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
    pattern = Pattern(value, **how)
    if pattern.matches_no_text():
        hint = "; `^` and `$` are the ends of the text, those of a line with (?m)" if {"^", "$"} & set(value) else ""
        raise ValueError(f"the pattern '{value}' can match no text: the check could come out only one way{hint}")
    return pattern


def _can_fail(pattern: Pattern) -> Pattern:
    return _not_always(pattern, "the check could never fail; write what must be there, such as '.+' for any text")


def _can_pass(pattern: Pattern) -> Pattern:
    return _not_always(pattern, "the check could never pass; write what must not be there")


def _not_always(pattern: Pattern, outcome: str) -> Pattern:
    if pattern.matches_every_text():
        raise ValueError(f"the pattern '{pattern.source}' matches every text, an empty one too: {outcome}")
    return pattern


def _tool_pattern(value: Any) -> Pattern:
    if not isinstance(value, str):
        return _folding_pattern(value)
    return _folding_pattern(_not_blank(value))


def _not_blank(text: str) -> str:
    """Return a name without the white space around it."""
    if not (trimmed := text.strip()):
        raise ValueError("must not be empty or blank: a name is needed")
    return trimmed


def _tool_name(value: str) -> str:
    hint = (
        "list the names, use `*` and `?`, or give a pattern as `tool:` under `expect`, `expect_tools` or `reject_tools`"
    )
    return _plain_name(value, "tool", hint)


def _skill_name(value: str) -> str:
    return _plain_name(value, "skill", "list the names, or use `*` and `?`")


def _plain_name(value: str, noun: str, hint: str) -> str:
    name = _not_blank(value)
    if "|" in name:
        raise ValueError(f"'{name[:60]}' is one name, and no {noun}'s name has '|' in it; {hint}")
    name_glob(name)  # compiled now, so that grading finds it ready
    return name


def _is_none(value: Any) -> bool:
    return isinstance(value, str) and value == "none"


def _limit(value: Any) -> int | Literal["none"]:
    if _is_none(value):
        return "none"
    if type(value) is not int:
        raise PydanticCustomError("limit_type", "a whole number or `none` is needed")
    if value < 0:
        raise PydanticKnownError("greater_than_equal", {"ge": 0})
    return value


def _bound(value: Any) -> int:
    limit = _limit(value)
    return 0 if limit == "none" else limit


def _not_none(value: Any) -> Any:
    if _is_none(value):
        raise ValueError("`none` is for upper limits; leave this key out where there is no minimum")
    return value


def _inner_path(path: str) -> str:
    """Return a path or glob as it is; raise ValueError for one that would name another file than its author means."""
    inner_path(path)
    if path.strip() != path:
        raise ValueError(f"'{path}' has white space around it, which no file's name has; write '{path.strip()}'")
    if "\\" in path:
        with_slashes = path.replace("\\", "/")
        raise ValueError(f"'{path}' has a backslash; folders are separated by '/': write '{with_slashes}'")
    if glued := next((part for part in path.split("/") if "**" in part and part != "**"), None):
        name = _STARS.sub("*", glued)
        deep, flat = (path.replace(glued, written, 1) for written in (f"**/{name}", name))
        fact = f"'{glued}': `**` is any number of folders only where it is alone between slashes"
        raise ValueError(f"{fact}; write '{deep}' for every folder, or '{flat}' for this one")
    return path


def not_a_list(path: str) -> str:
    """Return a sentence about braces or brackets that look like a list of names but are themselves; empty if none."""
    found = _LISTS.search(path)
    if found is None:
        return ""
    part = found[1] or found[2] or found[0]
    return f"'{part}' in '{path}' is part of the name, not a list; give one path for each, or use `*` and `?`"


def _one_file(path: str) -> str:
    if "*" in path or "?" in path:
        raise ValueError(f"'{path}' is one file's path, not a glob; name each file, or use the `file` grader")
    return _inner_path(path)


_AS_SOURCE = PlainSerializer(lambda pattern: pattern.source, return_type=str)
_PATTERN_SCHEMA = WithJsonSchema({"type": "string", "format": "regex", "minLength": 1})

Text = Annotated[str, Field(min_length=1)]
"""A text that is not empty."""
Needles = list[Text]
"""Texts to search for; an empty one would always be found."""
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
"""A path in the workspace that cannot leave it, or a glob."""
InnerFile = Annotated[str, AfterValidator(_one_file)]
"""The path of one file in the workspace."""
ToolPattern = Annotated[Pattern, BeforeValidator(_tool_pattern), _AS_SOURCE, _PATTERN_SCHEMA]
"""An RE2 pattern for a tool's name: it ignores case, and white space around it is trimmed."""
_NAME_SCHEMA = WithJsonSchema({"type": "string", "pattern": r"^[^|]*[^|\s][^|]*$"})
ToolName = Annotated[str, AfterValidator(_tool_name), _NAME_SCHEMA]
"""A tool's name, trimmed; `*` in it matches any characters and `?` one."""
SkillName = Annotated[str, AfterValidator(_skill_name), _NAME_SCHEMA]
"""A skill's name, trimmed; `*` in it matches any characters and `?` one."""
_ZERO_IS_NO_LIMIT = "0 is no limit"
ZERO_LIMIT = "`{}: 0` means no limit; write `none` for none"
_LIMIT_SCHEMA = WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"const": "none"}]})
Limit = Annotated[int | Literal["none"], PlainValidator(_limit), _LIMIT_SCHEMA, _ZERO_IS_NO_LIMIT]
"""A whole number, where 0 means no limit, or `none`, a limit of zero; see `bound_of`."""
Bound = Annotated[int, PlainValidator(_bound), _LIMIT_SCHEMA]
"""A whole number that is a real bound, 0 too; `none` is 0."""
Minimum = Annotated[int, Field(ge=0), BeforeValidator(_not_none)]
"""A whole number that must be reached; 0 means no minimum."""
Least = Annotated[int, Field(ge=1), BeforeValidator(_not_none)]
"""A whole number that must be reached; 0 always is."""


def bound_of(limit: int | Literal["none"]) -> int | None:
    """Return the number that a limit allows: 0 for `none`, None where there is no limit."""
    return 0 if limit == "none" else limit or None


def has_no_limit_at_zero(field: FieldInfo) -> bool:
    """Return whether 0 means no limit in an option."""
    return _ZERO_IS_NO_LIMIT in field.metadata
