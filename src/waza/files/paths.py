"""Paths written in a spec: where they start, and that they never leave the project."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath

from waza.files.trust import is_trusted

PROJECT_FILE = ".waza.yaml"
_REPOSITORY = ".git"
PROJECT_MARKS = (PROJECT_FILE, _REPOSITORY)
SKILL_FOLDERS = ("skills", ".github/skills", ".claude/skills", ".agents/skills", "plugin/skills", "plugins/*/skills")
"""Where a repository has its skills; `*` is any folder."""
_SKILL = "SKILL.md"
_EVALS = "evals"
_LEVELS_ABOVE = 4
"""How far above an eval file a folder without `.waza.yaml` and `.git` is recognised as its repository."""


class SpecFolder:
    """The eval file's folder and the project's root above it: where relative paths of a spec are looked up.

    With `trust` the caller trusts the project for this call; `named` is a path that the caller named, not the spec: it
    may be anywhere.
    """

    __slots__ = ("_may_import", "_repository", "base", "named", "root", "trust")

    def __init__(self, base: str | Path = ".", root: str | Path | None = None, *, trust: bool = False) -> None:
        self.base = Path(base).resolve()
        self.trust = trust
        self._may_import: bool | None = True if trust else None
        self._repository: Path | None = None
        self.named: Path | None = None
        self.root = Path(root).resolve() if root is not None else project_root(self.base)

    @property
    def may_import(self) -> bool:
        """Whether Python of this project may be imported: the caller or the user trusts its root."""
        if self._may_import is None:
            self._may_import = is_trusted(self.root)
        return self._may_import

    @property
    def repository(self) -> Path:
        """The root of the repository, in which skills are looked up: it may be above the project's root."""
        if self._repository is None:
            self._repository = repository_root(self.root)
        return self._repository

    def __repr__(self) -> str:
        return f"SpecFolder({str(self.base)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SpecFolder) and (self.base, self.root) == (other.base, other.root)

    def __hash__(self) -> int:
        return hash((self.base, self.root))

    def naming(self, path: Path) -> SpecFolder:
        """Return the same folder for a caller who named a path of their own."""
        folder = SpecFolder(self.base, self.root, trust=self.trust)
        folder.named = path.resolve()
        return folder

    def find(self, path: str) -> Path:
        """Return the existing file or folder at `path`: next to the eval file first, then at the project's root.

        Raises ValueError when it leaves the project or does not exist.
        """
        for start in dict.fromkeys((self.base, self.root)):
            candidate = self.place(path, start)
            if is_there(candidate):
                return candidate
        where = "next to the eval file" + (" or at the project's root" if self.root != self.base else "")
        raise ValueError(f"'{path[:200]}' is not there; looked {where}")

    def find_skill_folder(self, path: str) -> Path:
        """Return the existing folder of skills at `path`: as `find` does, then at the repository's root.

        Raises ValueError when it leaves the repository or does not exist.
        """
        starts = dict.fromkeys((self.base, self.root, self.repository))
        outside = 0
        for start in starts:
            try:
                candidate = self.place(path, start, self.repository)
            except ValueError:
                outside += 1
                continue
            if is_there(candidate):
                return candidate
        if outside == len(starts):
            return self.place(path, within=self.repository)
        where = "next to the eval file" + (" or at the repository's root" if len(starts) > 1 else "")
        raise ValueError(f"'{path[:200]}' is not there; looked {where}")

    def place(self, path: str, start: Path | None = None, within: Path | None = None) -> Path:
        """Return the absolute path of `path` below `start` (the eval file's folder), links resolved.

        Raises ValueError when that is outside the project's root, or of the folder `within`.
        """
        if not path or "\0" in path:
            raise ValueError("a path must not be empty or contain NUL")
        try:
            candidate = ((start or self.base) / path).resolve()
        except (OSError, RuntimeError) as error:
            raise ValueError(f"'{path[:60]}' cannot be looked up: {error}") from None
        if not candidate.is_relative_to(within or self.root) and candidate != self.named:
            raise ValueError(f"'{path}' leaves the project's folder")
        return candidate


def is_there(path: Path) -> bool:
    """Return whether a path exists; a name that cannot exist does not."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def project_root(base: Path) -> Path:
    """Return the nearest folder at or above `base` that has `.waza.yaml` or `.git`, else `base` itself."""
    for folder in (base, *base.parents):
        if any((folder / mark).exists() for mark in PROJECT_MARKS):
            return folder
    return base


def repository_root(root: Path) -> Path:
    """Return the nearest folder at or above a project's root that has `.git`.

    Without one it is a root with `.waza.yaml`, else the nearest folder that looks like a repository: it holds skills
    or this `evals` folder, or it is a skill itself; for a skill among others the folder that holds them all.
    """
    for folder in (root, *root.parents):
        if (folder / _REPOSITORY).exists():
            return folder
    if (root / PROJECT_FILE).exists():
        return root
    near = [root, *(one for one in root.parents[:_LEVELS_ABOVE] if not _is_shared(one))]
    found = next((one for one in near if _looks_like_repository(one, root)), root)
    return next((one for one in near if any(found.is_relative_to(place) for place in skill_folders(one))), found)


def _looks_like_repository(folder: Path, root: Path) -> bool:
    is_above_evals = folder != root and (folder / _EVALS) in (root, *root.parents)
    return is_above_evals or is_there(folder / _SKILL) or any(skill_folders(folder))


def _is_shared(folder: Path) -> bool:
    """Say whether a folder is the user's home, above it, or a temporary one: skills there are of other projects."""
    return Path.home().is_relative_to(folder) or bool(folder.stat().st_mode & stat.S_ISVTX)


def skill_folders(folder: Path) -> Iterator[Path]:
    """Yield the folders of skills in a repository."""
    for name in SKILL_FOLDERS:
        yield from (path for path in sorted(folder.glob(name)) if path.is_dir())


def inner_path(path: str) -> str:
    """Return a workspace-relative path in normal form (`sub/../a.txt` is `a.txt`).

    Raises ValueError when it is absolute, leaves the workspace, is the workspace itself or cannot name a file.
    """
    if not path or "\0" in path:
        raise ValueError("a workspace path must not be empty or contain NUL")
    if PurePosixPath(path).is_absolute() or PureWindowsPath(path).anchor or path.startswith("~"):
        raise ValueError(f"'{path}' is not relative to the workspace")
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if not parts:
                raise ValueError(f"'{path}' leaves the workspace")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    if not parts:
        raise ValueError(f"'{path}' is the workspace itself, not a path in it")
    return "/".join(parts)


def display_path(path: Path) -> str:
    """Return a path relative to the current folder where it is below it, as a person would type it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
