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
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, Token
from functools import wraps
from typing import Any, Literal, NamedTuple, ParamSpec, Self, TypeVar

import msgspec

from waza.model import JSON, ToolEvent, Trace, TraceStatus, Usage

Kind = Literal["tool_call", "model_call", "step"]
Function = TypeVar("Function", bound=Callable[..., Any])
Params = ParamSpec("Params")

_CURRENT: ContextVar[Recording | None] = ContextVar("waza_recording", default=None)
_WITHIN: ContextVar[Call | None] = ContextVar("waza_call", default=None)
_LOCK = threading.Lock()
_OPEN: set[Recording] = set()
_MARKED: set[Kind] = set()
"""What the program marks at all: without a single tool that writes itself down, tool calls are not observed."""


class Recording:
    """What an agent does from `with` to the end of the block; `trace` tells it.

    ```python
    with waza.record("What is the capital of France?") as recording:
        recording.output = my_agent("What is the capital of France?")
    waza.grade(recording.trace, {"tools_called": ["lookup"]})
    ```
    """

    def __init__(self, input: str, *, model: str | None = None) -> None:
        self.input = input
        self.model = model
        self.output: Any = ""
        self.status: TraceStatus = "success"
        self.error: str | None = None
        self._log: list[tuple[bool, Call]] = []
        self._seen: _Seen | None = None
        self._unclaimed = 0
        self._started = self._ended = time.perf_counter()
        self._outer: Recording | None = None
        self._token: Token[Recording | None] | None = None

    def __enter__(self) -> Self:
        if self._token is not None:
            raise RuntimeError("a recording is used once; open another with waza.record")
        self._outer = _CURRENT.get()
        self._token = _CURRENT.set(self)
        self._started = time.perf_counter()
        with _LOCK:
            _OPEN.add(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        with _LOCK:
            _OPEN.discard(self)
            self._seen = _seen(self._log)
        self._ended = time.perf_counter()
        _back(_CURRENT, self._token)
        if error is not None:
            self.status, self.error = "error", f"{type(error).__name__}: {error}"
        if self._unclaimed:
            warnings.warn(self._incomplete(), RuntimeWarning, stacklevel=2)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        self.__exit__(kind, error, traceback)

    @property
    def trace(self) -> Trace:
        """What happened so far; everything, once the block is left. `output` may still be set after it."""
        with _LOCK:
            seen = self._seen or _seen(self._log)
        ended = self._ended if self._seen else time.perf_counter()
        whole = not self._unclaimed
        output = _text(self.output)
        answer = [{"type": "assistant_message", "turn": seen.turn, "content": output}] if output else []
        return Trace(
            input=self.input,
            output=output,
            status=self.status,
            error=self.error,
            model=self.model,
            duration_ms=(ended - self._started) * 1000,
            events=seen.events + answer,
            tool_events=seen.tool_events if whole and "tool_call" in _MARKED else None,
            usage=seen.usage if whole and "model_call" in _MARKED else None,
            steps=seen.steps if whole else None,
            extra={} if whole else {"incomplete": self._incomplete()},
        )

    def _incomplete(self) -> str:
        return (
            f"{self._unclaimed} calls came from threads that carry no recording; "
            "hand them waza.recording.bound(function) instead of the function"
        )


class Call:
    """A tool call, a model call or a step while it goes on; what is set on it is written down."""

    def __init__(self, kind: Kind, name: str, args: JSON = None) -> None:
        _MARKED.add(kind)
        self.kind = kind
        self.name = name
        self.args = args
        self.result: Any = None
        """What came of it."""
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.error: str | None = "not finished when the recording ended"
        self.duration_ms: float | None = None
        self._recordings: list[Recording] = []
        self._within: Call | None = None
        self._token: Token[Call | None] | None = None
        self._started = 0.0

    def __enter__(self) -> Self:
        self._within = _WITHIN.get()
        self._token = _WITHIN.set(self)
        with _LOCK:
            self._recordings = _claimed()
            for recording in self._recordings:
                recording._log.append((True, self))
        self._started = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        _back(_WITHIN, self._token)
        self.duration_ms = (time.perf_counter() - self._started) * 1000
        self.result = _plain(self.result)
        self.error = None if error is None else f"{type(error).__name__}: {error}"
        with _LOCK:
            for recording in self._recordings:
                if recording in _OPEN:
                    recording._log.append((False, self))

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        self.__exit__(kind, error, traceback)


def _back(variable: ContextVar[Any], token: Token[Any] | None) -> None:
    """Put a variable back; a block that ends in another context than it began in (a generator) leaves none behind."""
    if token is not None:
        with suppress(ValueError):
            variable.reset(token)


def _claimed() -> list[Recording]:
    """Return the open recordings this place in the program belongs to, inner ones first."""
    recording = _CURRENT.get()
    if recording is None:
        for other in _OPEN:
            other._unclaimed += 1
        return []
    found = []
    while recording is not None:
        if recording in _OPEN:
            found.append(recording)
        recording = recording._outer
    return found


def record(input: str, *, model: str | None = None) -> Recording:
    """Return a recording, to be opened with `with` or `async with`."""
    return Recording(input, model=model)


def tool_call(name: str, args: dict[str, Any] | None = None) -> Call:
    """Return a block that is one tool call; set its `result`."""
    return Call("tool_call", name, _plain(args or {}))


def model_call(model: str = "") -> Call:
    """Return a block that is one call of a model; set its `input_tokens` and `output_tokens` where they are known."""
    return Call("model_call", model)


def step(name: str) -> Call:
    """Return a block that is one step of another kind: planning, reading memory."""
    return Call("step", name)


def tool(function: Function) -> Function:
    """Mark a function as a tool: each call is recorded with its arguments and what came of it."""
    return _marked(function, lambda args: Call("tool_call", _name(function), args))


def model(function: Function) -> Function:
    """Mark a function as a call of a model."""
    return _marked(function, lambda args: Call("model_call", _name(function)))


def agent(function: Callable[Params, Any]) -> Callable[Params, Any]:
    """Make a function return the trace of each call: its first argument is the input, what it returned the output.

    An async function stays one: the trace is what awaiting it gives. What it raises goes on to the caller.
    """
    _refuse_streams(function)

    def begun(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Recording:
        given = list(_arguments(function, args, kwargs).values())
        return Recording(_text(given[0]) if given else "")

    if inspect.iscoroutinefunction(function):

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
    recording, within = _CURRENT.get(), _WITHIN.get()

    @wraps(function)
    def carried(*args: Params.args, **kwargs: Params.kwargs) -> Any:
        tokens = _CURRENT.set(recording), _WITHIN.set(within)
        try:
            return function(*args, **kwargs)
        finally:
            _CURRENT.reset(tokens[0])
            _WITHIN.reset(tokens[1])

    return carried


def _marked(function: Function, begin: Callable[[dict[str, JSON]], Call]) -> Function:
    """Return the function with a call around each of its calls."""
    _refuse_streams(function)
    begin({})
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def called_later(*args: Any, **kwargs: Any) -> Any:
            with begin(_arguments(function, args, kwargs)) as call:
                call.result = result = await function(*args, **kwargs)
            return result

        return called_later  # type: ignore[return-value]

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        with begin(_arguments(function, args, kwargs)) as call:
            call.result = result = function(*args, **kwargs)
        return result

    return called  # type: ignore[return-value]


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
        return _plain({"args": list(args)} | kwargs)  # type: ignore[no-any-return]  # a call that will fail is told too
    found: dict[str, Any] = {}
    for position, (name, value) in enumerate(bound_arguments.arguments.items()):
        if bound_arguments.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            found |= value
        elif position or name not in ("self", "cls"):
            found[name] = value
    return _plain(found)  # type: ignore[no-any-return]


def _answer(value: Any) -> Any:
    if isinstance(value, Trace):
        raise TypeError("a recorded agent returns its answer; the trace is made from the recording")
    return value


def _text(value: Any) -> str:
    """Return an answer as text: texts as they are, data as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(_plain(value)).decode()


def _plain(value: Any) -> JSON:
    """Return a copy made of JSON's types, which later changes of the value cannot reach."""
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=_told)
    except (TypeError, ValueError, RecursionError):
        return _told(value)


def _told(value: Any) -> JSON:
    """Return what an object of no JSON type says about itself."""
    dump = getattr(value, "model_dump", None)
    try:
        return dump(mode="json") if callable(dump) and not isinstance(value, type) else str(value)
    except Exception as error:  # noqa: BLE001  an object that cannot be written must not change what the agent does
        return f"[{type(value).__name__} that cannot be written: {type(error).__name__}]"


class _Seen(NamedTuple):
    """What a recording knows, as it goes into a trace."""

    events: list[dict[str, JSON]]
    tool_events: list[ToolEvent]
    usage: Usage
    steps: int
    turn: int


def _seen(log: list[tuple[bool, Call]]) -> _Seen:
    """Return what a log of beginnings and ends tells."""
    calls = [call for is_start, call in log if is_start]
    numbers = {id(call): number for number, call in enumerate(calls, 1)}
    turns = _turns(calls)
    tools = [(number, call) for number, call in enumerate(calls, 1) if call.kind == "tool_call"]
    return _Seen(
        events=[
            _event(is_start, call, numbers, turns[numbers[id(call)] - 1])
            for is_start, call in log
            if is_start or call.kind == "tool_call"
        ],
        tool_events=[
            _tool_event(call, number, turns[number - 1], order) for order, (number, call) in enumerate(tools, 1)
        ],
        usage=_usage(calls),
        steps=len(calls),
        turn=max(turns, default=1),
    )


def _event(is_start: bool, call: Call, numbers: dict[int, int], turn: int) -> dict[str, JSON]:
    """Return how something began, or how a tool call ended."""
    number = str(numbers[id(call)])
    if not is_start:
        outcome = {"result": call.result, "success": call.error is None, "error": call.error}
        return {"type": "tool_result", "turn": turn, "tool_call_id": number, **outcome}
    within = numbers.get(id(call._within))
    about: dict[str, JSON] = {"type": call.kind, "turn": turn} | ({"parent_id": str(within)} if within else {})
    if call.kind == "tool_call":
        return about | {"tool_name": call.name, "tool_call_id": number, "args": call.args}
    return about | {"model" if call.kind == "model_call" else "name": call.name}


def _turns(calls: list[Call]) -> list[int]:
    """Return for each call in which turn it was made: each call of the model begins one."""
    turns, models = [], 0
    for call in calls:
        models += call.kind == "model_call"
        turns.append(max(models, 1))
    return turns


def _tool_event(call: Call, number: int, turn: int, order: int) -> ToolEvent:
    return ToolEvent(
        tool_name=call.name,
        args=call.args,
        result=call.result,
        success=call.error is None,
        error=call.error,
        turn=turn,
        sequence=order,
        tool_call_id=str(number),
        duration_ms=call.duration_ms,
    )


def _usage(calls: list[Call]) -> Usage:
    """Return the model calls with their tokens; those are not recorded when one call does not know them."""
    models = [call for call in calls if call.kind == "model_call"]
    read = [call.input_tokens for call in models if call.input_tokens is not None]
    written = [call.output_tokens for call in models if call.output_tokens is not None]
    return Usage(
        llm_calls=len(models),
        input_tokens=sum(read) if models and len(read) == len(models) else None,
        output_tokens=sum(written) if models and len(written) == len(models) else None,
    )
