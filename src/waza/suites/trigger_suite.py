"""Suites that consist of trigger tests: without an eval file, or with all skills of a catalogue."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from waza.errors import Problem, SpecError
from waza.files.paths import SpecFolder, display_path
from waza.suites.load import project_defaults, suite_in
from waza.suites.positions import Position
from waza.suites.project import read_project
from waza.suites.shapes import ConfigShape
from waza.suites.suite import EvalSpec
from waza.suites.tasks import read_mocks
from waza.suites.triggers import FILE, TriggerContext, TriggerFile, adjacent_triggers, build_triggers, catalogue_files


def suite_without_tasks(path: Path, *, trust: bool = False) -> EvalSpec | None:
    """Return a suite for the trigger tests at `path` where no eval file is next to them; None where one is.

    Raises SpecError with every mistake in them.
    """
    file = path if path.name == FILE else path / FILE
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
    files, folders = catalogue_files(folder, named, spec.folder.base / FILE)
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
    own = display_path(spec.folder.base / FILE)
    if spec.triggers is None or any(file.place.file == own for file in files):
        return []
    name = spec.triggers.skills[0]
    why = (
        "has tests in its own folder" if any(file.shape.skill == name for file in files) else "is not in the catalogue"
    )
    return [Position(own).warning(f"these trigger tests are left out: '{name}' {why}")]
