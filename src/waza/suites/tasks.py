"""The tasks of a suite: globs, task files, inline tasks and datasets in; Tasks with their graders out."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from sys import intern
from typing import Any, NamedTuple

from waza.compact import CompactDict, CompactList
from waza.engines.mock import MockFile, script_for, unused_patterns
from waza.engines.mocks.shapes import CommandMock, McpMock
from waza.errors import Problem, SpecError, did_you_mean, nearest, what
from waza.files.paths import SpecFolder, display_path, inner_path, is_there
from waza.graders.base import Grader
from waza.model import InputFile, Task
from waza.suites.datasets import read_rows
from waza.suites.graders import CheckpointContext, build_checkpoints, build_expected, build_grader, weightless
from waza.suites.mocks import as_data, call_graders, plain, read_commands
from waza.suites.positions import Position, parse, read_file, unmarked
from waza.suites.shapes import ConfigShape, EvalShape, TaskShape
from waza.suites.skills import delivery_problems

MAX_TASKS = 100_000
MOCK_FILE = "mock.yaml"
_CATALOGUE_COLONS = 2
"""In `trigger:SKILL:should-1`, the id of a prompt that only `waza trigger --catalogue` asks."""
_NONE: list[Any] = []
_NO_KEYS: dict[str, Any] = {}
"""Most tasks have these empty values: they share them, since a task never changes."""
_LATER = {
    "repos": "git worktrees are not supported yet",
    "responder": "an answering user is not supported yet; use follow_up_prompts",
    "requirements": None,
    "first_event_timeout_seconds": None,
}
"""Keys of the original that are refused, with the reason, or (None) left to readers."""


class Suite(NamedTuple):
    """What the tasks of a suite share."""

    shape: EvalShape
    config: ConfigShape
    place: Position
    folder: SpecFolder
    graders: list[Grader]
    forced: Mapping[str, Any]
    servers: list[McpMock] = []
    commands: list[CommandMock] = []
    needs_tasks: bool = True


class WrittenTask(NamedTuple):
    """A task as it was written: its keys, their positions, the folder its paths start in, values for its prompt."""

    data: Any
    place: Position
    folder: Path
    values: dict[str, str]
    default_id: str


class Made(NamedTuple):
    """A task with its graders, or what is wrong with it."""

    task: Task | None
    graders: list[Grader]
    problems: list[Problem]


def read_tasks(suite: Suite) -> tuple[Sequence[Task], dict[str, list[Grader]], Mapping[str, Position], list[Problem]]:
    """Return every enabled task; by task id its graders, and where it is written; and all problems."""
    problems: list[Problem] = []
    mocks = read_mocks(suite.folder, problems)
    tasks: CompactList[Task] = CompactList(kind=Task)
    graders: dict[str, list[Grader]] = {}
    places: CompactDict[Position] = CompactDict()
    shared: list[Grader] = []
    for item in _find(suite, problems):
        made = _make(item, suite, mocks)
        problems += made.problems
        if made.task is None:
            continue
        if (first := places.get(made.task.id)) is not None:
            where = first.problem("")
            problems.append(
                item.place.at("id").problem(
                    f"task id '{made.task.id}' is taken by {where.file}:{where.line}; ids are unique"
                )
            )
            continue
        # Most tasks have the suite's graders and no others: one list serves them all.
        if list(map(id, made.graders)) != list(map(id, shared)):
            shared = made.graders
        tasks.append(made.task)
        graders[made.task.id] = shared
        places.add(made.task.id, item.place.at("id").without_content())
    if not tasks and suite.needs_tasks and not any(problem.severity == "error" for problem in problems):
        problems.append(suite.place.at("tasks").problem("a suite needs at least one enabled task"))
    return tasks, graders, places, problems


def _find(suite: Suite, problems: list[Problem]) -> Iterator[WrittenTask]:
    """Yield every task the suite names, in order."""
    for index, entry in enumerate(suite.shape.tasks):
        here = suite.place.at("tasks", index)
        if isinstance(entry, str):
            yield from _glob(entry, here, suite.folder, problems)
        elif isinstance(entry, dict) and set(entry) == {"task_files"}:
            patterns = entry["task_files"] if isinstance(entry["task_files"], list) else [entry["task_files"]]
            for position, pattern in enumerate(patterns):
                yield from _glob(pattern, here.at("task_files", position), suite.folder, problems)
        elif isinstance(entry, dict):
            yield WrittenTask(entry, here, suite.folder.base, {}, f"task-{index + 1}")
        else:
            problems.append(here.problem(f"a task is a glob, a task_files list or a mapping, found {what(entry)}"))
    if suite.shape.tasks_from:
        yield from _dataset(suite, problems)


def _glob(pattern: Any, place: Position, folder: SpecFolder, problems: list[Problem]) -> Iterator[WrittenTask]:
    """Yield the task in each file a pattern names."""
    if not isinstance(pattern, str) or not pattern:
        problems.append(place.problem(f"a glob of task files is needed, found {what(pattern)}"))
        return
    if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        problems.append(place.problem(f"'{pattern}' leaves the eval file's folder"))
        return
    try:
        # As texts, in the order of paths: a hundred thousand paths are large.
        files = sorted((str(path) for path in folder.base.glob(pattern) if path.is_file()), key=_parts_in_order)
    except (OSError, ValueError, IndexError, NotImplementedError) as error:
        problems.append(place.problem(f"'{pattern[:60]}' cannot be resolved: {error.args[-1]}"))
        return
    if not files:
        problems.append(place.problem(f"no task file fits '{pattern}'"))
    if len(files) > MAX_TASKS:
        problems.append(place.problem(f"'{pattern}' names {len(files)} files; at most {MAX_TASKS} are read"))
        return
    parents: dict[Path, bool] = {}
    for file in map(Path, files):
        if file.parent not in parents:
            parents[file.parent] = file.parent.resolve().is_relative_to(folder.root)
        name = display_path(file)
        if not parents[file.parent] or (file.is_symlink() and not file.resolve().is_relative_to(folder.root)):
            problems.append(place.problem(f"'{name}' is a link that leaves the project's folder"))
            continue
        try:
            where = read_file(file)
        except SpecError as error:
            problems += error.problems
        else:
            yield WrittenTask(where.content, where, file.parent, {}, file.stem)


def _parts_in_order(path: str) -> str:
    return path.replace(os.sep, "\0")


def _dataset(suite: Suite, problems: list[Problem]) -> Iterator[WrittenTask]:
    """Yield a task for each row of `tasks_from`."""
    here = suite.place.at("tasks_from")
    try:
        path = suite.folder.find(suite.shape.tasks_from or "")
        first, last = suite.shape.range or (1, None)
        number = 0
        for number, row in enumerate(read_rows(path, display_path(path)), 1):
            if first <= number and (last is None or number <= last):
                for key in row.fields.keys() - {"prompt", "inputs"}:  # prompts are filled with the task's context
                    row.fields[key] = _row_filled(
                        row.fields[key], suite.shape.inputs | row.values, row.place.at(key), problems
                    )
                yield WrittenTask(row.fields, row.place, suite.folder.base, row.values, "")
        if last is not None and (first > last or last > number):
            problems.append(suite.place.at("range").problem(f"rows {first} to {last} of {number} are not there"))
    except SpecError as error:
        problems += error.problems
    except ValueError as error:
        problems.append(here.problem(str(error)))


def read_mocks(folder: SpecFolder, problems: list[Problem]) -> MockFile | None:
    """Return the scripts in `mock.yaml` next to the eval file, if there are any."""
    file = folder.base / MOCK_FILE
    if not file.is_file():
        return None
    try:
        place = read_file(file)
    except SpecError as error:
        problems += error.problems
        return None
    scripts, wrong = parse(MockFile, place.content, place)
    problems += wrong
    return scripts


def unused_scripts(folder: SpecFolder, task_ids: list[str]) -> list[Problem]:
    """Return a warning for each script in `mock.yaml` that none of the tasks gets, trigger tests among them."""
    mocks = read_mocks(folder, [])
    if mocks is None or not mocks.tasks:
        return []
    place = read_file(folder.base / MOCK_FILE)
    return [
        place.at("tasks", pattern).warning(
            f"no task fits '{pattern}', its script is not used; {_meant(pattern, task_ids)}"
        )
        for pattern in unused_patterns(mocks, task_ids)
        if pattern.count(":") < _CATALOGUE_COLONS
    ]


def _meant(pattern: str, task_ids: list[str]) -> str:
    """Return the end of a sentence: the task whose id is nearest to a pattern with or without its wildcards."""
    heads = {one[: len(pattern.rstrip("*?"))]: one for one in reversed(task_ids)} if pattern[-1] in "*?" else {}
    found = nearest(pattern, task_ids) or heads.get(nearest(pattern.rstrip("*?"), heads) or "")
    some = ", ".join(task_ids[:10]) + (" …" if len(task_ids) > 10 else "")
    return f"did you mean '{found}'?" if found else f"tasks: {some or 'none'}"


def _make(found: WrittenTask, suite: Suite, mocks: MockFile | None) -> Made:
    """Return the Task a mapping describes."""
    problems: list[Problem] = []
    data = _drop_later(found, problems)
    shape, wrong = parse(TaskShape, plain(data), found.place)
    problems += wrong
    if shape is None:
        graders_wrong = _task_graders(data, found.place, suite, "") if isinstance(data, dict) else ([], [])
        return Made(None, [], problems + graders_wrong[1])
    if not shape.enabled:
        return Made(None, [], problems)
    problems += delivery_problems(shape, found.place, suite.folder)
    identity = intern(shape.id or shape.name or found.default_id)
    graders, wrong = _task_graders(data, found.place, suite, identity)
    prompts = 1 + len(shape.inputs.follow_up_prompts)
    around = CheckpointContext(prompts, suite.folder, suite.graders, suite.shape.skill, suite.forced)
    later, wrong_later = build_checkpoints(shape.checkpoints, found.place, around)
    commands = suite.commands
    wrong_mocks: list[Problem] = []
    if shape.command_mocks is not None:
        commands, wrong_mocks = read_commands(shape.command_mocks, found.place.at("command_mocks"), suite.folder)
    graders += [*later, *call_graders(suite.servers, commands)]
    wrong += [*wrong_later, *wrong_mocks, *weightless(graders, identity, found.place)]
    problems += wrong
    written = _prompt(shape, found, problems)
    files = _files(shape, found, suite, problems)
    values = suite.shape.inputs | _texts_of(shape.inputs.context) | found.values
    script = shape.mock or (script_for(mocks, identity) if mocks else None)
    prompt = _filled(written or "", values, found.place, problems)
    may_be_empty = shape.allow_empty_prompt or bool(files or shape.inputs.follow_up_prompts)
    if written is not None and not prompt.strip() and not may_be_empty:
        fact = "the prompt is empty; give the task files or follow_up_prompts, or say `allow_empty_prompt: true`"
        problems.append(found.place.at("inputs", "prompt").problem(fact))
    task = Task(
        id=identity,
        name=shape.name,
        description=shape.description,
        prompt=prompt,
        tags=shape.tags or _NONE,
        golden=shape.golden,
        timeout_s=shape.timeout_seconds or suite.config.timeout_seconds,
        follow_up_prompts=[_filled(text, values, found.place, problems) for text in shape.inputs.follow_up_prompts]
        or _NONE,
        files=files or _NONE,
        environment=shape.inputs.environment or _NO_KEYS,
        context=shape.inputs.context or _NO_KEYS,
        workdir=_workdir(shape.inputs.workdir, found.place, problems),
        mock=script.model_dump(mode="json", exclude_unset=True) if script else None,
        mocks=as_data(suite.servers, commands),
        skill_directories=shape.skill_directories,
        instruction_files=shape.instruction_files or _NONE,
        metadata=unmarked(shape.metadata) if shape.metadata else _NO_KEYS,
    )
    if not graders and not wrong and not suite.shape.graders:
        problems.append(found.place.problem(f"task '{identity}' has no grader and no expectation: it could not fail"))
    return Made(task, graders, problems)


def _drop_later(found: WrittenTask, problems: list[Problem]) -> Any:
    """Return the task's keys without those of the original that this version does not read, and say so."""
    if not isinstance(found.data, dict):
        return found.data
    data = dict(found.data)
    inputs = data.get("inputs")
    for keys, path in ((data, ()), (dict(inputs) if isinstance(inputs, dict) else {}, ("inputs",))):
        for key in [key for key in keys if key in _LATER]:
            reason = _LATER[key]
            place = found.place.at(*path, key)
            problems.append(
                place.problem(reason) if reason else place.warning("this key is for readers; it has no effect")
            )
            del keys[key]
        if path:
            data["inputs"] = keys if isinstance(inputs, dict) else inputs
    if "inputs" not in found.data:
        data.pop("inputs", None)
    return data


def _task_graders(data: dict[str, Any], place: Position, suite: Suite, task: str) -> tuple[list[Grader], list[Problem]]:
    """Return the suite's graders a task gets, its own, and those of its expectations (decision 20a)."""
    problems: list[Problem] = []
    named: list[Grader] = []
    own: list[Grader] = []
    chooses = False
    expected = data.get("expected")
    lists: list[tuple[tuple[str, ...], Any]] = [(("graders",), data.get("graders"))]
    if isinstance(expected, dict):
        lists.append((("expected", "graders"), expected.get("graders")))
    by_name = {grader.name: grader for grader in suite.graders}
    for path, entries in lists:
        if entries is None:
            continue
        if not isinstance(entries, list) or not entries:
            problems.append(place.at(*path).problem(f"a list of graders is needed, found {what(entries)}"))
            continue
        for index, entry in enumerate(entries):
            here = place.at(*path, index)
            if isinstance(entry, str):
                chooses = True
                if entry in by_name:
                    named += [grader for grader in suite.graders if grader.name == entry]
                else:
                    problems.append(here.problem(f"unknown grader '{entry}'; {did_you_mean(entry, list(by_name))}"))
            else:
                grader, wrong = build_grader(entry, here, suite.folder, suite.forced)
                problems += wrong
                own += [grader] if grader else []
    if chooses and (dropped := [grader.name for grader in suite.graders if grader not in named]):
        note = f"task '{task}' names its graders, so these of the suite do not apply to it: {', '.join(dropped)}"
        problems.append(place.warning(note))
    if expected is not None:
        expectations, wrong = build_expected(expected, place.at("expected"), suite.folder, skill=suite.shape.skill)
        own += expectations
        problems += wrong
    return (named if chooses else list(suite.graders)) + own, problems


def _prompt(shape: TaskShape, found: WrittenTask, problems: list[Problem]) -> str | None:
    """Return the prompt as it is written; None where that is wrong, which is reported."""
    given = [text for text in (shape.prompt, shape.inputs.prompt, shape.inputs.prompt_file) if text is not None]
    if not given and shape.allow_empty_prompt:
        return ""
    if len(given) != 1:
        fact = "give one of inputs.prompt, inputs.prompt_file and prompt" if given else "'inputs.prompt' is missing"
        problems.append(found.place.at("inputs").problem(fact))
        return None
    if shape.inputs.prompt_file is None:
        return given[0]
    try:
        return SpecFolder(found.folder, found.folder).find(shape.inputs.prompt_file).read_text(encoding="utf-8")
    except (ValueError, OSError) as error:
        problems.append(found.place.at("inputs", "prompt_file").problem(str(error)))
        return None


def _filled(text: str, values: dict[str, str], place: Position, problems: list[Problem]) -> str:
    if missing := names_in(text) - set(values):
        listed = ", ".join(sorted(missing))
        problems.append(
            place.at("inputs", "prompt").problem(
                f"no value for {listed} in the prompt; {did_you_mean(min(missing), list(values))}"
            )
        )
    return fill(text, values)


def _files(shape: TaskShape, found: WrittenTask, suite: Suite, problems: list[Problem]) -> list[InputFile]:
    """Return what is laid into the workspace, each fixture found now."""
    files: list[InputFile] = []
    if not (shape.inputs.files or shape.inputs.context or shape.context_dir):
        return files
    try:
        root = suite.folder.find(shape.context_dir) if shape.context_dir else suite.folder.place("fixtures")
    except ValueError as error:
        problems.append(found.place.at("context_dir").problem(str(error)))
        return files
    for index, file in enumerate(shape.inputs.files):
        here = found.place.at("inputs", "files", index, "path")
        try:
            path = inner_path(file.path)
            if file.content is not None:
                files.append(InputFile(path=path, content=file.content))
            else:
                files.append(InputFile(path=path, source=str(_fixture(path, root))))
        except ValueError as error:
            problems.append(here.problem(str(error)))
    if "fixture" in shape.inputs.context:
        files += _context_fixture(shape.inputs.context["fixture"], found, suite.folder, problems)
    return files


def _fixture(path: str, root: Path) -> Path:
    """Return the fixture at a path below the fixture folder; raise ValueError when it is not there or leaves it."""
    source = SpecFolder(root, root).place(path)
    if not is_there(source):
        raise ValueError(f"no fixture '{path}' in {display_path(root)}")
    return source


def _context_fixture(value: Any, found: WrittenTask, folder: SpecFolder, problems: list[Problem]) -> list[InputFile]:
    """Return a file, or all that a folder holds, named by `inputs.context.fixture`."""
    here = found.place.at("inputs", "context", "fixture")
    if not isinstance(value, str):
        problems.append(here.problem(f"a path is needed, found {what(value)}"))
        return []
    try:
        source = folder.find(value)
    except ValueError as error:
        problems.append(here.problem(str(error)))
        return []
    return [InputFile(path="." if source.is_dir() else source.name, source=str(source))]


def _workdir(path: str, place: Position, problems: list[Problem]) -> str:
    try:
        return inner_path(path) if path and path != "." else ""
    except ValueError as error:
        problems.append(place.at("inputs", "workdir").problem(str(error)))
        return ""


_VARIABLE = re.compile(r"\{\{-?\s*\.Vars\.([A-Za-z_]\w*)\s*-?\}\}")
_NAME = re.compile(rf"\{{\{{([A-Za-z_][A-Za-z0-9_]*)\}}\}}|{_VARIABLE.pattern}")


def names_in(text: str) -> set[str]:
    """Return the names a text wants filled in: `{{name}}`, or `{{.Vars.name}}` as the original writes it."""
    return {name for pair in _NAME.findall(text) for name in pair if name}


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return the text with every `{{name}}` that has a value replaced, once: values are not expanded again."""
    return _NAME.sub(lambda found: values.get(found[1] or found[2], found[0]), text)


def variables_in(text: str) -> set[str]:
    """Return the names in the `{{.Vars.name}}` of a text that may hold other braces: a hook, a cell of a dataset."""
    return set(_VARIABLE.findall(text))


def fill_variables(text: str, values: Mapping[str, str]) -> str:
    """Return the text with every `{{.Vars.name}}` that has a value replaced, once."""
    return _VARIABLE.sub(lambda found: values.get(found[1], found[0]), text)


def values_of(task: Task, inputs: Mapping[str, str]) -> dict[str, str]:
    """Return the values for a task's variables: the suite's inputs, the task's context, its row of the dataset."""
    return {**inputs, **_texts_of(task.context), **_texts_of(task.metadata)}


def _texts_of(values: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in values.items() if isinstance(value, str | int | float)}


def _row_filled(value: Any, values: Mapping[str, str], place: Position, problems: list[Problem]) -> Any:
    """Return what a row of a dataset holds with its variables filled in; the prompts are filled with the others."""
    if isinstance(value, dict):
        for key, item in value.items():
            value[key] = _row_filled(item, values, place.at(key), problems)
    elif isinstance(value, list):
        return [_row_filled(item, values, place, problems) for item in value]
    elif isinstance(value, str) and (names := variables_in(value)):
        if missing := names - set(values):
            hint = did_you_mean(min(missing), list(values))
            problems.append(place.problem(f"no value for {', '.join(sorted(missing))}; {hint}"))
        return fill_variables(value, values)
    return value
