"""`.waza.yaml`: what holds for every suite of a project."""

from __future__ import annotations

from pathlib import Path

from waza.errors import Problem, SpecError, UsageError
from waza.files.paths import PROJECT_FILE, SpecFolder, display_path, inner_path, project_root
from waza.runs.remote_store import checked_url, is_url
from waza.suites.positions import Position, parse
from waza.suites.shapes import ProjectShape
from waza.untrusted.yaml import read_yaml

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
