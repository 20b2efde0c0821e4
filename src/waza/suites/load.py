"""`eval.yaml` in, a checked suite out, or every mistake in it at once; suites that consist of trigger tests alone."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from waza.engines.base import ENGINES, Engine
from waza.errors import Problem, SpecError, did_you_mean
from waza.files.paths import SpecFolder, display_path
from waza.graders.base import Grader
from waza.model import Task
from waza.suites.advice import advise, resolved_metrics
from waza.suites.graders import build_grader, with_tool_names
from waza.suites.local_code import left_out, without_effect
from waza.suites.mocks import as_data, plain, read_commands, read_servers
from waza.suites.positions import (
    Model,
    Position,
    keys_of,
    parse,
    read_file,
    read_project,
    unknown_key,
    without_empty_choices,
)
from waza.suites.shapes import AgentShape, ConfigShape, EvalShape, HookShape, HooksShape, ProjectShape
from waza.suites.sources import source_of
from waza.suites.suite import EvalSpec, engine_keys
from waza.suites.tasks import (
    Suite,
    fill_variables,
    read_mocks,
    read_tasks,
    unused_scripts,
    values_of,
    variables_in,
)
from waza.suites.triggers import FILE as TRIGGERS
from waza.suites.triggers import (
    TriggerContext,
    TriggerFile,
    TriggerTests,
    adjacent_triggers,
    build_triggers,
    catalogue_files,
)

FILE = "eval.yaml"
_SPACED = re.compile(r"\{\{-?\s*\.Vars\.[^{}]*\}\}")
"""A variable, which may have spaces in its braces."""
EVALDECK_FILES = ("evaldeck.yaml", "evaldeck.yml")
NOT_READ = {
    "adversarial": "adversarial packs are no part of a run, and are not read; write their prompts as tasks",
}
"""Keys of the original that its own `run` does not read either."""


def load_spec(
    path: str | Path,
    *,
    update_snapshots: bool = False,
    trust: bool = False,
    allow_local_code: bool = False,
    needs_tasks: bool = True,
    only_look: bool = False,
) -> EvalSpec:
    """Return the checked suite at `path` (an eval file, or a folder that holds `eval.yaml`).

    Raises SpecError with every mistake; warnings and notes are in `notes`. With `update_snapshots`, `diff`
    graders write their snapshots instead of comparing. Python of the project is imported where the user trusts the
    folder (`waza trust`) or the caller does: `trust`, which was called `allow_local_code` before. A suite that needs
    it is refused elsewhere; with `only_look` it is loaded, and those graders decide nothing. A suite without tasks is
    refused unless it has trigger tests, or `needs_tasks` is false.
    """
    file = find_eval(path)
    forced = {"update_snapshots": True} if update_snapshots else {}
    spec, problems = read_spec(file, forced, trust=trust or allow_local_code, needs_tasks=needs_tasks)
    wrong = [problem for problem in problems if problem.severity == "error"]
    if not only_look:
        wrong += left_out(problems)
    if spec is None or wrong:
        raise SpecError(wrong)
    return spec


def find_eval(path: str | Path) -> Path:
    """Return the eval file meant by a path; raise SpecError when there is none."""
    file = Path(path)
    if file.is_dir():
        file = suite_in(file) or file / FILE
    if (file.parent / TRIGGERS).is_file() and (file.name == TRIGGERS or not file.is_file()):
        fact = "trigger tests are no eval file" if file.name == TRIGGERS else f"no such eval file, only a {TRIGGERS}"
        raise SpecError(Problem(f"{fact}; `waza trigger` runs them", display_path(file)))
    if not file.is_file():
        raise SpecError(Problem("no such eval file; `waza init` writes a first one", display_path(file)))
    return file.resolve()


def suite_in(folder: Path) -> Path | None:
    """Return the suite in a folder, if there is one: `eval.yaml`, else a project of evaldeck's."""
    return next((folder / name for name in (FILE, *EVALDECK_FILES) if (folder / name).is_file()), None)


def is_suite(path: Path) -> bool:
    """Say whether a path is an eval file, or a folder that holds one."""
    return path.suffix in (".yaml", ".yml") if path.is_file() else suite_in(path) is not None


def read_spec(
    file: Path,
    forced: Mapping[str, Any] | None = None,
    *,
    trust: bool = False,
    needs_tasks: bool = True,
) -> tuple[EvalSpec | None, list[Problem]]:
    """Return the suite in an eval file with every problem and note; None when it cannot be made sense of.

    `forced` options win over written ones in each grader that has them.
    """
    if file.name in EVALDECK_FILES:
        from waza.suites.evaldeck import read_evaldeck  # its 12 models take 15 ms, and most suites are not evaldeck's

        return read_evaldeck(file, trust=trust)
    try:
        place = read_file(file)
    except SpecError as error:
        return None, error.problems
    data = place.content
    project, problems = read_project(file.parent)
    folder = SpecFolder(file.parent, trust=trust)
    problems += without_effect(project, folder)
    shape, wrong = parse(EvalShape, plain(_without(data, NOT_READ)), place)
    problems += wrong
    problems += [
        place.at(key).problem(NOT_READ[key], "note") for key in NOT_READ if isinstance(data, dict) and key in data
    ]
    config, engine_options, wrong = _config(data, place, project)
    problems += wrong
    if not isinstance(data, dict):
        return None, _by_place(problems)
    shape = shape or readable(EvalShape, data)  # so that mistakes further down are reported too
    graders, wrong = _suite_graders(shape.graders, place, folder, forced)
    problems += wrong
    servers, wrong = read_servers(shape.mcp_mocks, place.at("mcp_mocks"), folder)
    commands, wrong_commands = read_commands(shape.command_mocks, place.at("command_mocks"), folder)
    problems += wrong + wrong_commands
    needs_tasks = needs_tasks and not (folder.base / TRIGGERS).is_file()
    suite = Suite(shape, config, place, folder, graders, forced or {}, servers, commands, needs_tasks)
    tasks, chosen, places, wrong = read_tasks(suite)
    problems += [*wrong, *check_hooks(shape, tasks, place, folder)]
    triggers, wrong = _triggers(suite, project, chosen)
    problems += wrong
    if not any(problem.severity == "error" for problem in problems):
        asked = triggers.tasks if triggers else []
        problems += unused_scripts(folder, [task.id for task in chain(tasks, asked)])
    spec = EvalSpec(
        file=file,
        folder=folder,
        name=shape.name or folder.base.name,
        config=config,
        tasks=tasks,
        graders=with_judges(with_sources(with_tool_names(chosen, config.tool_names), tasks, folder))
        | (triggers.graders if triggers else {}),
        engine_options=engine_options,
        description=shape.description,
        skill=shape.skill or (triggers.skills[0] if triggers else ""),
        version=shape.version,
        baseline=shape.baseline,
        hooks=shape.hooks,
        inputs=shape.inputs,
        metrics=resolved_metrics(shape.metrics, chosen, tasks),
        project=project,
        place=place,
        places=places,
        notes=[],
        triggers=triggers,
    )
    spec.notes.extend(problem for problem in problems if problem.severity != "error")
    advice = advise(spec, shape)
    spec.notes.extend(problem for problem in advice if problem.severity != "error")
    return spec, _by_place(problems + advice)


def _triggers(
    suite: Suite, project: ProjectShape, tasks: Mapping[str, Any]
) -> tuple[TriggerTests | None, list[Problem]]:
    """Return the trigger tests next to the eval file, if there are any."""
    if not (suite.folder.base / TRIGGERS).is_file():
        return None, []
    mock_programs = as_data(suite.servers, suite.commands)
    around = TriggerContext(suite.folder, suite.config, read_mocks(suite.folder, []), mock_programs=mock_programs)
    tests, problems = adjacent_triggers(suite.folder, around, set(tasks), project.paths.skills)
    if tests and suite.shape.skill and suite.shape.skill not in tests.skills:
        fact = f"the trigger tests next to it are about '{tests.skills[0]}', the suite is about '{suite.shape.skill}'"
        problems.append(suite.place.at("skill").warning(fact))
    return tests, problems


def readable(model: type[Model], data: Mapping[str, Any]) -> Model:
    """Return the keys of a broken mapping that make sense by themselves."""
    good = {}
    for key, value in data.items():
        try:
            model.model_validate({key: value})
        except ValidationError:
            continue
        good[key] = value
    try:
        return model.model_validate(good)
    except ValidationError:
        return model()  # two keys that do not go together


def _by_place(problems: list[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: (problem.file, problem.line, problem.column))


def _without(data: Any, keys: dict[str, str]) -> Any:
    """Return the mapping without some keys; anything else as it is."""
    if not isinstance(data, dict) or not any(key in data for key in keys):
        return data
    return {key: value for key, value in data.items() if key not in keys}


def _config(data: Any, place: Position, project: ProjectShape) -> tuple[ConfigShape, dict[str, Any], list[Problem]]:
    """Return the suite's settings with the project's defaults below them, and the keys that belong to engines."""
    written = data.get("config") if isinstance(data, dict) else None
    if not isinstance(written, dict):
        written = {}  # a wrong type is reported by the shape
    here = place.at("config")
    keys = _engine_keys(written)
    own = without_empty_choices(ConfigShape, written)
    own = {key: value for key, value in own.items() if key in keys_of(ConfigShape)}
    agent = without_empty_choices(AgentShape, written)
    agent = {key: value for key, value in agent.items() if key in keys_of(AgentShape)}
    options = {key: value for key, value in written.items() if any(key in names for names in keys.values())}
    known = [*keys_of(ConfigShape), *keys_of(AgentShape), *(key for names in keys.values() for key in names)]
    problems = [here.at(key).problem(unknown_key(key, known)) for key in written if key not in known]
    given = _defaults_below(own, project)
    config, wrong = parse(ConfigShape, given, here)
    config = config or readable(ConfigShape, given)
    problems += wrong
    _, wrong = parse(AgentShape, agent, here)
    problems += wrong
    return config, options, problems + _executor(own.get("executor"), agent, options, here)


def _engine_keys(written: dict[str, Any]) -> dict[str, list[str]]:
    """Return the keys of the engine that is named where they are enough, else of all: loading engines takes time."""
    name = written.get("executor")
    if isinstance(name, str) and name in ENGINES.built_in():
        keys = engine_keys(name)
        if all(key in (*keys_of(ConfigShape), *keys_of(AgentShape), *keys[name]) for key in written):
            return keys
    return engine_keys()


def project_defaults(project: ProjectShape) -> dict[str, Any]:
    """Return what a project says where a suite's `config:` does not."""
    defaults = project.defaults
    found = {"model": defaults.model, "judge_model": defaults.judge_model, "timeout_seconds": defaults.timeout}
    found |= {"parallel": defaults.parallel, "workers": defaults.workers}
    return {key: value for key, value in found.items() if value not in (None, "")}


def _defaults_below(own: dict[str, Any], project: ProjectShape) -> dict[str, Any]:
    """Return a suite's `config:` with the project's defaults for what it leaves out."""
    defaults = project_defaults(project)
    if "max_workers" in own:
        defaults.pop("workers", None)
    return defaults | own


def _executor(name: Any, agent: dict[str, Any], options: dict[str, Any], here: Position) -> list[Problem]:
    """Return what is wrong with the engine, and which keys it does not read."""
    if not isinstance(name, str):
        return []
    if not ENGINES.knows(name):
        return [here.at("executor").problem(f"unknown engine '{name}'; {did_you_mean(name, ENGINES.names())}")]
    cls: type[Engine] = ENGINES.load(name)
    ignored_keys = [key for key in dict.fromkeys((*agent, *options)) if key not in keys_of(cls)]
    problems = [here.at(key).warning(f"engine '{name}' does not read this key") for key in ignored_keys]
    if remark := cls.remark():
        problems.append(here.at("executor").problem(remark, "note"))
    own = {key: value for key, value in options.items() if key in keys_of(cls)}
    _, wrong = parse(cls, own, here)
    return problems + wrong


def _suite_graders(
    entries: list[Any], place: Position, folder: SpecFolder, forced: Mapping[str, Any] | None
) -> tuple[list[Grader], list[Problem]]:
    graders: list[Grader] = []
    problems: list[Problem] = []
    for index, entry in enumerate(entries):
        grader, wrong = build_grader(entry, place.at("graders", index), folder, forced)
        problems += wrong
        if grader:
            graders.append(grader)
    return graders, problems


def with_sources(
    graders: dict[str, list[Grader]], tasks: Iterable[Task], folder: SpecFolder
) -> dict[str, list[Grader]]:
    """Return each task's graders, where those that ask people know the source context that people see."""
    found = dict(graders)
    for task in tasks:
        if "source" in task.context and task.id in graders and (source := source_of(task, folder)):
            found[task.id] = [grader.with_source(source) for grader in graders[task.id]]
    return found


def with_judges(graders: dict[str, list[Grader]]) -> dict[str, list[Grader]]:
    """Return each task's graders, where those that measure another one know what it asks in this suite."""
    every = {id(grader): grader for listed in graders.values() for grader in listed}
    known = {key: one.among(every.values()) for key, one in every.items() if one.measured_grader}
    if not known:
        return graders
    return {task: [known.get(id(one), one) for one in listed] for task, listed in graders.items()}


def where_and_what(
    hook: HookShape, folder: SpecFolder, values: Mapping[str, str] | None = None
) -> tuple[Path, list[str]]:
    """Return the folder a hook runs in and its words; raise ValueError when either makes no sense.

    `{{.Vars.name}}` in a word becomes its value, which stays one word.
    """
    try:
        words = shlex.split(_SPACED.sub(lambda found: "".join(found[0].split()), hook.command))
    except ValueError as error:
        raise ValueError(f"the command cannot be split into words: {str(error).lower()}") from None
    words = [fill_variables(word, values or {}) for word in words]
    if not words:
        raise ValueError("the command is empty")
    where = folder.find(hook.working_directory) if hook.working_directory else folder.base
    if not where.is_dir():
        raise ValueError(f"'{hook.working_directory}' is not a folder")
    if "/" in words[0] and not Path(words[0]).is_absolute() and not (where / words[0]).exists():
        words[0] = str(folder.find(words[0]))
    return where, words


def check_hooks(shape: EvalShape, tasks: Sequence[Task], place: Position, folder: SpecFolder) -> Iterator[Problem]:
    """Yield what is wrong with the commands, and the variables in them that have no value."""
    for when in HooksShape.model_fields:
        for index, hook in enumerate(getattr(shape.hooks, when)):
            here = place.at("hooks", when, index, "command")
            tried = ((task.id, values_of(task, shape.inputs)) for task in tasks)
            is_of_task = when.endswith("_task") and variables_in(hook.command)
            for task, values in tried if is_of_task else [("", shape.inputs)]:
                if wrong := _hook_problem(hook, folder, values):
                    yield here.problem(wrong + (f" (task '{task}')" if task else ""))
                    break


def _hook_problem(hook: HookShape, folder: SpecFolder, values: Mapping[str, str]) -> str:
    """Return what is wrong with a command under these values; empty where nothing is."""
    if missing := variables_in(hook.command) - set(values):
        return f"no value for {', '.join(sorted(missing))} in the command; {did_you_mean(min(missing), list(values))}"
    try:
        where_and_what(hook, folder, values)
    except ValueError as error:
        return str(error)
    return ""


def suite_without_tasks(path: Path, *, trust: bool = False) -> EvalSpec | None:
    """Return a suite for the trigger tests at `path` where no eval file is next to them; None where one is.

    Raises SpecError with every mistake in them.
    """
    file = path if path.name == TRIGGERS else path / TRIGGERS
    if not file.is_file() or suite_in(file.parent):
        return None
    spec, problems = read_lone_triggers(file, trust=trust)
    if wrong := [problem for problem in problems if problem.severity == "error"]:
        raise SpecError(wrong)
    return spec


def read_lone_triggers(file: Path, *, trust: bool = False) -> tuple[EvalSpec | None, list[Problem]]:
    """Return a suite for trigger tests without an eval file, and every problem; None when they make no sense."""
    file = file.resolve()
    project, problems = read_project(file.parent)
    folder = SpecFolder(file.parent, trust=trust)
    config = ConfigShape.model_validate(project_defaults(project))
    mocks = read_mocks(folder, problems)
    tests, wrong = adjacent_triggers(folder, TriggerContext(folder, config, mocks), set(), project.paths.skills)
    problems += wrong
    if tests is None:
        return None, problems
    spec = EvalSpec(
        file=file,
        folder=folder,
        name=tests.skills[0],
        config=config,
        tasks=[],
        graders=tests.graders,
        skill=tests.skills[0],
        project=project,
        place=Position(display_path(file)),
        notes=[problem for problem in problems if problem.severity != "error"],
        triggers=tests,
    )
    return spec, problems


def catalogued(spec: EvalSpec, folder: Path) -> EvalSpec:
    """Return the suite with the trigger tests of every skill in a folder, and all those skills for its agent.

    Raises SpecError for every mistake in those tests, UsageError when there are none.
    """
    named = spec.folder.naming(folder)
    files, folders = catalogue_files(folder, named, spec.folder.base / TRIGGERS)
    mock_programs = spec.triggers.tasks[0].mocks if spec.triggers else None
    around = TriggerContext(named, spec.config, read_mocks(spec.folder, []), folders, mock_programs)
    tests = build_triggers(files, around, is_catalogue=True)
    here = Path(os.path.relpath(folder, spec.folder.base)).as_posix()
    given = [*spec.engine_options.get("skill_directories", spec.config.skill_directories), here]
    config = spec.config.model_copy(update={"skill_directories": given})
    kept = {key: value for key, value in spec.engine_options.items() if key != "inject_skill_body"}
    options = kept | {"skill_directories": given}
    changes: dict[str, Any] = {
        "config": config,
        "engine_options": options,
        "graders": spec.graders | tests.graders,
        "triggers": tests,
    }
    return replace(spec, folder=named, skill="", notes=[*spec.notes, *_left_out(spec, files)], **changes)


def _left_out(spec: EvalSpec, files: list[TriggerFile]) -> list[Problem]:
    """Return a warning if the trigger tests next to the eval file are not among those of the catalogue."""
    own = display_path(spec.folder.base / TRIGGERS)
    if spec.triggers is None or any(file.place.file == own for file in files):
        return []
    name = spec.triggers.skills[0]
    why = (
        "has tests in its own folder" if any(file.shape.skill == name for file in files) else "is not in the catalogue"
    )
    return [Position(own).warning(f"these trigger tests are left out: '{name}' {why}")]
