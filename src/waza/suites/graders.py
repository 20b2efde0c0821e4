"""Graders from a spec: `{type, name, weight, config}` in, a checked Grader out; `expected:` and checkpoints.

`expected:` is a shorthand: one grader a key, named after it, all of them must pass. Checkpoints grade the conversation
up to one of its prompts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from waza.errors import Problem, SpecError, did_you_mean, nearest, what
from waza.files.paths import SpecFolder
from waza.graders.base import GRADERS, WRAPPER, Grader
from waza.graders.composed import AfterTurnGrader, CompositeGrader
from waza.graders.names import ToolNames
from waza.suites.local_code import is_local, left_out, load_local, not_imported_grader
from waza.suites.positions import (
    Position,
    dotted,
    doubled_backslashes,
    keys_of,
    problems_of,
    unknown_key,
    unmarked,
    without_empty_choices,
)
from waza.suites.shapes import CheckpointShape

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
    idle: list[Problem] = []
    if "model" in data and "model" not in keys_of(cls):
        # The original's schema has it next to every type.
        idle = [place.at("model").warning(f"'{cls.type_name()}' asks no model; this key has no effect")]
        data = {key: value for key, value in data.items() if key != "model"}
    if not isinstance(config, dict):
        return None, [place.at("config").problem(f"a mapping of keys is needed, found {what(config)}")]
    options, problems = _options(data, config, cls, place)
    if forced:
        options |= {key: value for key, value in forced.items() if key in keys_of(cls)}

    def locate(path: tuple[str | int, ...]) -> Position:
        return place.at(*(path if not path or path[0] in data else ("config", *path)))

    built, wrong = _with_parts(cls, options, locate, folder, forced) if cls.part_keys else (options, [])
    if any(problem.severity == "error" for problem in wrong):
        return None, problems + wrong
    try:
        grader = cls.model_validate({"name": _default_name(str(kind), cls)} | built | {"folder": folder})
    except ValidationError as error:
        return None, problems + problems_of(error, cls, options, locate)
    if problems:
        return None, problems
    warned = [locate(path).warning(text) for path, text in grader.option_warnings()]
    return grader, idle + wrong + warned + ([] if cls.part_keys else doubled_backslashes(grader, options, locate))


def _with_parts(
    cls: type[Grader],
    options: dict[str, Any],
    locate: Callable[[tuple[str | int, ...]], Position],
    folder: SpecFolder,
    forced: Mapping[str, Any] | None,
) -> tuple[dict[str, Any], list[Problem]]:
    """Return options with the graders that a combination is made of, and every problem with them."""
    built = dict(options)
    problems: list[Problem] = []
    for key in cls.part_keys:
        entries = options.get(key)
        if key not in options or (key == "graders" and not isinstance(entries, list)):
            continue  # its class says what is wrong with it
        parts = []
        for index, entry in enumerate(entries if isinstance(entries, list) else [entries]):
            place = locate((key, index) if isinstance(entries, list) else (key,))
            if isinstance(entry, dict) and "weight" in entry and not getattr(cls, "weighs_parts", False):
                problems.append(place.at("weight").problem(f"'weight' has no effect inside {cls.type_name()}"))
                continue
            part, wrong = build_grader(entry, place, folder, forced)
            problems += wrong
            parts += [part] if part else []
        built[key] = parts if isinstance(entries, list) else next(iter(parts), None)
    return built, problems


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
    data, config = without_empty_choices(cls, data), without_empty_choices(cls, config)
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


BuiltCheckpoints = tuple[list[Grader], list[Problem]]
_NOT_OVER = "a judge goes on in the agent's session when that is over, not at a checkpoint; leave continue_session out"


class CheckpointContext(NamedTuple):
    """What the checkpoints of a task need to know about it and its suite."""

    prompts: int
    """How many the task has, with its follow-up prompts."""
    folder: SpecFolder
    suite: Sequence[Grader] = ()
    """The suite's graders, which a checkpoint may name."""
    skill: str = ""
    forced: Mapping[str, Any] = {}
    """Options that win over written ones."""


def build_checkpoints(
    checkpoints: list[CheckpointShape], place: Position, around: CheckpointContext
) -> BuiltCheckpoints:
    """Return the graders of all checkpoints, each named after its turn."""
    graders: list[Grader] = []
    problems: list[Problem] = []
    for index, checkpoint in enumerate(checkpoints):
        here = place.at("checkpoints", index)
        found, wrong = _built(checkpoint, here, around)
        problems += wrong
        if checkpoint.after_turn > around.prompts:
            fact = f"there is no turn {checkpoint.after_turn}: the task has {around.prompts} with its follow_up_prompts"
            problems.append(here.at("after_turn").problem(fact))
        elif not found and not wrong:
            problems.append(here.problem("this checkpoint checks nothing; give 'expected' or 'graders'"))
        else:
            stops = checkpoint.on_failure == "stop"
            graders += [after_turn(grader, checkpoint.after_turn, around.prompts, stops=stops) for grader in found]
    return graders, problems


def after_turn(grader: Grader, turn: int, prompts: int, *, is_alone: bool = False, stops: bool = False) -> Grader:
    """Return a grader of one turn of a conversation, named after it."""
    return AfterTurnGrader(
        name=f"{grader.name}@{turn}",
        weight=grader.weight,
        grader=grader,
        turn=turn,
        prompts=prompts,
        is_alone=is_alone,
        stops=stops,
        folder=grader.folder,
    )


def _built(checkpoint: CheckpointShape, place: Position, around: CheckpointContext) -> BuiltCheckpoints:
    graders: list[Grader] = []
    problems: list[Problem] = []
    if checkpoint.expected is not None:
        graders, problems = build_expected(checkpoint.expected, place.at("expected"), around.folder, skill=around.skill)
        if "graders" in checkpoint.expected:
            problems.append(place.at("expected", "graders").problem("put them under the checkpoint's own 'graders'"))
    for index, entry in enumerate(checkpoint.graders):
        found, wrong = _graders(entry, place.at("graders", index), around)
        wrong += [place.at("graders", index).problem(_NOT_OVER) for grader in found if grader.continues]
        graders += found
        problems += wrong
    return graders, problems


def _graders(entry: Any, place: Position, around: CheckpointContext) -> BuiltCheckpoints:
    """Return the grader that is written out here, or those of the suite that have this name."""
    if not isinstance(entry, str):
        grader, wrong = build_grader(entry, place, around.folder, around.forced)
        return [grader] if grader else [], wrong
    named = [grader for grader in around.suite if grader.name == entry]
    known = [grader.name for grader in around.suite]
    hint = did_you_mean(entry, known) if known else "the suite has no graders"
    return named, [] if named else [place.problem(f"unknown grader '{entry}'; {hint}")]


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
KEYS = (*_KEYS, "before", "outcomes", "behavior", "should_trigger", "graders")
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
    if key == "tool_calls" and isinstance(value, dict):
        return _tool_calls(value, place, folder)
    if key in _KEYS:
        return _one(key, *_KEYS[key], value, place, folder)
    special: dict[str, Callable[[], Built]] = {
        "before": lambda: _before(value, place, folder),
        "outcomes": lambda: _outcomes(value, place, folder, skill),
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


def _tool_calls(options: dict[str, Any], place: Position, folder: SpecFolder) -> Built:
    """Return the `tool_calls` grader with these options: `{required: [{pattern: P}], forbidden: []}` and its others."""
    cls: type[Grader] = GRADERS.load("tool_calls")
    given = {key: unmarked(value) for key, value in options.items()}
    known = [key for key in keys_of(cls) if key not in WRAPPER]
    if wrong := [place.at(key).problem(unknown_key(key, known)) for key in given if key not in known]:
        return [], wrong

    def locate(path: tuple[str | int, ...]) -> Position:
        return place.at(*path)

    try:
        grader = cls.model_validate({"name": "tool_calls", "folder": folder} | given)
    except ValidationError as error:
        return [], problems_of(error, cls, given, locate)
    return [grader], doubled_backslashes(grader, given, locate)


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


def _before(value: Any, place: Position, folder: SpecFolder) -> Built:
    """Return the grader that a call comes before each of another: `before: [A, B]`, and both must be there."""
    if not isinstance(value, list) or len(value) != 2:
        return [], [place.problem(f"two calls are needed, [A, B]: A before each B; found {what(value)}")]
    cls: type[Grader] = GRADERS.load("trace_rules")
    rule = {"require": value[0], "before": value[1], "when_absent": "fail"}
    places: dict[str | int, tuple[int, ...]] = {"require": (0,), "before": (1,)}

    def locate(path: tuple[str | int, ...]) -> Position:
        inner = path[2:]  # what follows `rules[0]`
        return place.at(*places.get(inner[0], ()), *inner[1:]) if inner else place

    try:
        return [cls.model_validate({"name": "before", "rules": [rule], "folder": folder})], []
    except ValidationError as error:
        return [], problems_of(error, cls, {"rules": [rule]}, locate)


def _outcomes(value: Any, place: Position, folder: SpecFolder, skill: str) -> Built:
    if isinstance(value, str | dict):
        value = [value]
    if not isinstance(value, list) or not value:
        return [], [place.problem(f"a list of outcomes is needed, found {what(value)}")]
    parts: list[Grader] = []
    problems: list[Problem] = []
    for index, outcome in enumerate(value):
        built, wrong = _outcome(outcome, place.at(index), folder, skill)
        parts += built
        problems += wrong
    return _together("outcomes", parts, problems, folder)


def _outcome(outcome: Any, place: Position, folder: SpecFolder, skill: str) -> Built:
    """Return the grader of one outcome: `{type: tool_called, tool_name: bash}`; `value: bash` is the original's form.

    `skill` is the suite's, which `skill_invoked` without a name is about.
    """
    if isinstance(outcome, str) and outcome in _OUTCOMES:
        outcome = {"type": outcome}
    if not isinstance(outcome, dict) or "type" not in outcome:
        fact = f"an outcome is a mapping with a type ({', '.join(_OUTCOMES)}), found {what(outcome)}"
        return [], [place.problem(fact)]
    kind = outcome["type"]
    if not isinstance(kind, str) or kind not in _OUTCOMES:
        hint = did_you_mean(kind, list(_OUTCOMES)) if isinstance(kind, str) else f"known: {', '.join(_OUTCOMES)}"
        return [], [place.at("type").problem(f"unknown type of outcome, {what(kind)}; {hint}")]
    key = _OUTCOMES[kind]
    known = ["type", key] if key else ["type"]
    if unknown := [_not_of_outcome(str(name), known, place) for name in outcome if name not in (*known, "value")]:
        return [], unknown
    if kind == "task_completed":
        return _one(kind, kind, "require_success", outcome.get("value", True), place, folder)
    if key in outcome and "value" in outcome:
        return [], [place.at("value").problem(f"'{key}' and 'value' both name it; keep one of them")]
    if kind == "skill_invoked" and skill and len(outcome) == 1:
        return _triggered(kind, skill, place, folder, should_trigger=True)
    key = "value" if "value" in outcome else key
    name = outcome.get(key)
    if kind == "skill_not_invoked" and key not in outcome:
        none = {"mode": "exact_match", "required_skills": [], "allow_extra": False}
        return [GRADERS.load("skill_invocation")(name=kind, folder=folder, **none)], []
    if not isinstance(name, str):
        fact = f"a name is needed, found {what(name)}" if key in outcome else f"'{key}' is missing: {kind} of what?"
        return [], [(place.at(key) if key in outcome else place).problem(fact)]
    if kind.startswith("skill_"):
        return _triggered(kind, name, place.at(key), folder, should_trigger=kind == "skill_invoked")
    option = "required" if kind == "tool_called" else "forbidden"
    built, wrong = _one(kind, kind, option, [name], place, folder)
    return built, [problem._replace(path=dotted(place.at(key).path)) for problem in wrong]


def _not_of_outcome(key: str, known: list[str], place: Position) -> Problem:
    if key == "condition":
        fact = "a condition cannot be checked here; write it as an assertion of a `code` grader"
        return place.at(key).problem(fact)
    return place.at(key).problem(unknown_key(key, known))


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
