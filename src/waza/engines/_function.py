"""Find a function by `module:name` and learn how it wants to be called."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from waza.errors import SpecError, did_you_mean
from waza.sandbox.folders import SpecFolder
from waza.sandbox.trust import not_trusted


def not_imported(what: str, folder: SpecFolder) -> str:
    """Return why Python of the project is not imported, and what the user can do."""
    return f"'{what}' is Python of this project and is not imported: {not_trusted(folder.root)}"


_WAZA = str(Path(__file__).parent.parent) + os.sep
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def find_function(where: str, folder: SpecFolder) -> Callable[..., Any]:
    """Return the function that `module:name` means, with the eval file's folder and the project's root importable.

    Raises SpecError when the folder is not trusted, the module cannot be imported or has no such function.
    """
    if not folder.may_import:
        raise SpecError(not_imported(where, folder))
    module_name, _, path = where.partition(":")
    found: Any = _module(module_name, folder)
    for name in path.split("."):
        if not hasattr(found, name):
            known = [key for key, value in vars(found).items() if callable(value) and not key.startswith("_")]
            raise SpecError(f"'{module_name}' has no function '{path}'; {did_you_mean(name, known)}")
        found = getattr(found, name)
    if not callable(found):
        raise SpecError(f"'{where}' is not a function but {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def absent_function(where: str, folder: SpecFolder) -> str:
    """Return why `module:name` cannot be what it says, found without running any code; empty where it may be."""
    module_name, _, path = where.partition(":")
    first, *rest = module_name.split(".")
    ours = list(dict.fromkeys(map(str, (folder.base, folder.root))))
    spec = PathFinder.find_spec(first, ours)
    if spec is None:
        with suppress(ImportError, ValueError):
            if importlib.util.find_spec(first) is not None:
                return ""  # an installed package is imported by the run only
        return _no_module(module_name, ours)
    for name in rest:
        inner = spec.submodule_search_locations
        spec = PathFinder.find_spec(f"{spec.name}.{name}", list(inner)) if inner else None
        if spec is None:
            return _no_module(module_name, ours)
    if not spec.origin or not spec.origin.endswith(".py"):
        return ""
    try:
        tree = ast.parse(Path(spec.origin).read_bytes())
    except SyntaxError as error:
        return f"'{module_name}' cannot be imported: line {error.lineno}: {error.msg}"
    except (OSError, ValueError, RecursionError, MemoryError):
        return ""
    name = path.partition(".")[0]
    if _may_define(tree, name):
        return ""
    known = [node.name for node in tree.body if isinstance(node, _DEFINITIONS)]
    return f"'{module_name}' has no function '{path}'; {did_you_mean(name, known)}"


def _may_define(tree: ast.Module, name: str) -> bool:
    """Say whether a module may have a name: it is bound anywhere in it, or by means that the source does not show."""
    for node in ast.walk(tree):
        if isinstance(node, _DEFINITIONS) and node.name in (name, "__getattr__"):
            return True
        if isinstance(node, ast.Name) and node.id in (name, "globals", "vars", "setattr", "exec"):
            return True
        if isinstance(node, ast.alias) and (node.asname or node.name.partition(".")[0]) in (name, "*"):
            return True
    return False


Called = Callable[[str, Callable[[], Any]], Any]
"""How a function is called: with a prompt, and what makes the context, for those who want one."""


def with_context(function: Callable[..., Any]) -> tuple[Called, bool]:
    """Return how to call a function that takes a prompt, or a prompt and a context, and whether it takes the context.

    The context is the second parameter, if that has no default or is called `context`, or a keyword `context`.
    Raises SpecError when the function wants anything else.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return (lambda prompt, _: function(prompt)), False
    in_place = [p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = signature.parameters.get("context")
    try:
        if len(in_place) > 1 and (in_place[1].default is inspect.Parameter.empty or in_place[1] is named):
            signature.bind("prompt", "context")
            return (lambda prompt, context: function(prompt, context())), True
        if named is not None and named.kind is named.KEYWORD_ONLY:
            signature.bind("prompt", context="context")
            return (lambda prompt, context: function(prompt, context=context())), True
        signature.bind("prompt")
    except TypeError as error:
        raise SpecError(f"an agent takes (prompt) or (prompt, context), not {signature}: {error}") from None
    return (lambda prompt, _: function(prompt)), False


class Message(NamedTuple):
    """One utterance of a conversation, as evaldeck's agents get it."""

    role: str
    content: str


def with_history(function: Callable[..., Any]) -> tuple[Called, bool]:
    """Return how to call a function that takes a prompt, or a prompt and the conversation so far; never a context.

    Raises SpecError when the function wants anything else.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return (lambda prompt, _: function(prompt)), False
    try:
        signature.bind("prompt", "history")
        return (lambda prompt, context: function(prompt, [Message(**said) for said in context().history])), False
    except TypeError:
        pass
    try:
        signature.bind("prompt")
    except TypeError as error:
        raise SpecError(f"an agent takes (input) or (input, history), not {signature}: {error}") from None
    return (lambda prompt, _: function(prompt)), False


def is_async(function: Callable[..., Any]) -> bool:
    """Say whether a function, or an object that is called like one, is awaited."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def told(error: BaseException, folder: SpecFolder) -> str:
    """Return what an exception says and the last line of the project's own code it came through."""
    said = " ".join("".join(traceback.format_exception_only(error)).split())[:2_000]
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if _is_own(frame.filename, folder)]
    if not own:
        return said
    place = Path(own[-1].filename).relative_to(folder.root)
    return f"{said} ({place}:{own[-1].lineno}: {own[-1].line})"


def own_traceback(error: BaseException) -> str:
    """Return the traceback of what an agent raised, without waza's own frames around and between the agent's."""
    whole = traceback.TracebackException.from_exception(error)
    waiting: list[traceback.TracebackException | None] = [whole]
    while waiting:
        if (one := waiting.pop()) is None:
            continue
        if theirs := [frame for frame in one.stack if not frame.filename.startswith(_WAZA)]:
            one.stack[:] = theirs
        waiting += [one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ())]
    return "".join(whole.format())


def _is_own(file: str, folder: SpecFolder) -> bool:
    return Path(file).is_relative_to(folder.root) and "site-packages" not in Path(file).parts


def _module(name: str, folder: SpecFolder) -> ModuleType:
    ours = list(dict.fromkeys(map(str, (folder.base, folder.root))))
    sys.path[:] = [*ours, *(path for path in sys.path if path not in ours)]
    importlib.invalidate_caches()
    _forget_namesake(name.partition(".")[0], ours)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise SpecError(_no_module(name, ours)) from None
        raise SpecError(f"'{name}' cannot be imported: {told(error, folder)}") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001  whatever an author's module does when it is imported
        raise SpecError(f"'{name}' cannot be imported: {told(error, folder)}") from None


def _no_module(name: str, places: list[str]) -> str:
    known = [file.stem for place in places for file in Path(place).glob("*.py")]
    hint = did_you_mean(name, known) if known else "there is no Python file beside the eval file"
    return f"there is no module '{name}'; {hint}"


def _forget_namesake(name: str, places: list[str]) -> None:
    """Forget a module of the same name that another suite brought, so that ours is the one that is run."""
    spec = PathFinder.find_spec(name, places)
    loaded = sys.modules.get(name)
    if loaded is None or spec is None or not spec.origin or name in sys.stdlib_module_names:
        return
    if getattr(loaded, "__file__", None) != spec.origin:
        for other in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
            del sys.modules[other]
