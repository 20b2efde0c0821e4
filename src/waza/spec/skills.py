"""Skills as the agentskills specification has them: where they stand, and what a SKILL.md consists of."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from waza.engines._skills import MARK, find_skills, skills_in
from waza.errors import Problem, SpecError, what
from waza.graders._skill import MAX_SKILL_BYTES, read_skill, use_for_phrases
from waza.sandbox.folders import SpecFolder, is_there
from waza.sandbox.texts import fold_case
from waza.sandbox.yaml12 import read_yaml
from waza.spec.places import Place
from waza.spec.project import shown
from waza.spec.shapes import TaskShape

SKILL_FOLDERS = ("skills", ".github/skills", ".claude/skills", ".agents/skills")
_HIDDEN_BUT_LOOKED_INTO = {".github", ".claude", ".agents"}
_NOT_LOOKED_INTO = {"node_modules", "runs", "site-packages", "__pycache__"}
_NOT_FOR = "do not use for:"
BYTES_PER_TOKEN = 4


class SkillFile(NamedTuple):
    """A SKILL.md: its front matter with places, and its body."""

    path: Path
    place: Place
    """Where the front matter's keys stand."""
    matter: dict[str, Any]
    body: str
    body_line: int
    """The line in which the body begins."""

    @property
    def name(self) -> str:
        """The name in the front matter; empty where there is none."""
        return self.text("name")

    @property
    def description(self) -> str:
        """The description; empty where there is none."""
        return self.text("description")

    def text(self, key: str) -> str:
        """Return a key of the front matter that is a text; empty where it is not."""
        value = self.matter.get(key)
        return value if isinstance(value, str) else ""


def find_skill(name: str, folder: SpecFolder, directories: Iterable[str], project_folder: str) -> Path | None:
    """Return the folder of a skill: in the suite's folders of skills, the project's, or above the eval file.

    The folder of the eval file and those above it may have another name than the SKILL.md in them: a project that is
    one skill may be checked out anywhere.
    """
    for place in _folders(folder, directories, project_folder):
        if is_there(place / name / MARK):
            return (place / name).resolve()
        if found := next((skill for skill in skills_in(place) if skill.name == name), None):
            return found.resolve()
    above = list(_above(folder))
    by_folder = (path for path in above if path.name == name)
    by_name = (path for path in above if _name_in(path) == name)
    return next((path.resolve() for path in (*by_folder, *by_name)), None)


def skill_names(folder: SpecFolder, directories: Iterable[str], project_folder: str) -> list[str]:
    """Return the skills that could be found, by name."""
    places = _folders(folder, directories, project_folder)
    above = {_name_in(path) or path.name for path in _above(folder)}
    return sorted({skill.name for place in places for skill in skills_in(place)} | above)


def _above(folder: SpecFolder) -> Iterator[Path]:
    """Yield the folders from the eval file's up to the project's root that hold a SKILL.md."""
    for path in (folder.base, *folder.base.parents):
        if path.is_relative_to(folder.root) and is_there(path / MARK):
            yield path


def _name_in(folder: Path) -> str:
    """Return the name that the SKILL.md in a folder gives itself; empty where it cannot be read."""
    try:
        return read_skill(folder / MARK).name
    except ValueError:
        return ""


def _folders(folder: SpecFolder, directories: Iterable[str], project_folder: str) -> list[Path]:
    """Return where skills are looked for: in the suite's folders of skills, then in the project's."""
    own = [folder.base / given for given in directories]
    return own + [folder.root / given for given in (*SKILL_FOLDERS, project_folder)]


def skills_below(folder: Path) -> Iterator[Path]:
    """Yield the folder of every skill in a project, sorted; hidden folders other than agents' own are left out."""
    for place, names, files in os.walk(folder):
        if MARK in files:
            names.clear()
            yield Path(place)
        elif "pyvenv.cfg" in files:
            names.clear()
        names[:] = sorted(name for name in names if _is_looked_into(name))


def _is_looked_into(name: str) -> bool:
    return name not in _NOT_LOOKED_INTO and (not name.startswith(".") or name in _HIDDEN_BUT_LOOKED_INTO)


def read_skill_file(path: Path) -> SkillFile:
    """Return a SKILL.md with the places of its keys; raise SpecError where it cannot be read or has no front matter."""
    name = shown(path)
    try:
        if path.stat().st_size > MAX_SKILL_BYTES:
            raise SpecError(Problem(f"has more than {MAX_SKILL_BYTES:,} bytes", name))
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(Problem(f"cannot be read: {error}", name)) from None
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        raise SpecError(
            Problem("begins without front matter: a line of '---', then `name:` and `description:`", name, 1, 1)
        )
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        raise SpecError(Problem("the front matter is never closed; end it with a line of '---'", name, 1, 1))
    matter = read_yaml("\n" + "\n".join(lines[1:end]), name, may_be_empty=True)
    if not isinstance(matter, dict):
        raise SpecError(Problem(f"the front matter is {what(matter)}; keys such as `name:` are needed", name, 1, 1))
    return SkillFile(path, Place(name, matter), matter, "\n".join(lines[end + 1 :]), end + 2)


def delivery_problems(task: TaskShape, place: Place, folder: SpecFolder) -> Iterator[Problem]:
    """Yield what is wrong with the skills and instructions that a task names."""
    for index, name in enumerate(task.skill_directories or ()):
        try:
            find_skills([name], folder)
        except ValueError as error:
            yield place.at("skill_directories", index).problem(str(error))
    for index, name in enumerate(task.instruction_files):
        try:
            folder.find(name).read_text(encoding="utf-8")
        except (ValueError, OSError) as error:
            yield place.at("instruction_files", index).problem(str(error))


def not_for_phrases(description: str) -> list[str]:
    """Return the phrases after `DO NOT USE FOR:`, found as those after `USE FOR:` are."""
    start = fold_case(description).find(_NOT_FOR)
    return use_for_phrases(f"USE FOR:{description[start + len(_NOT_FOR) :]}") if start >= 0 else []


def estimated_tokens(text: str) -> int:
    """Return about how many tokens a text has: one for every four bytes, as is usual for English prose."""
    return -(-len(text.encode()) // BYTES_PER_TOKEN)
