"""Where the skill under test stands."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from waza.engines._skills import MARK
from waza.sandbox.folders import SpecFolder, is_there

SKILL_FOLDERS = ("skills", ".github/skills", ".claude/skills", ".agents/skills")


def find_skill(name: str, folder: SpecFolder, directories: Iterable[str], project_folder: str) -> Path | None:
    """Return the folder of a skill: in the suite's folders of skills, the project's, or above the eval file."""
    folders = [folder.base / given for given in directories]
    folders += [folder.root / given for given in (*SKILL_FOLDERS, project_folder)]
    above = [path for path in (folder.base, *folder.base.parents) if path.is_relative_to(folder.root)]
    places = [place / name for place in folders] + [path for path in above if path.name == name]
    return next((place.resolve() for place in places if is_there(place / MARK)), None)
