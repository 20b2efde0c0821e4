"""A checked suite: everything a run needs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pydantic import ValidationError

from waza.compact import CompactDict, CompactList, CompactView
from waza.engines.base import ENGINES, Engine
from waza.engines.base import WRAPPER as ENGINE_WRAPPER
from waza.engines.function_calls import not_imported
from waza.errors import Problem, SpecError, UsageError, did_you_mean
from waza.files.paths import SpecFolder
from waza.graders.base import Grader
from waza.model import JSON, Task
from waza.runs.grader_facts import grader_facts
from waza.runs.partial import FILES
from waza.skills import find_skills, parts_of
from waza.suites.judges import build_judge, judge_settings, jurors_of, models_asked, own_judge, settings_place
from waza.suites.local_code import NOT_CHECKED, came_from, local_files
from waza.suites.mocks import refused, session_problems
from waza.suites.positions import Position, keys_of, problems_of
from waza.suites.shapes import ConfigShape, HooksShape, MetricShape, ProjectShape
from waza.suites.skills import find_skill
from waza.suites.triggers import FILE as TRIGGERS
from waza.suites.triggers import TriggerTests

if TYPE_CHECKING:  # judges take long to load, and most runs ask none
    from waza.judges.base import Judge

NO_JUDGE = "graders need a judge, and none is configured: name one in `judge:` of .waza.yaml or in config.judge"
NO_ENGINE = "no engine is named"


@dataclass(frozen=True)
class EvalSpec:
    """A suite as its author meant it: tasks, the graders of each, and how to run them."""

    file: Path
    folder: SpecFolder
    name: str
    config: ConfigShape
    tasks: Sequence[Task]
    graders: dict[str, list[Grader]]
    """By task id: the suite's graders, then the task's own, then what it expects."""
    engine_options: dict[str, Any] = field(default_factory=dict)
    """Keys of `config:` that belong to engines."""
    description: str = ""
    skill: str = ""
    version: str = ""
    baseline: bool = False
    """Whether the suite asks for a control arm without its skill."""
    hooks: HooksShape = field(default_factory=HooksShape)
    inputs: Mapping[str, str] = field(default_factory=dict)
    """The suite's values for variables, which hooks may use."""
    metrics: list[MetricShape] = field(default_factory=list)
    project: ProjectShape = field(default_factory=ProjectShape)
    place: Position = field(default_factory=Position)
    places: Mapping[str, Position] = field(default_factory=dict)
    """By task id: where the task is written."""
    notes: list[Problem] = field(default_factory=list)
    """What the author should know, though nothing is wrong."""
    triggers: TriggerTests | None = None
    """The prompts of `trigger_tests.yaml`, run with the tasks; their graders are among `graders`."""

    @property
    def local_code(self) -> list[str]:
        """The project's Python files whose code runs when this suite is graded."""
        return local_files(grader for graders in self.graders.values() for grader in graders)

    @property
    def imported(self) -> list[str]:
        """The Python of the project that is imported when this suite is run: graders' files, and the agent."""
        agent = self._named_engine()
        return self.local_code + ([agent.imports()] if agent and agent.imports() else [])

    @property
    def judged(self) -> dict[str, list[str]]:
        """By task id: what a judge is asked by, as hashes of rubrics, where a grader of the task needs a judge."""
        found: dict[str, list[str]] = {}
        for task in self.tasks:
            asked = [hashes for grader in self.graders[task.id] if (hashes := grader.asks()) is not None]
            if asked:
                found[task.id] = [one for hashes in asked for one in hashes]
        return found

    @cached_property
    def distinct_graders(self) -> list[Grader]:
        """The graders of its tasks, each once."""
        lists = {id(graders): graders for task in self.tasks for graders in [self.graders[task.id]]}
        return list({id(grader): grader for graders in lists.values() for grader in graders}.values())

    @property
    def asking(self) -> list[Grader]:
        """The graders that ask a judge, each once; not those that ask the agent itself."""
        return [one for one in self.distinct_graders if one.asks() is not None and not one.continues]

    def judge(self, *, model: str = "", cache: Path | None = None) -> Judge | None:
        """Return the judge that graders of this suite ask; None where none of them needs one.

        Raises SpecError when one is needed and none is configured, or its settings are wrong.
        """
        if not self.asking:
            return None
        for juror in jurors_of(self.asking):
            if juror.judge is not None:
                juror.judge.ready()
        judge = self._built_judge(model)
        judge.ready()
        return judge.for_run(cache)

    def _built_judge(self, model: str) -> Judge:
        """Return the judge that the settings describe; raise SpecError when there are none or they are wrong."""
        settings = judge_settings(self.project, self.config)
        if not settings and not model and (own := own_judge(self.asking)):
            return own
        if not settings and not model:
            raise SpecError(self.place.problem(f"{NO_JUDGE}; `waza list judges` names the kinds"))
        place = settings_place(self.project, self.config, self.place, self.folder)
        judge, problems = build_judge(settings | ({"model": model} if model else {}), place, self.folder)
        if judge is None or problems:
            raise SpecError(problems)
        if judge.needs_model and not judge.model and any(not model for model in models_asked(self.asking)):
            raise SpecError(place.problem("the judge has no model; name one in judge.model, or with --judge-model"))
        return judge

    def judge_problems(self, model: str = "") -> list[Problem]:
        """Return what keeps the suite's judge from being asked; what is only so on this machine is a warning."""
        if not self.asking:
            return []
        try:
            judges = [self._built_judge(model)]
        except SpecError as error:
            is_unset = not judge_settings(self.project, self.config)
            return [problem._replace(severity="warning") if is_unset else problem for problem in error.problems]
        judges += [juror.judge for juror in jurors_of(self.asking) if juror.judge is not None]
        problems: list[Problem] = []
        for judge in judges:
            try:
                judge.ready()
            except SpecError as error:
                problems += [self.place.warning(problem.message) for problem in error.problems]
        return list(dict.fromkeys(problems))

    @property
    def skill_folder(self) -> Path | None:
        """The folder of the suite's skill; None if it names none, or it is not found."""
        if not self.skill:
            return None
        return find_skill(self.skill, self.folder, self.config.skill_directories, self.project.paths.skills)

    def engine(self, name: str | None = None, *, only_look: bool = False) -> Engine:
        """Return the engine to run with: `name`, else the suite's, else the project's.

        Raises UsageError when none is named or known, SpecError when its options are wrong, or its agent is Python of a
        folder that is not trusted. With `only_look` such an agent is not imported.
        """
        chosen = name or self.config.executor or self.project.defaults.engine
        if not chosen:
            known = ", ".join(ENGINES.names())
            raise UsageError(f"no engine: name one with --engine or config.executor; known: {known}")
        engine = self._built(chosen)
        imports = not (only_look and self.not_checked(engine))
        if unfit := self._unfit(chosen, engine, imports=imports):
            raise SpecError([problem._replace(severity="error") for problem in unfit])
        return engine

    def _unfit(self, name: str, engine: Engine, *, imports: bool) -> list[Problem]:
        """Return why an engine cannot run this suite; what is only so on this machine is a warning."""
        problems = list(refused(name, engine, self.tasks, self.place))
        problems += self.triggers.refused(name) if self.triggers else []
        graders = self.distinct_graders
        problems += session_problems(name, {"": graders}, self.place, is_run=True)
        problems += [self.place.warning(f"grader '{one.name}': {fact}") for one in graders if (fact := one.unready())]
        return problems + [self._placed(problem) for problem in engine.refusals(self.tasks, imports=imports)]

    def engine_problems(self, name: str | None = None, *, imports: bool = True) -> tuple[Engine | None, list[Problem]]:
        """Return the engine, None where there is none to be had, and what keeps it from running this suite.

        Without `imports` no code of the project is run. Raises UsageError for a `name` that is no engine.
        """
        chosen = name or self.config.executor or self.project.defaults.engine
        here = self.place.at("config", "executor")
        if not chosen:
            step = "`waza run` needs config.executor or --engine"
            if self.file.name == TRIGGERS:
                step = "`waza trigger` needs --engine, or `defaults.engine` in .waza.yaml"
            return None, [here.problem(f"{NO_ENGINE}; {step}", "note")]
        if not ENGINES.knows(chosen):
            fact = f"unknown engine '{chosen}'; {did_you_mean(chosen, ENGINES.names())}"
            if name:
                raise UsageError(fact)
            return None, [here.problem(fact)]
        try:
            engine = self._built(chosen)
        except SpecError as error:
            return None, [*error.problems, *(self.triggers.refused(chosen) if self.triggers else ())]
        problems = self._unfit(chosen, engine, imports=imports)
        if engine.program and (fact := engine.missing()):
            problems.append(here.problem(fact, "note"))
        if fact := engine.missing_credentials(self.tasks):
            problems.append(here.problem(fact, "note"))
        return engine, problems

    def missing(self) -> list[Problem]:
        """Return what to say of an agent's program that is not on this machine: a warning if the suite names it."""
        engine = self._named_engine()
        if engine is None or not (fact := engine.missing()):
            return []
        if engine.program:
            return [self.place.at("config", "executor").problem(fact, "note")]
        return [self.place.at("config", "command").warning(fact)]

    def not_checked(self, engine: Engine | None = None) -> list[Problem]:
        """Return that an engine's agent, by default that of the suite's, is not imported in a folder not trusted."""
        engine = engine or self._named_engine()
        if engine is None or not engine.imports() or self.folder.may_import:
            return []
        return [self.place.at("config", "agent").problem(not_imported(engine.imports(), self.folder), NOT_CHECKED)]

    def _named_engine(self) -> Engine | None:
        """Return the engine that the suite or its project names; None where it is unknown or its options are wrong."""
        name = self.config.executor or self.project.defaults.engine
        if not name or not ENGINES.knows(name):
            return None
        try:
            return self._built(name)
        except SpecError:
            return None  # which is reported with the suite's other mistakes

    def _built(self, name: str) -> Engine:
        """Return the engine with the suite's options; raise SpecError when they are wrong."""
        cls: type[Engine] = ENGINES.load(name)
        own = {key: value for key, value in self.engine_options.items() if key in keys_of(cls)}
        try:
            given = {"folder": self.folder, "skill": self.skill, "skill_folder": self.skill_folder}
            return cls.model_validate(own | given)
        except ValidationError as error:
            locate = lambda path: self.place.at("config", *path)  # noqa: E731
            raise SpecError(problems_of(error, cls, own, locate)) from None

    def _placed(self, problem: Problem) -> Problem:
        """Return an engine's problem at the place of the key it names."""
        if problem.file:
            return problem
        return self.place.at(*problem.path.split(".")).problem(problem.message, problem.severity)

    def select(self, names: Iterable[str] = (), tags: Iterable[str] = ()) -> EvalSpec:
        """Return the suite with the tasks that fit any of the globs `names` (id or name) and any of `tags`, alone.

        Raises UsageError when that leaves none.
        """
        names, tags = list(names), list(tags)
        chosen = (
            task
            for task in self.tasks
            if (not names or any(fnmatchcase(word, glob) for glob in names for word in (task.id, task.name)))
            and (not tags or any(fnmatchcase(tag, glob) for glob in tags for tag in task.tags))
        )
        tasks = CompactList(chosen, Task)
        if not tasks:
            asked = ", ".join([*names, *(f"tag {tag}" for tag in tags)])
            raise UsageError(f"no task fits {asked}; tasks: {_some(task.id for task in self.tasks)}")
        return replace(self, tasks=tasks, triggers=None if names or tags else self.triggers)

    def with_config(self, **changes: Any) -> EvalSpec:
        """Return the suite with some of its `config:` replaced."""
        return replace(self, config=self.config.model_copy(update=changes))

    def as_data(self) -> dict[str, JSON]:
        """Return the resolved suite as JSON-ready data: enough to read and grade a run again without the files."""
        graders = self._graders_as_data()
        return {
            "name": self.name,
            "description": self.description,
            "skill": self.skill,
            "version": self.version,
            "config": self.config.model_dump(mode="json", exclude_defaults=False)
            | self.engine_options
            | self._skill_content(),
            "tasks": CompactList(map(self._task_data, self.tasks)),
            "graders": graders,
            "metrics": [metric.model_dump(exclude_none=True) for metric in self.metrics if metric.enabled],
            "hooks": self.hooks.model_dump(exclude_defaults=True),
            "places": self._places_as_data(graders),
        } | ({"triggers": self.triggers.as_data()} if self.triggers else {})

    def grader_facts(self) -> dict[str, list[str]]:
        """Return what is true of its graders, by their type."""
        return grader_facts((one.type_name(), one) for graders in self.graders.values() for one in graders)

    def _graders_as_data(self) -> CompactDict[JSON]:
        """Return, by task id, its graders; those of the suite are written out once and shared."""
        known: dict[int, JSON] = {}
        asked = self.triggers.tasks if self.triggers else []
        graders = {task.id: self.graders[task.id] for task in chain(self.tasks, asked)}
        for grader in (grader for each in graders.values() for grader in each):
            if id(grader) not in known:
                known[id(grader)] = grader_as_data(grader)
        lists = {id(each): each for each in graders.values()}
        written = {key: [known[id(grader)] for grader in each] for key, each in lists.items()}
        return CompactDict((task_id, written[id(each)]) for task_id, each in graders.items())

    def _places_as_data(self, like: CompactDict[JSON]) -> CompactDict[JSON]:
        """Return, by task id, the line a task is written in, and its file as seen from the eval file's folder."""
        base = self.folder.base.resolve()

        @lru_cache(maxsize=8)
        def seen_from_base(file: str) -> str:
            return os.path.relpath(os.path.realpath(file), base).replace(os.sep, "/")

        placed = ((task.id, self.places[task.id]) for task in self.tasks if task.id in self.places)
        return CompactDict(((key, {"file": seen_from_base(at.file), "line": at.line}) for key, at in placed), like)

    def _skill_content(self) -> dict[str, JSON]:
        """Return a hash of each part of a skill and of each instruction file, so that a changed one is noticed."""
        files = self.engine_options.get("instruction_files") or []
        own = {self.skill: self.skill_folder} if self.skill_folder else {}
        return self._contents(self.config.skill_directories, files, own)

    def _delivered(self, task: Task) -> dict[str, JSON]:
        """Return the same for what a task names itself."""
        if not task.skill_directories and not task.instruction_files:
            return {}
        return self._contents(task.skill_directories or [], task.instruction_files, {})

    def _task_data(self, task: Task) -> dict[str, JSON]:
        data, delivered = _task_as_data(task), self._delivered(task)
        return data | delivered if delivered else data

    def _contents(self, folders: Iterable[str], files: Iterable[str], also: dict[str, Path]) -> dict[str, JSON]:
        try:
            found = find_skills(folders, self.folder, also, self.engine_options.get("disabled_skills") or ())
            texts = [f"{name} sha256:{_content(self.folder.find(name))}" for name in files]
        except ValueError:
            return {}  # an engine that needs them refuses to start
        skills = {
            name: [f"{part.name} sha256:{_content(part)}" for part in parts_of(path, self.folder.base)]
            for name, path in found.items()
        }
        return ({"skill_content": skills} if skills else {}) | ({"instruction_content": texts} if texts else {})


def _task_as_data(task: Task) -> dict[str, JSON]:
    """Return a task with the content of its fixtures instead of their paths, so that a moved project is the same."""
    data: dict[str, JSON] = msgspec.to_builtins(task)
    for entry, file in zip(data.get("files", ()), task.files, strict=True) if task.files else ():
        if file.source is not None:
            entry["source"] = f"sha256:{_content(Path(file.source))}"
    return data


def _content(path: Path) -> str:
    """Return a hash of a file, or of every file below a folder."""
    digest = hashlib.sha256()
    files = [path] if path.is_file() else sorted(child for child in path.rglob("*") if child.is_file())
    for file in files:
        digest.update(f"{file.relative_to(path).as_posix()}\0{file.stat().st_size}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def grader_as_data(grader: Grader) -> dict[str, JSON]:
    """Return a grader as the mapping it could be loaded from."""
    config = grader.model_dump(mode="json", exclude={"name", "weight", "folder"}, exclude_defaults=True, by_alias=True)
    code = [code._asdict() for code in came_from(grader)]
    extra: dict[str, JSON] = {"source": code} if code else {}
    if files := grader.reads():
        extra[FILES] = files
    return {"type": grader.type_name(), "name": grader.name, "weight": grader.weight, "config": config} | extra


def fingerprint(data: JSON) -> str:
    """Return a short name for data that changes with anything in it; parts that are `Raw` are encoded already."""
    return hashlib.sha256(encoded(data)).hexdigest()[:16]


def fingerprint_of_spec(spec: dict[str, JSON]) -> str:
    """Return `fingerprint(spec)`; parts with an entry for each task are encoded by these."""
    digest = hashlib.sha256()
    for number, key in enumerate(sorted(spec)):
        digest.update((b"," if number else b"{") + bytes(encoded(key)) + b":")
        for piece in _pieces(spec[key]):
            digest.update(piece)
    digest.update(b"}" if spec else b"{}")
    return digest.hexdigest()[:16]


def _pieces(part: JSON) -> Iterator[bytes]:
    if isinstance(part, CompactList | CompactView):
        yield b"["
        for number, entry in enumerate(part):
            yield (b"," if number else b"") + bytes(encoded(entry))
        yield b"]"
    elif isinstance(part, CompactDict):
        yield b"{"
        for number, key in enumerate(sorted(part)):
            yield (b"," if number else b"") + bytes(encoded(key)) + b":" + bytes(encoded(part[key]))
        yield b"}"
    else:
        yield bytes(encoded(part))


def encoded(data: JSON) -> msgspec.Raw:
    """Return data as the text that fingerprints are made from: the same for the same data, however it was made."""
    return msgspec.Raw(_DETERMINISTIC.encode(data))


_DETERMINISTIC = msgspec.json.Encoder(order="deterministic")


def engine_keys(*names: str) -> dict[str, list[str]]:
    """Return, for these engines or for each of ours, the keys of `config:` it reads."""
    return {
        name: [key for key in keys_of(ENGINES.load(name)) if key not in ENGINE_WRAPPER]
        for name in names or ENGINES.built_in()
    }


def _some(words: Iterable[str]) -> str:
    listed = list(words)
    return ", ".join(listed[:10]) + (f" and {len(listed) - 10} more" if len(listed) > 10 else "")
