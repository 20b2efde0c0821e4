"""An evaldeck project (`evaldeck.yaml` and its test files) as a suite of ours.

Every key is enforced or refused. Where evaldeck's own behaviour and its documentation differ, the documentation is
followed: recursive folders, limits that hold, thresholds that may relax a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from waza.errors import Problem, SpecError
from waza.graders._base import Grader
from waza.graders._turn import AfterTurnGrader
from waza.model import Task
from waza.options import Options
from waza.sandbox.folders import SpecFolder
from waza.sandbox.yaml12 import read_yaml
from waza.spec.evaldeck_cases import Case, case_files, documents, read_case
from waza.spec.places import Place, parse
from waza.spec.project import read_project, shown
from waza.spec.shapes import ConfigShape, PathsShape, ProjectShape, Seconds, Words
from waza.spec.suite import EvalSpec

FILES = ("evaldeck.yaml", "evaldeck.yml")
_NEW = ("output_equals", "output_matches", "min_steps")
"""Expectations that evaldeck reads and does not check."""


class AgentShape(Options):
    """The agent under test."""

    module: Words | None = None
    """The Python module of the agent; the project's folder can be imported from."""
    function: Words | None = None
    """The function in it: `(input)` or `(input, history)`, plain or async."""
    class_name: str | None = None
    """Not supported: name a function."""
    framework: str | None = None
    """Not supported: name a function."""


class SuiteShape(Options):
    """A folder of test files."""

    name: Words
    """Its cases get this name as a tag."""
    path: Words
    """The folder, searched through and through, or a file."""
    tags: list[Words] = []
    """Tags of all its cases."""


class ExecutionShape(Options):
    """How cases are run."""

    workers: Annotated[int, Field(ge=0)] = 0
    """How many run at once; 0 leaves it to waza."""
    timeout: Seconds | None = None
    """Seconds an agent may work on one case."""
    retries: Annotated[int, Field(ge=0)] = 0
    """How often an agent that could not run is started again."""


class ThresholdShape(Options):
    """When the run as a whole passes."""

    min_pass_rate: Annotated[float, Field(ge=0, le=1)] | None = None
    """The share of cases that must pass; all of them if left out or 0."""
    max_failures: Annotated[int, Field(ge=0)] | None = None
    """How many cases may fail."""


class EvaldeckShape(Options):
    """The keys of `evaldeck.yaml`."""

    version: int = 1
    """The format's version."""
    agent: AgentShape = AgentShape()
    """The agent under test."""
    test_dir: Words = "tests/evals"
    """The folder of test files, where no suites are named."""
    suites: list[SuiteShape] = []
    """Folders of test files with names."""
    execution: ExecutionShape = ExecutionShape()
    """How cases are run."""
    defaults: ExecutionShape = ExecutionShape()
    """The older name of `execution`."""
    graders: dict[str, Any] = {}
    """The judge's model: `llm: {model: …}` or `llm_model`."""
    thresholds: ThresholdShape = ThresholdShape()
    """When the run as a whole passes."""
    output_dir: str | None = None
    """Where run folders are made; `runs` if left out."""


def read_evaldeck(file: Path, *, allow_local_code: bool = False) -> tuple[EvalSpec | None, list[Problem]]:
    """Return the suite an evaldeck project is, with every problem and note; None when it cannot be made sense of."""
    name = shown(file)
    try:
        data = read_yaml(file.read_bytes(), name)
    except SpecError as error:
        return None, error.problems
    except OSError as error:
        return None, [Problem(f"cannot be read: {error.strerror}", name)]
    place = Place(name, data)
    project, problems = read_project(file.parent)
    shape, wrong = parse(EvaldeckShape, data, place)
    problems += wrong
    if shape is None:
        return None, problems
    folder = SpecFolder(file.parent, may_run_code=allow_local_code or project.allow_local_code)
    problems += _agent_problems(shape.agent, place.at("agent"))
    cases = list(_cases(shape, folder, place, problems))
    spec = _spec(file, shape, folder, project, place, cases, problems)
    problems += [place.problem(f"runs code of this project: {path}", "note") for path in spec.local_code]
    spec.notes.extend(problem for problem in problems if problem.severity != "error")
    return spec, problems


def _agent_problems(agent: AgentShape, place: Place) -> Iterator[Problem]:
    for key in ("class_name", "framework"):
        if getattr(agent, key):
            yield place.at(key).problem(f"'{key}' is not supported; name a function that calls your agent")
    if bool(agent.module) != bool(agent.function):
        yield place.problem("an agent is a 'module' and a 'function'; one of them is missing")


def _spec(
    file: Path,
    shape: EvaldeckShape,
    folder: SpecFolder,
    project: ProjectShape,
    place: Place,
    cases: list[tuple[Case, list[str]]],
    problems: list[Problem],
) -> EvalSpec:
    tasks, graders = _tasks(shape, cases, problems)
    enforced = sorted({grader.name for found in graders.values() for grader in _inner(found)} & set(_NEW))
    if enforced:
        problems.append(place.problem(f"enforced here, ignored by evaldeck: {', '.join(enforced)}", "note"))
    if shape.output_dir:
        paths = project.paths.model_copy(update={"results": shape.output_dir})
        project = project.model_copy(update={"paths": PathsShape.model_validate(paths.model_dump())})
    agent = shape.agent
    options = {"agent": f"{agent.module}:{agent.function}", "takes": "history"} if agent.module else {}
    return EvalSpec(
        file=file,
        folder=folder,
        name=folder.base.name,
        config=_config(shape, cases, place, problems),
        tasks=tasks,
        graders=graders,
        engine_options=options,
        project=project,
        place=place,
    )


def _config(
    shape: EvaldeckShape, cases: list[tuple[Case, list[str]]], place: Place, problems: list[Problem]
) -> ConfigShape:
    run = shape.execution if "execution" in shape.model_fields_set else shape.defaults
    retries = max([run.retries, *(case.shape.retries or 0 for case, _ in cases)])
    if retries:
        note = "only agents that could not run are tried again; a failed case stays failed"
        problems.append(place.at("execution", "retries").problem(note, "note"))
    thresholds = shape.thresholds
    given: dict[str, Any] = {
        "executor": "python" if shape.agent.module else None,
        "timeout_seconds": run.timeout,
        "parallel": run.workers != 1,
        "workers": run.workers,
        "max_attempts": retries + 1,
        "min_pass_rate": thresholds.min_pass_rate or None,
        "max_failures": thresholds.max_failures,
        "judge_model": _judge_model(shape.graders, place.at("graders"), problems),
    }
    return ConfigShape.model_validate({key: value for key, value in given.items() if value is not None})


def _judge_model(graders: dict[str, Any], place: Place, problems: list[Problem]) -> str:
    llm = graders.get("llm") if isinstance(graders.get("llm"), dict) else {}
    found = llm.get("model", graders.get("llm_model", "")) if llm is not None else ""
    for key in graders:
        if key not in ("llm", "llm_model", "llm_provider", "timeout"):
            problems.append(place.at(key).problem(f"unknown key '{key}'; known: llm, llm_model"))
        elif key in ("llm_provider", "timeout"):
            problems.append(place.at(key).warning("this key has no effect"))
    return found if isinstance(found, str) else ""


def _inner(graders: list[Grader]) -> Iterator[Grader]:
    for grader in graders:
        yield grader.grader if isinstance(grader, AfterTurnGrader) else grader


def _tasks(
    shape: EvaldeckShape, cases: list[tuple[Case, list[str]]], problems: list[Problem]
) -> tuple[list[Task], dict[str, list[Grader]]]:
    """Return the tasks and their graders; cases of the same name in different suites get the suite's before theirs."""
    run = shape.execution if "execution" in shape.model_fields_set else shape.defaults
    names = Counter(case.shape.name for case, _ in cases)
    tasks: list[Task] = []
    graders: dict[str, list[Grader]] = {}
    for case, tags in cases:
        name = case.shape.name
        identity = f"{tags[0]}/{name}" if names[name] > 1 and tags else name
        if identity in graders:
            problems.append(case.place.at("name").problem(f"case '{identity}' is there twice; names are unique"))
            continue
        tasks.append(
            Task(
                id=identity,
                name=name,
                description=case.shape.description or "",
                prompt=case.prompts[0],
                follow_up_prompts=case.prompts[1:],
                tags=list(dict.fromkeys([*tags, *case.shape.tags])),
                timeout_s=case.shape.timeout or run.timeout or ConfigShape().timeout_seconds,
            )
        )
        graders[identity] = [_at_turn(grader, turn, len(case.prompts)) for turn, grader in case.graders]
    if not tasks and not any(problem.severity == "error" for problem in problems):
        problems.append(Problem(f"no test file in '{shape.test_dir}'; a suite needs at least one case"))
    return tasks, graders


def _at_turn(grader: Grader, turn: int, turns: int) -> Grader:
    if turns == 1:
        return grader
    return AfterTurnGrader(name=f"{grader.name}@{turn}", weight=grader.weight, grader=grader, turn=turn, is_alone=True)


def _cases(
    shape: EvaldeckShape, folder: SpecFolder, place: Place, problems: list[Problem]
) -> Iterator[tuple[Case, list[str]]]:
    """Yield every case of the project with the tags of its suite."""
    for file, tags in _files(shape, folder, place, problems):
        name = shown(file)
        try:
            found, wrong = documents(file.read_bytes(), name)
        except OSError as error:
            problems.append(Problem(f"cannot be read: {error.strerror}", name))
            continue
        problems += wrong
        for document in found:
            case, wrong = read_case(document, Place(name, document), folder)
            problems += wrong
            if case:
                yield case, tags


def _files(
    shape: EvaldeckShape, folder: SpecFolder, place: Place, problems: list[Problem]
) -> Iterator[tuple[Path, list[str]]]:
    """Yield each test file with the tags of the suite it stands in."""
    entries = [
        (suite.path, [suite.name, *suite.tags], place.at("suites", index, "path"))
        for index, suite in enumerate(shape.suites)
    ]
    for path, tags, here in entries or [(shape.test_dir, [], place.at("test_dir"))]:
        try:
            found = folder.find(path)
        except ValueError as error:
            problems.append(here.problem(str(error)))
            continue
        for file in case_files(found):
            below = file.relative_to(found).parts[:-1] if not tags else ()
            yield file, tags or list(below[:1])
