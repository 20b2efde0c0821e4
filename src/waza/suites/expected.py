"""The `expected:` shorthand: one grader a key, named after it, all of them must pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from waza.errors import Problem, did_you_mean, what
from waza.files.paths import SpecFolder
from waza.graders.base import GRADERS, Grader
from waza.graders.composed import CompositeGrader
from waza.suites.positions import Position, dotted, doubled_backslashes, problems_of, unknown_key

_KEYS: dict[str, tuple[str, str]] = {
    "output_contains": ("contains", "values"),
    "output_not_contains": ("not_contains", "values"),
    "output_contains_any": ("contains_any", "values"),
    "output_equals": ("equals", "expected"),
    "output_matches": ("matches", "pattern"),
    "tools_called": ("tool_called", "required"),
    "tools_not_called": ("tool_not_called", "forbidden"),
    "tool_call_order": ("tool_order", "expected_order"),
    "max_steps": ("max_steps", "max_steps"),
    "min_steps": ("min_steps", "min_steps"),
    "max_tool_calls": ("max_tool_calls", "max_tool_calls"),
    "max_llm_calls": ("max_llm_calls", "max_llm_calls"),
    "task_completed": ("task_completed", "require_success"),
    "tool_calls": ("tool_calls", "expect"),
}
_BEHAVIOR: dict[str, tuple[str, str]] = {
    "max_tool_calls": ("max_tool_calls", "max_tool_calls"),
    "max_iterations": ("max_turns", "max_turns"),
    "max_response_time_ms": ("max_duration_ms", "max_duration_ms"),
    "max_tokens": ("max_tokens", "max_tokens"),
    "required_tools": ("tool_called", "required"),
    "forbidden_tools": ("tool_not_called", "forbidden"),
}
_OUTCOMES: dict[str, str] = {
    "task_completed": "",
    "tool_called": "tool_name",
    "tool_not_called": "tool_name",
    "skill_invoked": "skill",
    "skill_not_invoked": "skill",
}
"""The types of `outcomes`, each with the key that names the tool or skill."""
_NUMBERS = {"max_steps", "min_steps", *(key for key in (*_KEYS, *_BEHAVIOR) if key.startswith("max_"))}
KEYS = (*_KEYS, "outcomes", "behavior", "should_trigger", "graders")
"""Every key of an `expected:` block."""

Built = tuple[list[Grader], list[Problem]]


def build_expected(block: Any, place: Position, folder: SpecFolder, *, skill: str = "") -> Built:
    """Return one grader a key of the block; `graders` is the caller's. `skill` is the suite's, for `should_trigger`."""
    if not isinstance(block, dict):
        return [], [place.problem(f"a mapping of keys is needed, found {what(block)}")]
    if not block:
        return [], [place.problem("an empty block expects nothing; leave it out or give at least one key")]
    graders: list[Grader] = []
    problems: list[Problem] = []
    for key, value in block.items():
        if key == "graders":
            continue
        built, wrong = _build_key(key, value, place.at(key), folder, skill)
        graders += built
        problems += wrong
    return graders, problems


def _build_key(key: str, value: Any, place: Position, folder: SpecFolder, skill: str) -> Built:
    if key in _KEYS:
        return _one(key, *_KEYS[key], value, place, folder)
    special: dict[str, Callable[[], Built]] = {
        "outcomes": lambda: _outcomes(value, place, folder),
        "behavior": lambda: _behavior(value, place, folder),
        "should_trigger": lambda: _should_trigger(value, place, folder, skill),
    }
    if key in special:
        return special[key]()
    return [], [place.problem(unknown_key(key, list(KEYS)))]


def _one(name: str, kind: str, option: str, value: Any, place: Position, folder: SpecFolder) -> Built:
    """Return the one grader of a kind whose one option is `value`."""
    cls: type[Grader] = GRADERS.load(kind)
    if option in _NUMBERS:
        value = _whole(value)

    def locate(path: tuple[str | int, ...]) -> Position:
        return place.at(*path[1:])

    try:
        grader = cls.model_validate({"name": name, option: value, "folder": folder})
    except ValidationError as error:
        return [], problems_of(error, cls, {option: value}, locate)
    return [grader], doubled_backslashes(grader, {option: value}, locate)


def _whole(value: Any) -> Any:
    """Return a whole number written as `"3"` or `2.0`; anything else as it is."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        return int(value)
    return value


def _together(name: str, parts: list[Grader], problems: list[Problem], folder: SpecFolder) -> Built:
    if problems or not parts:
        return [], problems
    return [CompositeGrader(name=name, graders=parts, folder=folder)], []


def _behavior(value: Any, place: Position, folder: SpecFolder) -> Built:
    if not isinstance(value, dict) or not value:
        return [], [place.problem(f"limits are needed: {', '.join(_BEHAVIOR)}; found {what(value)}")]
    parts: list[Grader] = []
    problems: list[Problem] = []
    for key, bound in value.items():
        if key not in _BEHAVIOR:
            problems.append(place.at(key).problem(unknown_key(key, list(_BEHAVIOR))))
            continue
        built, wrong = _one(key, *_BEHAVIOR[key], bound, place.at(key), folder)
        parts += built
        problems += wrong
    return _together("behavior", parts, problems, folder)


def _outcomes(value: Any, place: Position, folder: SpecFolder) -> Built:
    if not isinstance(value, list) or not value:
        return [], [place.problem(f"a list of outcomes is needed, found {what(value)}")]
    parts: list[Grader] = []
    problems: list[Problem] = []
    for index, outcome in enumerate(value):
        built, wrong = _outcome(outcome, place.at(index), folder)
        parts += built
        problems += wrong
    return _together("outcomes", parts, problems, folder)


def _outcome(outcome: Any, place: Position, folder: SpecFolder) -> Built:
    """Return the grader of one outcome: `{type: tool_called, tool_name: bash}`."""
    if not isinstance(outcome, dict) or "type" not in outcome:
        fact = f"an outcome is a mapping with a type ({', '.join(_OUTCOMES)}), found {what(outcome)}"
        return [], [place.problem(fact)]
    kind = outcome["type"]
    if not isinstance(kind, str) or kind not in _OUTCOMES:
        hint = did_you_mean(kind, list(_OUTCOMES)) if isinstance(kind, str) else f"known: {', '.join(_OUTCOMES)}"
        return [], [place.at("type").problem(f"unknown type of outcome, {what(kind)}; {hint}")]
    key = _OUTCOMES[kind]
    known = ["type", key] if key else ["type"]
    if unknown := [place.at(str(name)).problem(unknown_key(str(name), known)) for name in outcome if name not in known]:
        return [], unknown
    if kind == "task_completed":
        return _one(kind, kind, "require_success", True, place, folder)
    name = outcome.get(key)
    if kind == "skill_not_invoked" and key not in outcome:
        none = {"mode": "exact_match", "required_skills": [], "allow_extra": False}
        return [GRADERS.load("skill_invocation")(name=kind, folder=folder, **none)], []
    if not isinstance(name, str):
        fact = f"a name is needed, found {what(name)}" if key in outcome else f"'{key}' is missing: {kind} of what?"
        return [], [(place.at(key) if key in outcome else place).problem(fact)]
    if key == "skill":
        return _triggered(kind, name, place.at(key), folder, should_trigger=kind == "skill_invoked")
    option = "required" if kind == "tool_called" else "forbidden"
    built, wrong = _one(kind, kind, option, [name], place, folder)
    return built, [problem._replace(path=dotted(place.at(key).path)) for problem in wrong]


def _triggered(name: str, skill: str, place: Position, folder: SpecFolder, *, should_trigger: bool) -> Built:
    """Return the grader that a skill is invoked, or is not."""
    cls: type[Grader] = GRADERS.load("skill_triggered")
    options = {"name": name, "skill": skill, "should_trigger": should_trigger, "folder": folder}
    try:
        return [cls.model_validate(options)], []
    except ValidationError as error:
        return [], problems_of(error, cls, options, lambda path: place)


def _should_trigger(value: Any, place: Position, folder: SpecFolder, skill: str) -> Built:
    if not isinstance(value, bool):
        return [], [place.problem(f"true or false is needed, found {what(value)}")]
    if not skill:
        return [], [place.problem("which skill? name it under the suite's 'skill:'")]
    return _triggered("should_trigger", skill, place, folder, should_trigger=value)
