"""A trace made while one's own agent runs: tools, model calls and steps write themselves down.

`record` opens a recording (a block), `agent` makes one of each call of a function; `tool` and `model` mark functions,
`tool_call`, `model_call` and `step` are the same as blocks. Outside a recording a marked function is a plain function.
All of them serve plain and async code.

Which recording a call belongs to is carried by the context: tasks and `asyncio.to_thread` hand it on, a bare thread or
a thread pool does not, unless it is given `bound(function)`. A call that cannot be told to belong to a recording makes
every open one incomplete: what it then cannot know counts as not recorded, so that nothing passes by accident.
An agent within an agent is recorded in both.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from waza.model import JSON, Trace
from waza.recording.calls import CURRENT, WITHIN, RecordedCall, Recording, plain, text

__all__ = [
    "Call",
    "Recording",
    "agent",
    "bound",
    "model",
    "model_call",
    "record",
    "recorded_before",
    "step",
    "tool",
    "tool_call",
]

Function = TypeVar("Function", bound=Callable[..., Any])
Params = ParamSpec("Params")


def record(input: str, *, model: str | None = None) -> Recording:
    """Return a recording, to be opened with `with` or `async with`."""
    return Recording(input, model=model)


def tool_call(name: str, args: dict[str, Any] | None = None) -> RecordedCall:
    """Return a block that is one tool call; set its `result`."""
    return RecordedCall("tool_call", name, plain(args or {}))


def model_call(model: str = "") -> RecordedCall:
    """Return a block that is one call of a model; set its `input_tokens` and `output_tokens` where they are known."""
    return RecordedCall("model_call", model)


def step(name: str) -> RecordedCall:
    """Return a block that is one step of another kind: planning, reading memory."""
    return RecordedCall("step", name)


def tool(function: Function) -> Function:
    """Mark a function as a tool: each call is recorded with its arguments and what came of it."""
    return _marked(function, lambda args: RecordedCall("tool_call", _name(function), args))


def model(function: Function) -> Function:
    """Mark a function as a call of a model."""
    return _marked(function, lambda args: RecordedCall("model_call", _name(function)))


def agent(function: Callable[Params, Any]) -> Callable[Params, Any]:
    """Make a function return the trace of each call: its first argument is the input, what it returned the output.

    An async function stays one: the trace is what awaiting it gives. What it raises goes on to the caller.
    """
    _refuse_streams(function)

    def begun(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Recording:
        given = list(_arguments(function, args, kwargs).values())
        return Recording(text(given[0]) if given else "")

    if _is_async(function):

        @wraps(function)
        async def recorded_later(*args: Params.args, **kwargs: Params.kwargs) -> Trace:
            with begun(args, kwargs) as recording:
                recording.output = _answer(await function(*args, **kwargs))
            return recording.trace

        return recorded_later

    @wraps(function)
    def recorded(*args: Params.args, **kwargs: Params.kwargs) -> Trace:
        with begun(args, kwargs) as recording:
            recording.output = _answer(function(*args, **kwargs))
        return recording.trace

    return recorded


def bound(function: Callable[Params, Any]) -> Callable[Params, Any]:
    """Return the function so that a thread that runs it belongs to the recording that is open here."""
    recording, within = CURRENT.get(), WITHIN.get()

    @contextmanager
    def carried() -> Iterator[None]:
        tokens = CURRENT.set(recording), WITHIN.set(within)
        try:
            yield
        finally:
            CURRENT.reset(tokens[0])
            WITHIN.reset(tokens[1])

    if _is_async(function):

        @wraps(function)
        async def bound_later(*args: Params.args, **kwargs: Params.kwargs) -> Any:
            with carried():
                return await function(*args, **kwargs)

        return bound_later

    @wraps(function)
    def bound_now(*args: Params.args, **kwargs: Params.kwargs) -> Any:
        with carried():
            return function(*args, **kwargs)

    return bound_now


def _marked(function: Function, begin: Callable[[dict[str, JSON]], RecordedCall]) -> Function:
    """Return the function with a call around each of its calls."""
    _refuse_streams(function)
    begin({})
    if _is_async(function):

        @wraps(function)
        async def called_later(*args: Any, **kwargs: Any) -> Any:
            with begin(_arguments(function, args, kwargs)) as call:
                call.result = result = await function(*args, **kwargs)
            return result

        return called_later  # type: ignore[return-value]

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        with ExitStack() as ending:
            call = ending.enter_context(begin(_arguments(function, args, kwargs)))
            result = function(*args, **kwargs)
            if inspect.iscoroutine(result):
                call.leave()
                return _awaited(call, result, ending.pop_all())
            call.result = result
        return result

    return called  # type: ignore[return-value]


async def _awaited(call: RecordedCall, coroutine: Coroutine[Any, Any, Any], ending: ExitStack) -> Any:
    """Return what the coroutine of a plain function gives; the call ends with it."""
    with ending, call.within():
        call.result = found = await coroutine
    return found


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _refuse_streams(function: Callable[..., Any]) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{_name(function)} yields; put a `with tool_call(...)` or `model_call(...)` block inside it")


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _arguments(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, JSON]:
    """Return what a function was called with, by name; `self` and `cls` are not told."""
    try:
        bound_arguments = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return plain({"args": list(args)} | kwargs)  # type: ignore[no-any-return]  # a call that will fail is told too
    found: dict[str, Any] = {}
    for position, (name, value) in enumerate(bound_arguments.arguments.items()):
        if bound_arguments.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            found |= value
        elif position or name not in ("self", "cls"):
            found[name] = value
    return plain(found)  # type: ignore[no-any-return]


def _answer(value: Any) -> Any:
    if isinstance(value, Trace):
        raise TypeError("a recorded agent returns its answer; the trace is made from the recording")
    return value
