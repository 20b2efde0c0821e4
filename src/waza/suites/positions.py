"""The position of a value in a file, the message for each error that pydantic finds there, and reading `.waza.yaml`."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from waza.errors import ArgumentError, Problem, SpecError, UsageError, did_you_mean, nearest, validation_fact, what
from waza.files.paths import PROJECT_FILE, SpecFolder, display_path, inner_path, project_root
from waza.runs.remote_store import checked_url, is_url
from waza.suites.shapes import ProjectShape
from waza.untrusted.patterns import Pattern
from waza.untrusted.yaml import mark_of, read_yaml

Model = TypeVar("Model", bound=BaseModel)


class Position(NamedTuple):
    """A value in a file: the file's name, its whole content and the path to the value."""

    file: str = ""
    content: Any = None
    path: tuple[str | int, ...] = ()

    def at(self, *steps: str | int) -> Position:
        """Return the place some steps further in."""
        return self._replace(path=self.path + steps)

    def without_content(self) -> Position:
        """Return the same line and column, without the file's content, which may be large."""
        return Position(self.file, mark_of(self.content, self.path))

    @property
    def line(self) -> int:
        """Its line."""
        return mark_of(self.content, self.path)[0]

    def problem(self, message: str, severity: str = "error") -> Problem:
        """Return a problem at this position."""
        line, column = mark_of(self.content, self.path) if self.file else (0, 0)
        return Problem(message, self.file, line, column, dotted(self.path), severity)

    def warning(self, message: str) -> Problem:
        """Return a warning at this position."""
        return self.problem(message, "warning")


def dotted(path: tuple[str | int, ...]) -> str:
    """Return a path as people write it: `graders[1].config`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def parse(model: type[Model], data: Any, place: Position) -> tuple[Model | None, list[Problem]]:
    """Return `data` as the model, or None with every problem found."""
    if not isinstance(data, dict):
        return None, [place.problem(f"a mapping of keys is needed, found {what(data)}")]
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        return None, problems_of(error, model, data, lambda path: place.at(*path))


class Checked(BaseModel):
    """A model for callers from Python: its constructor refuses a wrong argument with the sentence of a wrong key."""

    model_config = ConfigDict(defer_build=True)

    def __init__(self, /, **given: Any) -> None:
        try:
            super().__init__(**given)
        except ValidationError as error:
            cls = type(self)
            problems = problems_of(error, cls, given, lambda path: Position(path=(cls.__name__, *path)))
            raise ArgumentError(problems) from None

    # Models within others are then validated without this constructor, so that their positions are reported too.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


def problems_of(
    error: ValidationError, model: type[BaseModel], data: Any, locate: Callable[[tuple[str | int, ...]], Position]
) -> list[Problem]:
    """Return one problem per mistake, unknown keys with the nearest known one; `locate` gives the place of a path."""
    problems: list[Problem] = []
    suggested: set[tuple[str | int, ...]] = set()
    for item in sorted(error.errors(include_url=False), key=lambda item: item["type"] != "extra_forbidden"):
        path = _path_in(data, item["loc"], item["type"])
        if item["type"] == "extra_forbidden":
            known = keys_of(_model_at(model, path[:-1]) or model)
            if suggestion := nearest(str(path[-1]), known):
                suggested.add((*path[:-1], suggestion))
            problems.append(locate(path).problem(unknown_key(str(path[-1]), known)))
        elif item["type"] != "missing":
            problems.append(locate(path).problem(validation_fact(item)))
        elif path not in suggested:
            problems.append(locate(path).problem(f"'{path[-1]}' is missing"))
    return problems


def unknown_key(key: str, known: list[str]) -> str:
    """Return the message about an unknown key."""
    return f"unknown key '{key}'; {did_you_mean(key, known)}"


@cache
def keys_of(model: type[BaseModel]) -> list[str]:
    """Return the keys an author may write for a model."""
    own = [info.alias or name for name, info in model.model_fields.items()]
    return own + list(getattr(model, "SHORT_FORMS", ()))


def without_empty_choices(model: type[BaseModel], given: dict[str, Any]) -> dict[str, Any]:
    """Return the keys without those that choose by an empty text: `mode: ""` is the same as leaving the key out."""
    if "" not in given.values():
        return given
    return {key: value for key, value in given.items() if value != "" or key not in _choices(model)}


@cache
def _choices(model: type[BaseModel]) -> set[str]:
    """Return the keys of a model whose value is one of a few words."""
    fields = model.model_fields.items()
    return {info.alias or name for name, info in fields if "" not in (words := _words(info.annotation)) and words}


def _words(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    unions = (Union, types.UnionType, Annotated)
    return [word for part in get_args(annotation) for word in _words(part)] if get_origin(annotation) in unions else []


def doubled_backslashes(
    model: BaseModel, data: Any, locate: Callable[[tuple[str | int, ...]], Position]
) -> list[Problem]:
    """Return a warning for each pattern that is read with single backslashes in place of the doubled ones written."""
    read = {pattern.source: pattern.meant for pattern in _patterns(model) if pattern.meant != pattern.source}
    message = (
        "the backslashes of '{}' are doubled; it is read as '{}'; YAML's single quotes and blocks need no doubling"
    )
    return [
        locate(path).warning(message.format(text, read[text]))
        for path, text in (_texts(data) if read else ())
        if text in read
    ]


def _patterns(value: Any) -> Iterator[Pattern]:
    """Yield every pattern in a model's options."""
    if isinstance(value, Pattern):
        yield value
    elif isinstance(value, BaseModel):
        for name in option_fields(type(value)):
            yield from _patterns(getattr(value, name))
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _patterns(item)


@cache
def option_fields(cls: type[BaseModel]) -> list[str]:
    """Return the fields of a model that may hold patterns or further models: not plain texts, numbers and truths."""
    plain = (str, int, float, bool, list[str], SpecFolder)
    return [name for name, info in cls.model_fields.items() if info.annotation not in plain]


def _texts(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield every text in what an author wrote, with the path to it."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, list | dict):
        for step, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _texts(item, (*path, step))


def unmarked(value: Any) -> Any:
    """Return plain dicts and lists instead of those that know their place in a file; some libraries take no others."""
    if isinstance(value, dict):
        return {key: unmarked(item) for key, item in value.items()}
    return [unmarked(item) for item in value] if isinstance(value, list) else value


def _path_in(data: Any, loc: tuple[int | str, ...], kind: str) -> tuple[str | int, ...]:
    """Return the part of pydantic's location that is a path in the data; names of union members fall out."""
    path: list[str | int] = []
    for index, step in enumerate(loc):
        in_list = isinstance(data, list) and isinstance(step, int) and step < len(data)
        if in_list or (isinstance(data, dict) and step in data):
            data = data[step]
        elif not (kind == "missing" and index == len(loc) - 1 and isinstance(data, dict)):
            continue
        path.append(step)
    return tuple(path)


def _model_at(model: type[BaseModel], path: tuple[str | int, ...]) -> type[BaseModel] | None:
    """Return the model that describes the mapping at `path`, following annotations."""
    annotation: Any = model
    for step in path:
        if isinstance(step, int):
            continue
        owner = next(iter(_models_in(annotation)), None)
        field = next((f for name, f in owner.model_fields.items() if step in (name, f.alias)), None) if owner else None
        if field is not None:
            annotation = field.annotation
    return next(iter(_models_in(annotation)), None)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in (Union, types.UnionType, list, dict, tuple) or get_args(annotation):
        for part in get_args(annotation):
            yield from _models_in(part)


_UNUSED = ("files", "cache", "server", "dev", "tokens", "storage", "registries")


def read_project(start: Path) -> tuple[ProjectShape, list[Problem]]:
    """Return the project's settings for a folder in it, with every problem and note."""
    file = project_root(start) / PROJECT_FILE
    if not file.is_file():
        return ProjectShape(), []
    try:
        data = read_yaml(file.read_bytes(), display_path(file), may_be_empty=True)
    except SpecError as error:
        return ProjectShape(), error.problems
    if data is None:
        return ProjectShape(), []
    place = Position(display_path(file), data)
    project, problems = parse(ProjectShape, data, place)
    if project and project.paths.results is not None:
        try:
            if is_url(project.paths.results):
                checked_url(project.paths.results)
            else:
                inner_path(project.paths.results)
                SpecFolder(file.parent, file.parent).place(project.paths.results)
        except (ValueError, UsageError) as error:
            problems.append(place.at("paths", "results").problem(str(error).replace("workspace", "project")))
            project = None
    return project or ProjectShape(), problems


def unused_keys(project: ProjectShape) -> list[str]:
    """Return the keys that only the original reads."""
    timeout = ["graders.programTimeout"] if project.graders.program_timeout is not None else []
    return [key for key in _UNUSED if getattr(project, key)] + timeout


def read_file(file: Path) -> Position:
    """Return what a YAML file holds, with its places; raise SpecError when it cannot be read."""
    name = display_path(file)
    try:
        return Position(name, read_yaml(file.read_bytes(), name))
    except OSError as error:
        raise SpecError(Problem(f"cannot be read: {error.strerror}", name)) from None
