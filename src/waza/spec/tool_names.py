"""`config.tool_names`: how the graders of a suite take tool names where they do not say it themselves."""

from __future__ import annotations

from typing import Any

from waza.graders._base import Grader
from waza.graders._names import ToolNames

_KEY = "tool_names"


def with_tool_names(graders: dict[str, list[Grader]], how: ToolNames) -> dict[str, list[Grader]]:
    """Return each task's graders with `how` as the default; a grader's own word wins, shared ones stay shared."""
    if how == "known":
        return graders
    made: dict[int, Grader] = {}
    return {task: [made.setdefault(id(one), _told(one, how)) for one in listed] for task, listed in graders.items()}


def _told(grader: Grader, how: ToolNames) -> Grader:
    """Return a grader that knows the default, also in the graders it is made of."""
    changes: dict[str, Any] = {}
    if _KEY in type(grader).model_fields and _KEY not in grader.model_fields_set:
        changes[_KEY] = how
    for key in type(grader).model_fields:
        part = getattr(grader, key)
        if isinstance(part, Grader):
            changes[key] = _told(part, how)
        elif isinstance(part, list) and part and all(isinstance(one, Grader) for one in part):
            changes[key] = [_told(one, how) for one in part]
    return grader.model_copy(update=changes) if changes else grader
