"""Graders in a Python file of the project: `type: ./graders/mine.py`. They run only where that is allowed."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from waza.engines._function import told
from waza.errors import did_you_mean
from waza.graders._base import Grader
from waza.sandbox.folders import SpecFolder

REFUSAL = (
    "it runs Python code of this project; allow that with --allow-local-code or `allow_local_code: true` in .waza.yaml"
)


class LocalCode(NamedTuple):
    """The file a grader came from."""

    path: str
    digest: str
    """Changes with anything in the file."""


_CAME_FROM: dict[type[Grader], LocalCode] = {}


def is_local(kind: str) -> bool:
    """Say whether a grader's type is a Python file, or a file and a name in it."""
    return kind.partition(".py:")[0].endswith(".py") or ".py:" in kind


def load_local(kind: str, folder: SpecFolder) -> type[Grader]:
    """Return the grader in a file (`./mine.py`, or `./mine.py:name` where it holds several).

    Raises ValueError with a sentence when that is not allowed, or there is no such grader.
    """
    file, colon, name = kind.partition(".py:")
    file += ".py" if colon else ""
    if not folder.may_run_code:
        raise ValueError(f"'{file}' is not loaded: {REFUSAL}")
    path = folder.find(file)
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


def _module(path: Path, digest: str, folder: SpecFolder) -> ModuleType:
    """Return the file as a module; what it imports may stand beside the eval file or at the project's root."""
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
        raise ValueError(f"'{path.name}' cannot be imported: {told(error, folder)}") from None
    return module


def _graders_in(module: ModuleType) -> dict[str, type[Grader]]:
    """Return the graders a module itself defines, by name: classes, and what @waza.grader made of functions."""
    found: dict[str, type[Grader]] = {}
    for name, value in vars(module).items():
        cls = value if inspect.isclass(value) else type(value)
        if issubclass(cls, Grader) and cls.__module__ == module.__name__ and not name.startswith("_"):
            found[name] = cls
    return found
