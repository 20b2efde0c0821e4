"""Call a foreign function beside the event loop, for a limited time, and contain whatever it raises."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import contextvars
import importlib
import importlib.util
import inspect
import os
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from queue import SimpleQueue
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

from waza.errors import SpecError, did_you_mean
from waza.files.paths import SpecFolder
from waza.files.trust import not_trusted
from waza.process.concurrency import deadlines

_GRACE_S = 1.0
"""How long a cancelled coroutine may take to tidy up."""
_end_process = os._exit
_agent_process: contextvars.ContextVar[int] = contextvars.ContextVar("agent_process", default=0)
"""The process in which an agent is called; another number is a child that the agent forked."""


def _end_call(status: int) -> NoReturn:
    """Replace `os._exit` while agents work: it would end the whole run without a word, with a code of the agent's."""
    if _agent_process.get() == os.getpid():
        raise SystemExit(status)
    _end_process(status)


def _agent_context() -> contextvars.Context:
    """Return the context of a call: what waza itself does outside of it keeps the real `os._exit`."""
    context = contextvars.copy_context()
    context.run(_agent_process.set, os.getpid())
    return context


class CallOutcome(NamedTuple):
    """What came of a call: a value, or an error."""

    value: Any = None
    error: BaseException | None = None


async def call(function: Callable[[], Any], timeout_s: float, *, is_async: bool) -> CallOutcome | None:
    """Return what a function gives back or raises, None when time ran out first.

    A plain function gets a thread to itself: a pool of fixed size would be used up by functions that never return, and
    would keep waza from ending. What it gives back is awaited if it can be.
    """
    os._exit = _end_call
    began = time.monotonic()
    outcome = CallOutcome(function()) if is_async else await _within(_in_thread(function), timeout_s)
    if outcome is None or not inspect.isawaitable(outcome.value):
        return outcome
    return await _awaited(outcome.value, timeout_s - (time.monotonic() - began))


Settled = asyncio.Future[CallOutcome | None]
"""What came of a call; None where nobody waits for it any more."""


async def _within(settled: Settled, timeout_s: float) -> CallOutcome | None:
    limits = deadlines()
    limit = limits.set(timeout_s, partial(_settle, settled, None))
    try:
        return await settled
    finally:
        limits.lift(limit)


def _settle(settled: Settled, outcome: CallOutcome | None) -> None:
    if not settled.done():
        settled.set_result(outcome)


async def _awaited(awaitable: Awaitable[Any], timeout_s: float) -> CallOutcome | None:
    """Return what an awaitable comes to, in a task of its own: one that does not let itself be ended is left behind."""
    settled: Settled = asyncio.get_running_loop().create_future()
    work = asyncio.create_task(_contained(awaitable, settled), context=_agent_context())
    try:
        outcome = await _within(settled, timeout_s)
    except asyncio.CancelledError:
        work.cancel()
        raise
    if outcome is None:
        work.cancel()
        await asyncio.wait({work}, timeout=_GRACE_S)
    return outcome


async def _contained(awaitable: Awaitable[Any], settled: Settled) -> None:
    try:
        outcome = CallOutcome(await awaitable)
    except asyncio.CancelledError:
        outcome = CallOutcome(error=RuntimeError("it cancelled itself"))
    except (KeyboardInterrupt, GeneratorExit):  # not the agent's: somebody ends the process, or the loop
        raise
    except BaseException as error:  # noqa: BLE001  an agent's own errors must not end the run, SystemExit neither
        outcome = CallOutcome(error=error)
    _settle(settled, outcome)


Work = Callable[[], Callable[[], None]]
"""Does something, and returns what tells of it."""
_idle: list[SimpleQueue[Work]] = []
"""Where threads wait that have nothing to do; one whose function never returns does not come back here."""


def _in_thread(function: Callable[[], Any]) -> Settled:
    """Let a thread that has nothing to do call the function, or a new one; none of them keeps waza from ending."""
    loop = asyncio.get_running_loop()
    settled: Settled = loop.create_future()
    context = _agent_context()

    def work() -> Callable[[], None]:
        try:
            outcome = CallOutcome(context.run(function))
        except BaseException as error:  # noqa: BLE001  an agent's own errors must not end the run, SystemExit neither
            outcome = CallOutcome(error=error)
        return lambda: _tell(loop, settled, outcome)

    try:
        _idle.pop().put(work)
    except IndexError:
        threading.Thread(target=_serve, args=(work,), name="waza-agent", daemon=True).start()
    return settled


def _serve(work: Work) -> None:
    """Do one work after the other; whoever is told of its end may have the thread at once."""
    responder: SimpleQueue[Work] = SimpleQueue()
    while True:
        tell = work()
        _idle.append(responder)
        tell()
        work = responder.get()


def _tell(loop: asyncio.AbstractEventLoop, settled: Settled, outcome: CallOutcome) -> None:
    with contextlib.suppress(RuntimeError):  # the run is over and its loop closed
        loop.call_soon_threadsafe(_settle, settled, outcome)


# Find a function by `module:name` and learn how it wants to be called.


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


class AgentMessage(NamedTuple):
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
        return (lambda prompt, context: function(prompt, [AgentMessage(**said) for said in context().history])), False
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
