"""Graders from a spec: `{type, name, weight, config}` in, a checked Grader out."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from waza.errors import Problem, SpecError, did_you_mean, nearest, what
from waza.files.paths import SpecFolder
from waza.graders.base import GRADERS, WRAPPER, Grader
from waza.graders.names import ToolNames
from waza.suites.expected import build_expected
from waza.suites.local_code import is_local, left_out, load_local, not_imported_grader
from waza.suites.positions import Position, doubled_backslashes, keys_of, problems_of, unknown_key, unmarked

WRAPPER_KEYS = ("type", "name", "weight", "config")


def load_grader(
    spec: dict[str, Any], base_dir: str | Path = ".", *, trust: bool = False, allow_local_code: bool = False
) -> Grader:
    """Return the grader a mapping describes; raise SpecError with every mistake in it.

    A type may be a Python file below `base_dir`, such as `./graders/mine.py`, where the user trusts that folder
    (`waza trust`) or the caller does: `trust`, which was called `allow_local_code` before.

    ```python
    waza.load_grader({"type": "text", "config": {"contains": ["hello"]}})
    ```
    """
    folder = SpecFolder(base_dir, trust=trust or allow_local_code)
    grader, problems = build_grader(spec, Position(content=spec), folder)
    if grader is None or (refused := left_out(problems)):
        raise SpecError(problems if grader is None else refused)
    for problem in problems:
        warnings.warn(str(problem), stacklevel=2)
    return grader


def load_expected(block: dict[str, Any], base_dir: str | Path = ".") -> list[Grader]:
    """Return one grader for each key of an `expected:` block; raise SpecError with every mistake in it."""
    place, folder = Position(content=block), SpecFolder(base_dir)
    graders, problems = build_expected(block, place, folder)
    if isinstance(block, dict) and "graders" in block:
        entries = block["graders"]
        if not isinstance(entries, list) or not entries:
            problems.append(
                place.at("graders").problem(f"a list with at least one grader is needed, found {what(entries)}")
            )
            entries = []
        for index, entry in enumerate(entries):
            grader, wrong = build_grader(entry, place.at("graders", index), folder)
            graders += [grader] if grader else []
            problems += wrong
    if wrong := [problem for problem in problems if problem.severity == "error"] + left_out(problems):
        raise SpecError(wrong)
    for problem in problems:
        warnings.warn(str(problem), stacklevel=2)
    return graders


def build_grader(
    data: Any, place: Position, folder: SpecFolder, forced: Mapping[str, Any] | None = None
) -> tuple[Grader | None, list[Problem]]:
    """Return the grader at a place in a spec, or None with every problem found.

    `forced` options win over written ones in each grader that has them.
    """
    if not isinstance(data, dict):
        return None, [place.problem(f"a grader is a mapping with a type, found {what(data)}")]
    kind = data.get("type")
    if "type" not in data:
        if slip := next((key for key in data if nearest(key, WRAPPER_KEYS) == "type"), None):
            return None, [place.at(slip).problem(unknown_key(slip, ["type"]))]
        return None, [place.problem(f"a grader needs a 'type'; known: {', '.join(GRADERS.names())}")]
    if isinstance(kind, str) and is_local(kind) and not folder.may_import:
        return not_imported_grader(kind, data, place, folder)
    try:
        cls = _class(kind, folder)
    except ValueError as error:
        return None, [place.at("type").problem(str(error))]
    config = data.get("config", {})
    if not isinstance(config, dict):
        return None, [place.at("config").problem(f"a mapping of keys is needed, found {what(config)}")]
    options, problems = _options(data, config, cls, place)
    if forced:
        options |= {key: value for key, value in forced.items() if key in keys_of(cls)}

    def locate(path: tuple[str | int, ...]) -> Position:
        return place.at(*(path if not path or path[0] in data else ("config", *path)))

    try:
        grader = cls.model_validate({"name": _default_name(str(kind), cls)} | options | {"folder": folder})
    except ValidationError as error:
        return None, problems + problems_of(error, cls, options, locate)
    if problems:
        return None, problems
    warned = [locate(path).warning(text) for path, text in grader.option_warnings()]
    return grader, warned + doubled_backslashes(grader, options, locate)


def weightless(graders: Sequence[Grader], task: str, place: Position) -> list[Problem]:
    """Return the problem of a task none of whose graders has a weight: nothing would make its score."""
    if not graders or any(grader.weight for grader in graders):
        return []
    fact = f"all graders of task '{task}' have weight 0, so it has no score; give one of them a weight above 0"
    return [place.problem(fact)]


def _class(kind: Any, folder: SpecFolder) -> type[Grader]:
    """Return the class of a type; raise ValueError with a sentence when there is none."""
    if isinstance(kind, str) and is_local(kind):
        return load_local(kind, folder)
    if not isinstance(kind, str) or not GRADERS.knows(kind):
        raise ValueError(_unknown_type(kind))
    return GRADERS.load(kind)  # type: ignore[no-any-return]


def _default_name(kind: str, cls: type[Grader]) -> str:
    """Return how a grader without a name is called: as its class says, else as its type."""
    return str(cls.model_fields["name"].default) or (cls.type_name() if is_local(kind) else kind)


def _options(
    data: dict[str, Any], config: dict[str, Any], cls: type[Grader], place: Position
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the grader's keys from `config:` and next to `type`, and the problems with keys out of place."""
    problems = []
    options = {key: unmarked(value) for key, value in config.items() if key not in WRAPPER}
    known = [key for key in keys_of(cls) if key not in WRAPPER]
    for key in config:
        if key == "folder":
            problems.append(place.at("config", key).problem(unknown_key(key, known)))
        elif key in WRAPPER:
            problems.append(place.at("config", key).problem(f"'{key}' belongs next to 'type', not in 'config'"))
    for key, value in data.items():
        if key in ("type", "config"):
            continue
        if key in config and key not in WRAPPER:
            problems.append(place.at(key).problem(f"'{key}' is here and in 'config'; keep one of them"))
        elif key == "folder" or (key not in known and key not in WRAPPER_KEYS):
            problems.append(place.at(key).problem(unknown_key(key, [*WRAPPER_KEYS, *known])))
        else:
            options[key] = unmarked(value)
    return options, problems


def _unknown_type(kind: Any) -> str:
    if not isinstance(kind, str):
        return f"a grader's type is a text, found {what(kind)}"
    return f"unknown grader type '{kind}'; {did_you_mean(kind, GRADERS.names())}"


# `config.tool_names`: how the graders of a suite take tool names where they do not say it themselves.

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
