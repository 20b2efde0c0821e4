"""The project's Python functions as agents: find one by `module:name`, learn its signature, call it with a time limit.

A call never blocks the event loop, and nothing that the function raises ends the run.
"""

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

_WAZA = str(Path(__file__).parent.parent) + os.sep
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_GRACE_S = 1.0
"""How long a cancelled coroutine may take to clean up."""
_end_process = os._exit
_agent_process: contextvars.ContextVar[int] = contextvars.ContextVar("agent_process", default=0)
"""The process in which an agent is called; another number is a child that the agent forked."""


def not_imported(what: str, folder: SpecFolder) -> str:
    """Return why Python code of the project is not imported, and what the user can do."""
    return f"'{what}' is Python of this project and is not imported: {not_trusted(folder.root)}"


def find_function(where: str, folder: SpecFolder) -> Callable[..., Any]:
    """Return the function at `module:name`, with the eval file's folder and the project's root importable.

    Raises SpecError when the folder is not trusted, the module cannot be imported or has no such function.
    """
    if not folder.may_import:
        raise SpecError(not_imported(where, folder))
    module_name, _, path = where.partition(":")
    value: Any = _module(module_name, folder)
    for name in path.split("."):
        if not hasattr(value, name):
            known = [key for key, member in vars(value).items() if callable(member) and not key.startswith("_")]
            raise SpecError(f"'{module_name}' has no function '{path}'; {did_you_mean(name, known)}")
        value = getattr(value, name)
    if not callable(value):
        raise SpecError(f"'{where}' is not a function but {type(value).__name__}")
    return value  # type: ignore[no-any-return]


def absent_function(where: str, folder: SpecFolder) -> str:
    """Return why `module:name` cannot be imported, found without running any code; empty if it may be."""
    module_name, _, path = where.partition(":")
    first, *rest = module_name.split(".")
    ours = list(dict.fromkeys(map(str, (folder.base, folder.root))))
    spec = PathFinder.find_spec(first, ours)
    if spec is None:
        with suppress(ImportError, ValueError):
            if importlib.util.find_spec(first) is not None:
                return ""  # an installed package is imported only by the run
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
    """Return whether a module may have a name: bound anywhere in it, or in a way that the source does not show."""
    for node in ast.walk(tree):
        if isinstance(node, _DEFINITIONS) and node.name in (name, "__getattr__"):
            return True
        if isinstance(node, ast.Name) and node.id in (name, "globals", "vars", "setattr", "exec"):
            return True
        if isinstance(node, ast.alias) and (node.asname or node.name.partition(".")[0]) in (name, "*"):
            return True
    return False


def _module(name: str, folder: SpecFolder) -> ModuleType:
    ours = list(dict.fromkeys(map(str, (folder.base, folder.root))))
    sys.path[:] = [*ours, *(path for path in sys.path if path not in ours)]
    importlib.invalidate_caches()
    _unload_namesake(name.partition(".")[0], ours)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise SpecError(_no_module(name, ours)) from None
        raise SpecError(f"'{name}' cannot be imported: {describe_error(error, folder)}") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001  an author's module may raise anything when it is imported
        raise SpecError(f"'{name}' cannot be imported: {describe_error(error, folder)}") from None


def _no_module(name: str, places: list[str]) -> str:
    known = [file.stem for place in places for file in Path(place).glob("*.py")]
    hint = did_you_mean(name, known) if known else "there is no Python file next to the eval file"
    return f"there is no module '{name}'; {hint}"


def _unload_namesake(name: str, places: list[str]) -> None:
    """Unload a module of the same name that another suite imported, so that this suite's own is used."""
    spec = PathFinder.find_spec(name, places)
    loaded = sys.modules.get(name)
    if loaded is None or spec is None or not spec.origin or name in sys.stdlib_module_names:
        return
    if getattr(loaded, "__file__", None) != spec.origin:
        for other in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
            del sys.modules[other]


CallAgent = Callable[[str, Callable[[], Any]], Any]
"""Calls an agent function with a prompt and, if it takes one, the context that the second argument makes."""


def with_context(function: Callable[..., Any]) -> tuple[CallAgent, bool]:
    """Return how to call a function that takes a prompt, or a prompt and a context, and whether it takes the context.

    The context is the second parameter, if that has no default or is called `context`, or a keyword `context`.
    Raises SpecError when the function takes anything else.
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
    """One message of a conversation, as evaldeck's agents get it."""

    role: str
    content: str


def with_history(function: Callable[..., Any]) -> tuple[CallAgent, bool]:
    """Return how to call a function that takes a prompt, or a prompt and the conversation so far; never a context.

    Raises SpecError when the function takes anything else.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return (lambda prompt, _: function(prompt)), False
    try:
        signature.bind("prompt", "history")
        return (
            lambda prompt, context: function(prompt, [AgentMessage(**message) for message in context().history])
        ), False
    except TypeError:
        pass
    try:
        signature.bind("prompt")
    except TypeError as error:
        raise SpecError(f"an agent takes (input) or (input, history), not {signature}: {error}") from None
    return (lambda prompt, _: function(prompt)), False


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a function, or a callable object, is async."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _end_call(status: int) -> NoReturn:
    """Replace `os._exit` while agents run: it would end waza silently, with the agent's exit code."""
    if _agent_process.get() == os.getpid():
        raise SystemExit(status)
    _end_process(status)


def _agent_context() -> contextvars.Context:
    """Return the context of a call; code of waza outside of it keeps the real `os._exit`."""
    context = contextvars.copy_context()
    context.run(_agent_process.set, os.getpid())
    return context


class CallOutcome(NamedTuple):
    """The result of a call: a value, or an error."""

    value: Any = None
    error: BaseException | None = None


async def call(function: Callable[[], Any], timeout_s: float, *, is_async: bool) -> CallOutcome | None:
    """Return what a function returns or raises; None when it exceeds the time limit.

    A plain function gets a thread of its own: functions that never return would exhaust a pool of fixed size and keep
    waza from exiting. An awaitable result is awaited.
    """
    os._exit = _end_call
    began = time.monotonic()
    outcome = CallOutcome(function()) if is_async else await _within(_in_thread(function), timeout_s)
    if outcome is None or not inspect.isawaitable(outcome.value):
        return outcome
    return await _awaited(outcome.value, timeout_s - (time.monotonic() - began))


CallFuture = asyncio.Future[CallOutcome | None]
"""The result of a call; None where it exceeded its time limit."""


async def _within(future: CallFuture, timeout_s: float) -> CallOutcome | None:
    limits = deadlines()
    limit = limits.set(timeout_s, partial(_settle, future, None))
    try:
        return await future
    finally:
        limits.cancel(limit)


def _settle(future: CallFuture, outcome: CallOutcome | None) -> None:
    if not future.done():
        future.set_result(outcome)


async def _awaited(awaitable: Awaitable[Any], timeout_s: float) -> CallOutcome | None:
    """Return the result of an awaitable, run in its own task; a task that ignores its cancellation is abandoned."""
    future: CallFuture = asyncio.get_running_loop().create_future()
    work = asyncio.create_task(_contained(awaitable, future), context=_agent_context())
    try:
        outcome = await _within(future, timeout_s)
    except asyncio.CancelledError:
        work.cancel()
        raise
    if outcome is None:
        work.cancel()
        await asyncio.wait({work}, timeout=_GRACE_S)
    return outcome


async def _contained(awaitable: Awaitable[Any], future: CallFuture) -> None:
    try:
        outcome = CallOutcome(await awaitable)
    except asyncio.CancelledError:
        outcome = CallOutcome(error=RuntimeError("it cancelled itself"))
    except (KeyboardInterrupt, GeneratorExit):  # not the agent's: the process or the loop is being ended
        raise
    except BaseException as error:  # noqa: BLE001  an agent's own errors must not end the run, SystemExit neither
        outcome = CallOutcome(error=error)
    _settle(future, outcome)


Work = Callable[[], Callable[[], None]]
"""Runs a function in a thread, and returns a callback that delivers its result."""
_idle: list[SimpleQueue[Work]] = []
"""Queues of idle threads; a thread whose function never returns does not come back here."""


def _in_thread(function: Callable[[], Any]) -> CallFuture:
    """Call the function in an idle thread or a new one; they are daemons, so none keeps waza from exiting."""
    loop = asyncio.get_running_loop()
    future: CallFuture = loop.create_future()
    context = _agent_context()

    def work() -> Callable[[], None]:
        try:
            outcome = CallOutcome(context.run(function))
        except BaseException as error:  # noqa: BLE001  an agent's own errors must not end the run, SystemExit neither
            outcome = CallOutcome(error=error)
        return lambda: _deliver(loop, future, outcome)

    try:
        _idle.pop().put(work)
    except IndexError:
        threading.Thread(target=_serve, args=(work,), name="waza-agent", daemon=True).start()
    return future


def _serve(work: Work) -> None:
    """Run one call after the other; the thread counts as idle before the result arrives, so it can be reused."""
    queue: SimpleQueue[Work] = SimpleQueue()
    while True:
        deliver = work()
        _idle.append(queue)
        deliver()
        work = queue.get()


def _deliver(loop: asyncio.AbstractEventLoop, future: CallFuture, outcome: CallOutcome) -> None:
    with contextlib.suppress(RuntimeError):  # the run is over and its loop closed
        loop.call_soon_threadsafe(_settle, future, outcome)


def describe_error(error: BaseException, folder: SpecFolder) -> str:
    """Return an exception's message and the last line of the project's own code in its traceback."""
    message = " ".join("".join(traceback.format_exception_only(error)).split())[:2_000]
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if _is_own(frame.filename, folder)]
    if not own:
        return message
    place = Path(own[-1].filename).relative_to(folder.root)
    return f"{message} ({place}:{own[-1].lineno}: {own[-1].line})"


def own_traceback(error: BaseException) -> str:
    """Return the traceback of an agent's exception without waza's own frames."""
    whole = traceback.TracebackException.from_exception(error)
    pending: list[traceback.TracebackException | None] = [whole]
    while pending:
        if (one := pending.pop()) is None:
            continue
        if theirs := [frame for frame in one.stack if not frame.filename.startswith(_WAZA)]:
            one.stack[:] = theirs
        pending += [one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ())]
    return "".join(whole.format())


def _is_own(file: str, folder: SpecFolder) -> bool:
    return Path(file).is_relative_to(folder.root) and "site-packages" not in Path(file).parts
