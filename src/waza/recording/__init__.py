"""Record a trace while your own agent runs: its tools, model calls and steps.

`record` opens a recording (a block), `agent` makes one of each call of a function; `tool` and `model` mark functions,
`tool_call`, `model_call` and `step` do the same as blocks. Outside a recording a marked function is a plain function.
All of them work in plain and async code.

A context variable says which recording a call belongs to: tasks and `asyncio.to_thread` inherit it, a bare thread or a
thread pool does not, unless it gets `bound(function)`. A call without a recording makes every open one incomplete: its
tool calls, usage and steps then count as not recorded, so that no check passes by accident. An agent within an agent is
recorded in both.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from waza.model import JSON, Trace
from waza.recording.calls import CURRENT, WITHIN, RecordedCall, Recording, json_copy, recorded_before, text

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

Call = RecordedCall
Function = TypeVar("Function", bound=Callable[..., Any])
Params = ParamSpec("Params")


def record(input: str, *, model: str | None = None) -> Recording:
    """Return a recording, to be opened with `with` or `async with`."""
    return Recording(input, model=model)


def tool_call(name: str, args: dict[str, Any] | None = None) -> RecordedCall:
    """Return a block that is one tool call; set its `result`."""
    return RecordedCall("tool_call", name, json_copy(args or {}))


def model_call(model: str = "") -> RecordedCall:
    """Return a block that is one call of a model; set its `input_tokens` and `output_tokens` if they are known."""
    return RecordedCall("model_call", model)


def step(name: str) -> RecordedCall:
    """Return a block that is one step of another kind: planning, reading memory."""
    return RecordedCall("step", name)


def tool(function: Function) -> Function:
    """Mark a function as a tool: each call is recorded with its arguments and its result."""
    return _marked(function, lambda args: RecordedCall("tool_call", _name(function), args))


def model(function: Function) -> Function:
    """Mark a function as a call of a model."""
    return _marked(function, lambda args: RecordedCall("model_call", _name(function)))


def agent(function: Callable[Params, Any]) -> Callable[Params, Any]:
    """Make a function return the trace of each call: its first argument is the input, its return value the output.

    An async function stays async: awaiting it gives the trace. Exceptions reach the caller.
    """
    _refuse_streams(function)

    def begun(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Recording:
        arguments = list(_arguments(function, args, kwargs).values())
        return Recording(text(arguments[0]) if arguments else "")

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
    """Return the function bound to the recording that is open here, for a thread to run."""
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
    """Return the function with each of its calls recorded."""
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
    """Return the result of the coroutine that a plain function returned; the recorded call ends with it."""
    with ending, call.within():
        call.result = result = await coroutine
    return result


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _refuse_streams(function: Callable[..., Any]) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{_name(function)} yields; put a `with tool_call(...)` or `model_call(...)` block inside it")


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _arguments(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, JSON]:
    """Return the arguments of a call by name, without `self` and `cls`."""
    try:
        bound_arguments = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return json_copy({"args": list(args)} | kwargs)  # type: ignore[no-any-return]  # a call that will fail is recorded too
    by_name: dict[str, Any] = {}
    for position, (name, value) in enumerate(bound_arguments.arguments.items()):
        if bound_arguments.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            by_name |= value
        elif position or name not in ("self", "cls"):
            by_name[name] = value
    return json_copy(by_name)  # type: ignore[no-any-return]


def _answer(value: Any) -> Any:
    if isinstance(value, Trace):
        raise TypeError("a recorded agent returns its answer; the trace is made from the recording")
    return value
