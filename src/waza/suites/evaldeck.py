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
from waza.files.paths import SpecFolder, display_path
from waza.graders.base import Grader
from waza.graders.composed import AfterTurnGrader
from waza.model import Task
from waza.options import Options
from waza.suites.evaldeck_cases import DEFAULT_MODEL, Case, case_files, documents, read_case
from waza.suites.graders import after_turn, weightless
from waza.suites.judges import build_judge, judge_settings
from waza.suites.local_code import code_notes, without_effect
from waza.suites.positions import Position, parse, read_file, read_project
from waza.suites.shapes import ConfigShape, PathsShape, ProjectShape, Timeout, Words
from waza.suites.suite import EvalSpec

_NEW = ("output_equals", "output_matches", "min_steps")
"""Expectations that evaldeck reads and does not check."""


def read_evaldeck(file: Path, *, trust: bool = False) -> tuple[EvalSpec | None, list[Problem]]:
    """Return the suite an evaldeck project is, with every problem and note; None when it cannot be made sense of."""
    try:
        place = read_file(file)
    except SpecError as error:
        return None, error.problems
    project, problems = read_project(file.parent)
    shape, wrong = parse(EvaldeckShape, place.content, place)
    problems += wrong
    if shape is None:
        return None, problems
    folder = SpecFolder(file.parent, trust=trust)
    problems += without_effect(project, folder)
    problems += agent_problems(shape.agent, place.at("agent"))
    for key in shape.execution.model_fields_set & shape.defaults.model_fields_set:
        if getattr(shape.execution, key) != getattr(shape.defaults, key):
            fact = f"'{key}' is in 'execution' and in 'defaults', its older name; keep one of them"
            problems.append(place.at("defaults", key).problem(fact))
    cases = list(_cases(shape, folder, place, problems))
    spec = _spec(file, shape, folder, project, place, cases, problems)
    if settings := judge_settings(project, spec.config):
        problems += build_judge(settings, place.at("graders", "llm"), folder)[1]
    problems += code_notes(place, folder, spec.local_code, spec.imported)
    spec.notes.extend(problem for problem in problems if problem.severity != "error")
    return spec, problems


def agent_problems(agent: EvaldeckAgentShape, place: Position) -> Iterator[Problem]:
    """Yield what is wrong with the agent's keys."""
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
    place: Position,
    cases: list[tuple[Case, list[str]]],
    problems: list[Problem],
) -> EvalSpec:
    has_judge = project.judge is not None
    tasks, graders, places = _tasks(shape, cases, place, problems)
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
        config=_config(shape, cases, has_judge, place, problems),
        tasks=tasks,
        graders=graders,
        engine_options=options,
        project=project,
        place=place,
        places=places,
    )


def _config(
    shape: EvaldeckShape,
    cases: list[tuple[Case, list[str]]],
    has_judge: bool,
    place: Position,
    problems: list[Problem],
) -> ConfigShape:
    run = shape.settings
    retries = max([run.retries, *(case.shape.retries or 0 for case, _ in cases)])
    if retries:
        note = "only agents that could not run are tried again; a failed case stays failed"
        problems.append(place.at("execution", "retries").problem(note, "note"))
    thresholds = shape.thresholds
    is_missing = not has_judge and any(_is_judged(case) for case, _ in cases)
    judge = _judge(shape.graders, place.at("graders"), problems, is_missing=is_missing)
    given: dict[str, Any] = {
        "executor": "python" if shape.agent.module else None,
        "timeout_seconds": run.timeout,
        "parallel": run.workers != 1,
        "workers": run.workers,
        "max_attempts": retries + 1,
        "min_pass_rate": thresholds.min_pass_rate or None,
        "max_failures": thresholds.max_failures,
        "judge": judge,
    }
    return ConfigShape.model_validate({key: value for key, value in given.items() if value is not None})


def _judge(judge: JudgeShape, place: Position, problems: list[Problem], *, is_missing: bool) -> dict[str, str] | None:
    """Return the settings of the judge, evaldeck's own where one is needed and none is named."""
    if judge.timeout is not None:
        problems.append(place.at("timeout").warning("this key has no effect"))
    if not judge.settings and is_missing:
        note = f"no judge is named, so {DEFAULT_MODEL} judges, as in evaldeck; graders.llm.model names another"
        problems.append(place.problem(note, "note"))
        return {"model": DEFAULT_MODEL}
    return judge.settings or None


def _is_judged(case: Case) -> bool:
    return any(grader.asks() is not None for _, grader in case.graders)


def _inner(graders: list[Grader]) -> Iterator[Grader]:
    for grader in graders:
        yield grader.grader if isinstance(grader, AfterTurnGrader) else grader


def _tasks(
    shape: EvaldeckShape, cases: list[tuple[Case, list[str]]], place: Position, problems: list[Problem]
) -> tuple[list[Task], dict[str, list[Grader]], dict[str, Position]]:
    """Return the tasks, their graders, and where they are written.

    Cases of the same name in different suites get the suite's before theirs.
    """
    run = shape.settings
    names = Counter(case.shape.name for case, _ in cases)
    tasks: list[Task] = []
    graders: dict[str, list[Grader]] = {}
    places: dict[str, Position] = {}
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
        places[identity] = case.place.at("name")
        graders[identity] = [_at_turn(grader, turn, len(case.prompts)) for turn, grader in case.graders]
        problems += weightless(graders[identity], identity, places[identity])
    if not tasks and not any(problem.severity == "error" for problem in problems):
        where = ", ".join(suite.path for suite in shape.suites) or shape.test_dir
        fact = f"no test file in '{where}'; a project needs at least one case"
        problems.append(place.at("suites" if shape.suites else "test_dir").problem(fact))
    return tasks, graders, places


def _at_turn(grader: Grader, turn: int, turns: int) -> Grader:
    """Return a grader of one turn; as in evaldeck, the first turn that fails is the last one."""
    if turns == 1:
        return grader
    return after_turn(grader, turn, turns, is_alone=True, stops=True)


def _cases(
    shape: EvaldeckShape, folder: SpecFolder, place: Position, problems: list[Problem]
) -> Iterator[tuple[Case, list[str]]]:
    """Yield every case of the project with the tags of its suite."""
    for file, tags in _files(shape, folder, place, problems):
        name = display_path(file)
        try:
            found, wrong = documents(file.read_bytes(), name)
        except OSError as error:
            problems.append(Problem(f"cannot be read: {error.strerror}", name))
            continue
        problems += wrong
        for document in found:
            case, wrong = read_case(document, Position(name, document), folder)
            problems += wrong
            if case:
                yield case, tags


def _files(
    shape: EvaldeckShape, folder: SpecFolder, place: Position, problems: list[Problem]
) -> Iterator[tuple[Path, list[str]]]:
    """Yield each test file with the tags of its suite."""
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


class EvaldeckAgentShape(Options):
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
    timeout: Timeout = None
    """Seconds an agent may work on one case."""
    retries: Annotated[int, Field(ge=0)] = 0
    """How often an agent that could not run is started again."""


class ThresholdShape(Options):
    """When the run as a whole passes."""

    min_pass_rate: Annotated[float, Field(ge=0, le=1)] | None = None
    """The share of cases that must pass; all of them if left out or 0."""
    max_failures: Annotated[int, Field(ge=0)] | None = None
    """How many cases may fail."""


class LlmShape(Options):
    """A judge."""

    model: Words | None = None
    """The model that judges; `gpt-4o-mini` if no judge is named at all."""
    provider: Words | None = None
    """Who serves it: `openai`, `anthropic`; derived from the model's name if left out."""


class JudgeShape(Options):
    """Who judges, where a case needs a judge."""

    llm: LlmShape = LlmShape.model_construct()
    """The judge."""
    llm_model: Words | None = None
    """The older name of `llm.model`."""
    llm_provider: Words | None = None
    """The older name of `llm.provider`."""
    timeout: Annotated[float, Field(ge=0)] | None = None
    """Not used."""

    @property
    def settings(self) -> dict[str, str]:
        """The judge's settings, in waza's words."""
        named = {"type": self.llm.provider or self.llm_provider, "model": self.llm.model or self.llm_model}
        return {key: value for key, value in named.items() if value}


class EvaldeckShape(Options):
    """The keys of `evaldeck.yaml`."""

    version: int = 1
    """The format's version."""
    agent: EvaldeckAgentShape = EvaldeckAgentShape.model_construct()
    """The agent under test."""
    test_dir: Words = "tests/evals"
    """The folder of test files, where no suites are named."""
    suites: list[SuiteShape] = []
    """Folders of test files with names."""
    execution: ExecutionShape = ExecutionShape.model_construct()
    """How cases are run."""
    defaults: ExecutionShape = ExecutionShape.model_construct()
    """The older name of `execution`."""
    graders: JudgeShape = JudgeShape.model_construct()
    """The judge."""
    thresholds: ThresholdShape = ThresholdShape.model_construct()
    """When the run as a whole passes."""
    output_dir: str | None = None
    """Where run folders are made; `runs` if left out."""

    @property
    def settings(self) -> ExecutionShape:
        """How cases are run: `execution`, and of `defaults` what it leaves open."""
        older = self.defaults.model_dump(include=self.defaults.model_fields_set)
        newer = self.execution.model_dump(include=self.execution.model_fields_set)
        return ExecutionShape.model_validate(older | newer)
