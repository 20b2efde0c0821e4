"""Find a class by name: a file in one of our folders, or an entry point of another package.

The folder is the registry: `graders/tool_calls.py` is the type `tool_calls` and has one class named
`ToolCallsGrader`; a file without such a class (`base.py`) is shared code. Other packages announce theirs under the
entry points `waza.graders`, `waza.engines`, `waza.judges`, `waza.reports`. The caller decides which class a file
must have (`kind` and `suffix`); what the class does is not known here.
"""

from __future__ import annotations

import importlib
import inspect
from functools import cache
from pathlib import Path
from typing import Any

from waza.errors import UsageError, did_you_mean

_HERE = Path(__file__).parent


class Folder:
    """One folder of plug-ins, such as `graders`, each file one class ending in `suffix`."""

    def __init__(self, kind: str, suffix: str) -> None:
        self.kind = kind
        self.suffix = suffix
        self._loaded: dict[str, Any] = {}

    def built_in(self) -> list[str]:
        """Return the names of our own plug-ins, sorted."""
        return _files(self.kind, self.suffix)

    def names(self) -> list[str]:
        """Return every known name: our files and other packages' entry points."""
        return sorted({*self.built_in(), *_entries(self.kind)})

    def knows(self, name: str) -> bool:
        """Return whether `name` can be loaded; our own files come first."""
        return _folded(name) in self.built_in() or name in _entries(self.kind)

    def summary(self, name: str) -> str:
        """Return the first paragraph of a class's docstring; our own files are read, not imported, which is slow."""
        if (folded := _folded(name)) in self.built_in():
            text = _module_file(self.kind, folded).read_text("utf-8")
            body = text.partition(f"\nclass {_class_name(folded, self.suffix)}(")[2]
            docstring = body.split('"""')[1].split("\n\n")[0]
        else:
            docstring = (inspect.getdoc(self.load(name)) or "").split("\n\n")[0]
        return " ".join(docstring.split())

    def load(self, name: str) -> Any:
        """Return the class called `name`; raise UsageError with the nearest name if there is none."""
        if name in self._loaded:
            return self._loaded[name]
        folded, noun = _folded(name), self.kind.removesuffix("s")
        if folded in self.built_in():
            module = importlib.import_module(f"waza.{self.kind}.{folded}")
            self._loaded[name] = getattr(module, _class_name(folded, self.suffix))
            return self._loaded[name]
        if entry := _entries(self.kind).get(name):
            try:
                found = entry.load()
            except Exception as error:  # noqa: BLE001  another package's mistake must not look like ours
                fact = f"{type(error).__name__}: {error}"
                raise UsageError(f"{noun} '{name}' of {entry.value} cannot be loaded: {fact}") from None
            return found if isinstance(found, type) else type(found)
        raise UsageError(f"unknown {noun} '{name}'; {did_you_mean(name, self.names())}")


def _folded(name: str) -> str:
    return name.replace("-", "_")


def _class_name(name: str, suffix: str) -> str:
    return "".join(part.capitalize() for part in name.split("_")) + suffix


def _module_file(kind: str, name: str) -> Path:
    """Return the file of a built-in plug-in: a module, or a package's `__init__.py`."""
    module = _HERE / kind / f"{name}.py"
    return module if module.is_file() else _HERE / kind / name / "__init__.py"


@cache
def _files(kind: str, suffix: str) -> list[str]:
    """Return the files with the class that their name says, found in their text: that is faster than importing."""
    folder = _HERE / kind
    modules = {file.stem: file for file in folder.glob("*.py")}
    modules |= {file.parent.name: file for file in folder.glob("*/__init__.py")}
    return sorted(
        name
        for name, file in modules.items()
        if not name.startswith("_") and f"\nclass {_class_name(name, suffix)}(" in file.read_text("utf-8")
    )


@cache
def _entries(kind: str) -> dict[str, Any]:
    from importlib.metadata import entry_points  # it loads the e-mail parser; a built-in name does without

    return {entry.name: entry for entry in entry_points(group=f"waza.{kind}")}
