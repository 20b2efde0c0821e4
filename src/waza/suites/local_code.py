"""Python of the project that is imported into waza: graders such as `type: ./graders/mine.py`.

Only in a folder that the user trusts. Elsewhere a grader is replaced by one that decides nothing, and is reported as
not checked; commands that would need it refuse to start.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from waza.engines.function_calls import describe_error, not_imported
from waza.errors import Problem, Undecidable, did_you_mean
from waza.files.paths import PROJECT_FILE, SpecFolder, display_path
from waza.files.trust import changes_in, command_for
from waza.graders.base import Grader
from waza.model import Check, Trace
from waza.suites.positions import Position
from waza.suites.shapes import ProjectShape

NOT_CHECKED = "not checked"
"""The severity of what was left out because the folder is not trusted; commands that run the suite refuse it."""


class LocalCode(NamedTuple):
    """The file a grader came from."""

    path: str
    digest: str
    """Changes with anything in the file."""


_CAME_FROM: dict[type[Grader], LocalCode] = {}


def is_local(kind: str) -> bool:
    """Say whether a grader's type is a Python file, or a file and a name in it."""
    return kind.partition(".py:")[0].endswith(".py") or ".py:" in kind


class NotImportedGrader(Grader):
    """Decide nothing: the Python file of a grader is not imported, because its folder is not trusted."""

    file: str
    """The file, as the suite names it."""

    def checks(self, trace: Trace) -> Iterable[Check]:
        """Raise Undecidable with the reason."""
        raise Undecidable(not_imported(self.file, self.folder))


def not_imported_grader(
    kind: str, data: dict[str, Any], place: Position, folder: SpecFolder
) -> tuple[Grader | None, list[Problem]]:
    """Return a placeholder for a grader whose file may not be imported, and the note that it was not checked."""
    file, _ = _parts(kind)
    try:
        folder.find(file)
        options = {key: data[key] for key in ("name", "weight") if key in data}
        grader = NotImportedGrader.model_validate({"name": file} | options | {"file": file, "folder": folder})
    except ValueError as error:
        return None, [place.at("type").problem(str(error).splitlines()[0])]
    return grader, [place.at("type").problem(not_imported(file, folder), NOT_CHECKED)]


def left_out(problems: Iterable[Problem]) -> list[Problem]:
    """Return what was not checked, as the errors it is for whoever needs it."""
    return [problem._replace(severity="error") for problem in problems if problem.severity == NOT_CHECKED]


def _parts(kind: str) -> tuple[str, str]:
    """Return the file and the name in it, if one is given."""
    file, colon, name = kind.partition(".py:")
    return file + (".py" if colon else ""), name


def load_local(kind: str, folder: SpecFolder) -> type[Grader]:
    """Return the grader in a file (`./mine.py`, or `./mine.py:name` where it holds several).

    Raises ValueError with a sentence when the folder is not trusted, or there is no such grader.
    """
    file, name = _parts(kind)
    path = folder.find(file)
    if not folder.may_import:
        raise ValueError(not_imported(file, folder))
    try:
        code = path.read_bytes()
    except OSError as error:
        raise ValueError(f"'{file}' cannot be read: {error.strerror}") from None
    digest = hashlib.sha256(str(path).encode() + b"\0" + code).hexdigest()[:16]
    found = _graders_in(_module(path, digest, folder))
    if not found:
        raise ValueError(f"'{file}' holds no grader: a subclass of waza.Grader, or a function marked @waza.grader")
    if name and name not in found:
        raise ValueError(f"'{file}' holds no grader '{name}'; {did_you_mean(name, list(found))}")
    if not name and len(found) > 1:
        raise ValueError(f"'{file}' holds several graders; name one, such as {file}:{next(iter(found))}")
    cls = found[name] if name else next(iter(found.values()))
    _CAME_FROM[cls] = LocalCode(path.relative_to(folder.root).as_posix(), digest)
    return cls


def came_from(grader: Grader) -> Iterator[LocalCode]:
    """Yield the project's files a grader, and those it is made of, came from."""
    if code := _CAME_FROM.get(type(grader)):
        yield code
    for value in vars(grader).values():
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, Grader):
                yield from came_from(part)


def local_files(graders: Iterable[Grader]) -> list[str]:
    """Return the project's files whose code runs when these graders do."""
    return sorted({code.path for grader in graders for code in came_from(grader)})


def code_notes(place: Position, folder: SpecFolder, files: Sequence[str], imported: Sequence[str]) -> Iterator[Problem]:
    """Yield what to know about the Python that a suite imports: the graders' files, and what changed since trust."""
    for file in files:
        yield place.problem(f"runs code of this project: {file}", "note")
    if imported and folder.may_import and (fact := changes_told(folder)):
        yield place.problem(fact, "note")


def changes_told(folder: SpecFolder) -> str:
    """Return which importable files changed since the user trusted the folder; empty if none, or for `--trust`."""
    changes = None if folder.trust else changes_in(folder.root)
    if changes is None or not any(changes):
        return ""
    parts = [f"{kind} {_some(names)}" for kind, names in zip(changes._fields, changes, strict=True) if names]
    return f"Python files are not as they were when {folder.root} was trusted: {'; '.join(parts)}; {_AGAIN}"


_AGAIN = "`waza trust` records them as they are now"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def without_effect(project: ProjectShape, folder: SpecFolder) -> Iterator[Problem]:
    """Yield that `allow_local_code: true` in `.waza.yaml` trusts nothing: a repository cannot consent for itself."""
    if not project.allow_local_code:
        return
    file = display_path(folder.root / PROJECT_FILE)
    if folder.may_import:
        yield Problem("has no effect: this folder is trusted by its user; remove it", file, 0, 0, _KEY, "note")
    else:
        fact = f"has no effect: only its user can trust a folder, with: {command_for(folder.root)}"
        yield Problem(fact, file, 0, 0, _KEY, "warning")


_KEY = "allow_local_code"


def _module(path: Path, digest: str, folder: SpecFolder) -> ModuleType:
    """Return the file as a module; what it imports may be next to the eval file or at the project's root."""
    name = f"waza_local_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    ours = list(dict.fromkeys(map(str, (folder.base, folder.root))))
    sys.path[:] = [*ours, *(place for place in sys.path if place not in ours)]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"'{path.name}' is not a Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001  whatever an author's file does when it is imported
        del sys.modules[name]
        raise ValueError(f"'{path.name}' cannot be imported: {describe_error(error, folder)}") from None
    return module


def _graders_in(module: ModuleType) -> dict[str, type[Grader]]:
    """Return the graders a module itself defines, by name: classes, and what @waza.grader made of functions."""
    found: dict[str, type[Grader]] = {}
    for name, value in vars(module).items():
        cls = value if inspect.isclass(value) else type(value)
        if issubclass(cls, Grader) and cls.__module__ == module.__name__ and not name.startswith("_"):
            found[name] = cls
    return found
