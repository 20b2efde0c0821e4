"""The skills that a suite gives to its agent: found before the first trial, copied into each trial's private home."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from waza.errors import EngineError
from waza.model import InputFile
from waza.sandbox.folders import SpecFolder, is_there
from waza.sandbox.room import lay_out

MARK = "SKILL.md"
_DEPTH = 4
"""How deep skills may stand in a folder of skills."""
_NOT_COPIED = {".git", "evals", "eval.yaml", "tasks", "trigger_tests.yaml", "mock.yaml", "runs"}
"""What stands in a skill's folder for those who test it: an agent would find the answers there."""


def find_skills(
    folders: Iterable[str], place: SpecFolder, also: Mapping[str, Path] | None = None, without: Iterable[str] = ()
) -> dict[str, Path]:
    """Return the skills in these folders and those of `also`, by name, without some of them (`*` means all).

    Raises ValueError when a folder is not there or holds no skill.
    """
    found: dict[str, Path] = {}
    for name in folders:
        folder = place.find(name)
        held: dict[str, Path] = {}
        for skill in skills_in(folder):
            if held.setdefault(skill.name, skill) != skill:
                both = " and ".join(str(path.relative_to(folder)) for path in (held[skill.name], skill))
                raise ValueError(f"'{name}' holds two skills called '{skill.name}': {both}; rename one")
        if not held:
            raise ValueError(f"'{name}' holds no skill: no {MARK} stands in it or in a folder of it")
        found = held | found
    found |= {name: path for name, path in (also or {}).items() if name not in found}
    left_out = set(without)
    return {} if "*" in left_out else {name: path for name, path in found.items() if name not in left_out}


def copy_skills(skills: Mapping[str, Path], place: Path, suite: Path) -> None:
    """Copy skills into the folder where an agent looks for them, without the suite that tests them.

    Raises EngineError when one cannot be copied.
    """
    try:
        files = [
            InputFile(path=f"{name}/{part.name}", source=str(part))
            for name, folder in skills.items()
            for part in parts_of(folder, suite)
        ]
        if files:
            place.mkdir(parents=True, exist_ok=True)
            lay_out(files, place)
    except OSError as error:
        raise EngineError(f"skills cannot be copied: {error}", is_started=False) from None


def parts_of(folder: Path, suite: Path) -> list[Path]:
    """Return what stands in a skill's folder for the agent: not the suite that tests it."""
    parts = sorted(folder.iterdir())
    return [part for part in parts if part.name not in _NOT_COPIED and not suite.is_relative_to(part)]


def skills_in(folder: Path, depth: int = _DEPTH) -> Iterator[Path]:
    """Yield the skills in a folder of skills, sorted: itself, its folders, and theirs where they only group others."""
    if is_there(folder / MARK):
        yield folder
    elif depth and folder.is_dir():
        for child in sorted(folder.iterdir()):
            if not child.name.startswith(".") and child.is_dir():
                yield from skills_in(child, depth - 1)
