"""The cases of an evaldeck project: one YAML document each, in files below a folder. Graders of a turn see it alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from pydantic import Field

from waza.errors import Problem, SpecError, what
from waza.files.paths import SpecFolder
from waza.graders.base import Grader
from waza.options import Options
from waza.suites.graders import build_expected, build_grader
from waza.suites.positions import Position, parse, unknown_key, unmarked
from waza.suites.shapes import Scalar, Timeout, Words
from waza.untrusted.yaml import read_yaml

_SEPARATOR = re.compile(rb"^---(?=\s|$)", re.M)
_CONTENT = re.compile(rb"^\s*[^\s#]", re.M)
_TYPES = {"regex": "matches"}
OUR_REGEX = {"must_match", "must_not_match"}
"""Keys by which `type: regex` is waza's grader, and not evaldeck's."""
_RENAMED = {"normalize_whitespace": "strip_whitespace"}
_READERS = ("reference_output", "reference_tools")


class TurnShape(Options):
    """One turn of a conversation."""

    user: Words
    """What the agent is asked."""
    expected: dict[str, Any] | None = None
    """What must be true of this turn."""
    graders: list[Any] = []
    """Graders of this turn."""


class CaseShape(Options):
    """The keys of a test file."""

    name: Scalar
    """The case's name; the task's id."""
    description: str | None = None
    """For readers."""
    turns: list[TurnShape] = []
    """The conversation."""
    input: Words | None = None
    """The only turn's prompt."""
    expected: dict[str, Any] | None = None
    """What must be true of the only turn, or after the last one."""
    graders: list[Any] = []
    """Graders of the only turn, or after the last one."""
    tags: list[Words] = []
    """For `--tags`."""
    timeout: Timeout = None
    """Seconds the agent may work on this case."""
    retries: Annotated[int, Field(ge=0)] | None = None
    """How often an agent that could not run is started again; the largest number in the project holds for all."""
    metadata: dict[str, Any] = {}
    """For readers."""
    reference_output: str | None = None
    """For readers."""
    reference_tools: list[Any] | None = None
    """For readers."""


class Case(NamedTuple):
    """A test file's case: its shape, and the graders of each turn."""

    shape: CaseShape
    prompts: list[str]
    graders: list[tuple[int, Grader]]
    """Each with its turn, counted from 1."""
    place: Position


def case_files(folder: Path) -> list[Path]:
    """Return the YAML files below a folder, sorted; names that begin with `_` or `.` are left out. A file is itself."""
    if folder.is_file():
        return [folder]
    found = [file for file in folder.rglob("*") if file.suffix in (".yaml", ".yml") and file.is_file()]
    return sorted(file for file in found if not any(part[0] in "_." for part in file.relative_to(folder).parts))


def documents(text: bytes, name: str) -> tuple[list[Any], list[Problem]]:
    """Return the YAML documents in a text with their places in it, and every problem."""
    found: list[Any] = []
    problems: list[Problem] = []
    starts = [0, *(match.start() for match in _SEPARATOR.finditer(text)), len(text)]
    for start, end in pairwise(starts):
        part = text[start:end].removeprefix(b"---")
        if not _CONTENT.search(part):
            continue
        try:
            found.append(read_yaml(b"\n" * text[:start].count(b"\n") + part, name))
        except SpecError as error:
            problems += error.problems
    if not found and not problems:
        problems.append(Problem("the file is empty; write a case with a name and an input", name, 1, 1))
    return found, problems


def problems_in_case(data: Any, place: Position) -> list[Problem]:
    """Return what is wrong with a case by itself."""
    return [problem for problem in read_case(data, place, SpecFolder())[1] if problem.severity == "error"]


def read_case(data: Any, place: Position, folder: SpecFolder) -> tuple[Case | None, list[Problem]]:
    """Return the case a mapping is, with every problem and note."""
    shape, problems = parse(CaseShape, data, place)
    if shape is None:
        return None, problems
    for key in _READERS:
        if key in shape.model_fields_set:
            problems.append(place.at(key).problem("this key is for readers; it has no effect", "note"))
    turns = [
        (turn.user, turn.expected, turn.graders, place.at("turns", index)) for index, turn in enumerate(shape.turns)
    ]
    if turns and shape.input is not None:
        problems.append(place.at("input").problem("'input' and 'turns' are both given; keep one of them"))
    if not turns and shape.input is None:
        return None, [*problems, place.problem("'input' is missing; or give 'turns'")]
    if not turns:
        turns = [(shape.input or "", None, [], place)]
    asked: list[tuple[int, Any, list[Any], Position]] = [
        (number, expected, graders, here) for number, (_, expected, graders, here) in enumerate(turns, 1)
    ]
    asked.append((len(turns), shape.expected, shape.graders, place))
    built: list[tuple[int, Grader]] = []
    for number, expected, graders, here in asked:
        found, wrong = _turn_graders(expected, graders, here, folder, _names(shape, expected))
        built += [(number, grader) for grader in found]
        problems += wrong
    if not built and not any(problem.severity == "error" for problem in problems):
        problems.append(place.problem(f"case '{shape.name}' expects nothing: it could not fail"))
    return Case(shape, [user for user, *_ in turns], built, place), problems


def _names(case: CaseShape, expected: Any) -> dict[str, str]:
    """Return the values of names in a judge's prompt, in addition to those of the conversation."""
    fields = {key: value for key, value in (expected or {}).items() if key != "graders"}
    text = msgspec.json.encode(unmarked(fields)).decode() if fields else ""
    return {"test_case_name": case.name, "expected": text, "reference": case.reference_output or ""}


def _turn_graders(
    expected: Any, graders: list[Any], place: Position, folder: SpecFolder, names: dict[str, str]
) -> tuple[list[Grader], list[Problem]]:
    built: list[Grader] = []
    problems: list[Problem] = []
    entries = [(entry, place.at("graders", index)) for index, entry in enumerate(graders)]
    if expected is not None:
        built, problems = build_expected(expected, place.at("expected"), folder)
        if "graders" in expected:
            here = place.at("expected", "graders")
            more = expected["graders"]
            if not isinstance(more, list) or not more:
                problems.append(here.problem(f"a list with at least one grader is needed, found {what(more)}"))
                more = []
            entries += [(entry, here.at(index)) for index, entry in enumerate(more)]
    for entry, here in entries:
        grader, wrong = _grader(entry, here, folder, names)
        built += [grader] if grader else []
        problems += wrong
    return built, problems


def unknown_grader(name: str) -> str:
    """Return the sentence about a name where a grader is written out."""
    return f"unknown grader '{name}'; an evaldeck project has no graders to name: write {{type: …, params: …}}"


def _grader(
    entry: Any, place: Position, folder: SpecFolder, names: dict[str, str]
) -> tuple[Grader | None, list[Problem]]:
    """Return the grader that evaldeck's `{type, params, prompt, model, threshold}` means."""
    if isinstance(entry, str):
        return None, [place.problem(unknown_grader(entry))]
    if not isinstance(entry, dict):
        return None, [place.problem(f"a grader is a mapping with a type, found {what(entry)}")]
    if "module" in entry or "function" in entry:
        fact = "a grader that calls a function is a Python file here: `type: ./graders/mine.py`"
        return None, [place.at("type").problem(fact)]
    params = entry.get("params", {})
    if not isinstance(params, dict):
        return None, [place.at("params").problem(f"a mapping of keys is needed, found {what(params)}")]
    if "params" in entry and "config" in entry:
        return None, [place.at("params").problem("'params' and 'config' both have the grader's keys; keep one of them")]
    rest = {key: value for key, value in entry.items() if key != "params"}
    kind = rest.get("type")
    if isinstance(kind, str) and not kind.endswith(".py"):
        rest["type"] = kind.lower()
        if rest["type"] in _TYPES and not _keys(entry) & OUR_REGEX:
            rest = {"name": rest["type"]} | rest | {"type": _TYPES[rest["type"]]}
    config: dict[str, Any] = {
        _RENAMED.get(str(key), str(key)): value
        for key, value in params.items()
        if not (key == "field" and value == "output")
    }
    if rest.get("type") in TYPES:
        if isinstance(inner := rest.pop("config", {}), dict):
            config |= inner
        else:
            return None, [place.at("config").problem(f"a mapping of keys is needed, found {what(inner)}")]
        return _judged(rest, config, place, folder, names)
    grader, problems = build_grader(rest | {"config": config} if config else rest, place, folder)
    return grader, [problem._replace(path=problem.path.replace("].config", "].params")) for problem in problems]


def _judged(
    entry: dict[str, Any], config: dict[str, Any], place: Position, folder: SpecFolder, names: dict[str, str]
) -> tuple[Grader | None, list[Problem]]:
    """Return the judged grader that an entry of evaldeck's means; without a name it keeps its type's."""
    options = {key: unmarked(value) for key, value in entry.items() if key not in ("type", "name")}
    if twice := [key for key in config if key in options]:
        return None, [place.at(key).problem(f"'{key}' is here and in 'params'; keep one of them") for key in twice]
    options |= unmarked(config)
    if unknown := [key for key in options if key not in KEYS]:
        return None, [place.at(key).problem(unknown_key(key, list(KEYS))) for key in unknown]
    try:
        meant = judged(options, names)
    except ValueError as error:
        return None, [place.problem(str(error))]
    return build_grader({"name": entry.get("name", entry["type"])} | meant, place, folder)


def _keys(entry: dict[str, Any]) -> set[str]:
    """Return a grader's keys, wherever they are written."""
    inner = [entry[place] for place in ("params", "config") if isinstance(entry.get(place), dict)]
    return {str(key) for part in (entry, *inner) for key in part}


# evaldeck's judged graders as ours: what their prompts, rubrics and thresholds mean here.
#
# evaldeck pastes what the agent wrote into the prompt. Here a judge always sees the task, the answer and, where asked
# for, the tool calls, fenced and named as data; so `{output}` in a prompt becomes words that point there.

DEFAULT_MODEL = "gpt-4o-mini"
"""The default judge."""
TYPES = ("llm", "llm_rubric")
KEYS = ("name", "weight", "prompt", "model", "threshold", "rubric", "pass_threshold", "needs", "reasoning_effort")
_PROMPT = "Decide whether the agent did what it was asked to do, correctly and completely."
_NAME = re.compile(r"\{\{\s*(\w+)\s*\}\}|\{(\w+)\}")
_POINTERS = {
    "input": "(the task input, below)",
    "output": "(the candidate output, below)",
    "trace": "(the tool calls, below)",
    "task": "(the task input, below)",
}


def judged(options: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the keys of our `prompt` grader, or, with a threshold, of our `llm` grader.

    `names` are what else `{name}` in a prompt may mean. Raises ValueError for what cannot be judged by.
    """
    found = dict(options)
    rubric = found.pop("rubric", None)
    if isinstance(rubric, Mapping):
        if "prompt" in found:
            raise ValueError("a rubric of criteria and a prompt both say what is judged; keep one of them")
        if found.get("threshold") is not None and "pass_threshold" in found:
            raise ValueError("'threshold' and 'pass_threshold' are both given; keep one of them")
        found["prompt"] = _criteria(rubric)
        given = found.pop("pass_threshold", found.get("threshold"))
        found["threshold"] = 0.7 if given is None else given
    elif rubric is not None:
        found["rubric"] = rubric
    written = found.get("prompt")
    if isinstance(written, str) and not written.strip():
        raise ValueError("the prompt is empty: it says nothing to judge by")
    written = written or ("" if "rubric" in found else _PROMPT)
    if isinstance(written, str) and written:
        known = _POINTERS | dict(names)
        found["prompt"] = _NAME.sub(lambda match: known.get(match[1] or match[2], match[0]), written)
        if any("trace" in match.groups() for match in _NAME.finditer(written)):
            needs = found.get("needs")
            found["needs"] = list(dict.fromkeys([*(needs if isinstance(needs, list) else []), "tool_events"]))
    if found.get("threshold") is None:
        found.pop("threshold", None)
        return {"type": "prompt"} | found
    return {"type": "llm"} | found | {"threshold": _share(found["threshold"])}


def _criteria(rubric: Mapping[str, Any]) -> str:
    if not rubric or not all(isinstance(text, str) and text.strip() for text in rubric.values()):
        raise ValueError("a rubric is a mapping of criteria, each with a sentence")
    lines = [f"- {name}: {text}" for name, text in rubric.items()]
    return "\n".join(["Give one score for how well all of these criteria are met together:", *lines])


def _share(threshold: Any) -> float:
    """Return a threshold on the scale from 0 to 1; above 1 it is on the judge's own scale from 1 to 5."""
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 < threshold <= 5:
        raise ValueError(f"a threshold is a share above 0 up to 1, or a score up to 5; found {threshold!r}")
    return float(threshold) if threshold <= 1 else (threshold - 1) / 4
