"""Open recordings and their calls: which call belongs to which recording, and how a log of calls becomes a trace.

An exception of a network, a vendor or a credential means that the agent could not run; every other one is a crash of
the agent. Classes are recognised by package and name, so that no vendor's library has to be imported.
"""

from __future__ import annotations

import errno
import ssl
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from typing import Any, Literal, NamedTuple, Self

import msgspec

from waza.errors import EngineError
from waza.model import JSON, Crash, ToolEvent, Trace, TraceStatus, Usage
from waza.spending import sum_amounts

Kind = Literal["tool_call", "model_call", "step"]

CURRENT: ContextVar[Recording | None] = ContextVar("waza_recording", default=None)
WITHIN: ContextVar[RecordedCall | None] = ContextVar("waza_call", default=None)
_LOCK = threading.Lock()
_OPEN: set[Recording] = set()
_MARKED: set[Kind] = set()
"""The kinds of calls that the program marks: without any marked tool, tool calls are not observed."""


class Recording:
    """A recording of an agent, from `with` to the end of the block; `trace` is the result.

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
        self.crash: Crash | None = None
        self._log: list[tuple[bool, RecordedCall]] = []
        self._final: _Summary | None = None
        self._unclaimed = 0
        self._started = self._ended = time.perf_counter()
        self._outer: Recording | None = None
        self._token: Token[Recording | None] | None = None

    def __enter__(self) -> Self:
        if self._token is not None:
            raise RuntimeError("a recording is used once; open another with waza.record")
        self._outer = CURRENT.get()
        self._token = CURRENT.set(self)
        self._started = time.perf_counter()
        with _LOCK:
            _OPEN.add(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        with _LOCK:
            _OPEN.discard(self)
            self._final = _summary(self._log, self._started)
        self._ended = time.perf_counter()
        _reset(CURRENT, self._token)
        if error is not None:
            self.error, self.status = why(error), "error" if is_infrastructure(error) else "failure"
            self.crash = Crash(exception=self.error) if self.status == "failure" else None
            with suppress(Exception):  # an exception may refuse attributes; it reaches the caller anyway
                error._waza_recording = self  # type: ignore[attr-defined]
        if self._unclaimed:
            warnings.warn(self._incomplete(), RuntimeWarning, stacklevel=2)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        self.__exit__(kind, error, traceback)

    @property
    def trace(self) -> Trace:
        """The trace so far; complete after the block. `output` may still be set then."""
        with _LOCK:
            summary = self._final or _summary(self._log, self._started)
        ended = self._ended if self._final else time.perf_counter()
        is_complete = not self._unclaimed
        output = text(self.output)
        answer = [{"type": "assistant_message", "turn": summary.turn, "content": output}] if output else []
        return Trace(
            input=self.input,
            output=output,
            status=self.status,
            error=self.error,
            crash=self.crash,
            model=self.model,
            duration_ms=(ended - self._started) * 1000,
            events=summary.events + answer,
            tool_events=summary.tool_events if is_complete and "tool_call" in _MARKED else None,
            usage=summary.usage if is_complete and "model_call" in _MARKED else None,
            steps=summary.steps if is_complete else None,
            extra={} if is_complete else {"incomplete": self._incomplete()},
        )

    def _incomplete(self) -> str:
        return (
            f"{self._unclaimed} calls came from threads without a recording; "
            "give them waza.recording.bound(function) instead of the function"
        )


def recorded_before(error: BaseException) -> Trace | None:
    """Return the trace of the recording that an exception left first; None where there was none."""
    visited: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in visited:
        visited.add(id(current))
        if isinstance(recording := vars(current).pop("_waza_recording", None), Recording):
            return recording.trace
        current = current.__cause__ or current.__context__
    return None


class RecordedCall:
    """A running tool call, model call or step; its attributes are recorded when it ends."""

    def __init__(self, kind: Kind, name: str, args: JSON = None) -> None:
        _MARKED.add(kind)
        self.kind = kind
        self.name = name
        self.args = args
        self.result: Any = None
        """Its result."""
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.error: str | None = "not finished when the recording ended"
        self.duration_ms: float | None = None
        self._recordings: list[Recording] = []
        self._within: RecordedCall | None = None
        self._token: Token[RecordedCall | None] | None = None
        self._started = 0.0

    def __enter__(self) -> Self:
        if self._started:
            raise RuntimeError(f"this call of '{self.name}' has ended; make another one")
        self._within = WITHIN.get()
        self._token = WITHIN.set(self)
        with _LOCK:
            self._recordings = _open_recordings()
            for recording in self._recordings:
                recording._log.append((True, self))
        self._started = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        _reset(WITHIN, self._token)
        taken_ms = (time.perf_counter() - self._started) * 1000
        result, reason = json_copy(self.result), None if error is None else why(error)
        with _LOCK:
            self.duration_ms, self.result, self.error = taken_ms, result, reason
            for recording in self._recordings:
                if recording in _OPEN:
                    recording._log.append((False, self))

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        self.__exit__(kind, error, traceback)

    @property
    def recorded_result(self) -> JSON:
        """The result of the call; None while it runs."""
        return None if self.duration_ms is None else self.result

    def leave(self) -> None:
        """Stop counting what follows here as part of the call, which continues."""
        _reset(WITHIN, self._token)
        self._token = None

    @contextmanager
    def within(self) -> Iterator[None]:
        """Count what happens in the block as part of the call."""
        token = WITHIN.set(self)
        try:
            yield
        finally:
            _reset(WITHIN, token)


def _reset(variable: ContextVar[Any], token: Token[Any] | None) -> None:
    """Reset a variable; a block that ends in another context than it began in (a generator) has nothing to reset."""
    if token is not None:
        with suppress(ValueError):
            variable.reset(token)


def _open_recordings() -> list[Recording]:
    """Return the open recordings of the current context, inner ones first."""
    recording = CURRENT.get()
    if recording is None:
        for other in _OPEN:
            other._unclaimed += 1
        return []
    recordings = []
    while recording is not None:
        if recording in _OPEN:
            recordings.append(recording)
        recording = recording._outer
    return recordings


class _Summary(NamedTuple):
    """The parts of a trace that come from a log of calls."""

    events: list[dict[str, JSON]]
    tool_events: list[ToolEvent]
    usage: Usage
    steps: int
    turn: int


def _summary(log: list[tuple[bool, RecordedCall]], began: float) -> _Summary:
    """Return the summary of a log of starts and ends; `began` is the start of the recording."""
    calls = [call for is_start, call in log if is_start]
    numbers = {id(call): number for number, call in enumerate(calls, 1)}
    turns = _turns(calls)
    tools = [(number, call) for number, call in enumerate(calls, 1) if call.kind == "tool_call"]
    return _Summary(
        events=[
            _event(is_start, call, numbers, turns[numbers[id(call)] - 1])
            for is_start, call in log
            if is_start or call.kind == "tool_call"
        ],
        tool_events=[
            _tool_event(call, number, turns[number - 1], order, began) for order, (number, call) in enumerate(tools, 1)
        ],
        usage=_usage(calls),
        steps=len(calls),
        turn=max(turns, default=1),
    )


def _event(is_start: bool, call: RecordedCall, numbers: dict[int, int], turn: int) -> dict[str, JSON]:
    """Return the event of a start, or of a tool call's end."""
    number = str(numbers[id(call)])
    if not is_start:
        outcome = {"result": call.recorded_result, "success": call.error is None, "error": call.error}
        return {"type": "tool_result", "turn": turn, "tool_call_id": number, **outcome}
    within = numbers.get(id(call._within))
    about: dict[str, JSON] = {"type": call.kind, "turn": turn} | ({"parent_id": str(within)} if within else {})
    if call.kind == "tool_call":
        return about | {"tool_name": call.name, "tool_call_id": number, "args": call.args}
    return about | {"model" if call.kind == "model_call" else "name": call.name}


def _turns(calls: list[RecordedCall]) -> list[int]:
    """Return the turn of each call; each call of the model begins one."""
    turns, models = [], 0
    for call in calls:
        models += call.kind == "model_call"
        turns.append(max(models, 1))
    return turns


def _tool_event(call: RecordedCall, number: int, turn: int, order: int, began: float) -> ToolEvent:
    return ToolEvent(
        tool_name=call.name,
        args=call.args,
        result=call.recorded_result,
        success=call.error is None,
        error=call.error,
        turn=turn,
        sequence=order,
        tool_call_id=str(number),
        start_ms=max(0.0, (call._started - began) * 1000) if call._started else None,
        duration_ms=call.duration_ms,
    )


def _usage(calls: list[RecordedCall]) -> Usage:
    """Return the model calls with their tokens; they are not recorded when one call has none."""
    models = [call for call in calls if call.kind == "model_call"]
    read = [call.input_tokens for call in models if call.input_tokens is not None]
    written = [call.output_tokens for call in models if call.output_tokens is not None]
    return Usage(
        llm_calls=len(models),
        input_tokens=sum_amounts(read) if models and len(read) == len(models) else None,
        output_tokens=sum_amounts(written) if models and len(written) == len(models) else None,
    )


def text(value: Any) -> str:
    """Return an answer as text: texts as they are, data as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(json_copy(value)).decode()


def json_copy(value: Any) -> JSON:
    """Return a copy in JSON's types, which later changes of the value do not affect."""
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=_described)
    except (TypeError, ValueError, RecursionError):
        return _described(value)


def why(error: BaseException) -> str:
    """Return an exception's class and message."""
    return f"{type(error).__name__}: {_described(error)}"


def _described(value: Any) -> JSON:
    """Return an object that is not JSON as its own dump, else as text."""
    dump = getattr(value, "model_dump", None)
    try:
        return dump(mode="json") if callable(dump) and not isinstance(value, type) else str(value)
    except Exception as error:  # noqa: BLE001  an object that cannot be written must not change what the agent does
        return f"[{type(value).__name__} that cannot be written: {type(error).__name__}]"


_BY_CLASS = {
    "aiohttp": {"ClientConnectionError", "ClientPayloadError", "ServerTimeoutError"},
    "anthropic": {"APIError"},
    "azure": {"AzureError"},
    "botocore": {"HTTPClientError", "NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError"},
    "claude_agent_sdk": {"CLIConnectionError"},
    "cohere": {"ApiError"},
    "google": {"APIError", "GoogleAPIError", "GoogleAuthError"},
    "groq": {"APIError"},
    "grpc": {"RpcError"},
    "http": {"HTTPException"},
    "httpcore": {"NetworkError", "ProtocolError", "ProxyError", "TimeoutException"},
    "httpx": {"TransportError"},
    "mistralai": {"MistralError", "NoResponseError", "SDKError"},
    "ollama": {"ResponseError"},
    "openai": {"APIError"},
    "pydantic_ai": {"ModelAPIError", "ModelHTTPError"},
    "requests": {"ConnectionError", "Timeout"},
    "socket": {"gaierror", "herror"},
    "together": {"TogetherException"},
    "urllib3": {"HTTPError"},
    "websockets": {"ConnectionClosed", "InvalidHandshake"},
}
"""By package: classes of transport and vendor errors; subclasses count too."""
_MISSING_KEY = {("openai", "OpenAIError"), ("anthropic", "AnthropicError"), ("groq", "GroqError")}
"""Raised themselves where no credential is set; their subclasses have other meanings too."""
_BY_STATUS = {
    "aiohttp": {"ClientResponseError"},
    "botocore": {"ClientError"},
    "httpx": {"HTTPStatusError"},
    "huggingface_hub": {"HfHubHTTPError"},
    "requests": {"HTTPError"},
    "urllib": {"HTTPError"},
}
"""By package: classes that carry the HTTP status of any server; the status decides."""
_REFUSED = {401, 402, 403, 407, 408, 429}
_UNREACHABLE = {errno.ETIMEDOUT, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN}


def is_infrastructure(error: BaseException) -> bool:
    """Return whether an exception, or the cause that its `raise … from` names, is a transport or vendor error.

    A group counts when all of its members do. An agent can raise `waza.errors.EngineError` itself.
    """
    visited: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in visited:
        visited.add(id(current))
        if isinstance(current, BaseExceptionGroup):
            return all(map(is_infrastructure, current.exceptions))
        if _is_one(current):
            return True
        current = current.__cause__
    return False


def _is_one(error: BaseException) -> bool:
    if isinstance(error, ConnectionError):
        return not isinstance(error, BrokenPipeError)  # a program that the agent itself wrote to has ended
    if isinstance(error, EngineError | ssl.SSLError):
        return True
    if type(error) is TimeoutError and error.args:
        return True  # sockets give a message ("timed out"); the agent's own `asyncio.timeout` gives none
    kinds = [(_package(kind), kind.__name__) for kind in type(error).__mro__]
    if any(name in _BY_STATUS.get(package, ()) for package, name in kinds):
        status = _status(error)
        return status in _REFUSED or 500 <= status < 600
    if ("urllib", "URLError") in kinds or kinds[0] in _MISSING_KEY:
        return True
    if any(name in _BY_CLASS.get(package, ()) for package, name in kinds):
        return True
    return isinstance(error, OSError) and error.errno in _UNREACHABLE


def _package(kind: type) -> str:
    """Return the package that a class comes from; httpx and httpcore are also called httpx2 and httpcore2."""
    name = kind.__module__.partition(".")[0]
    return name.removesuffix("2") if name.startswith("http") else name


def _status(error: Any) -> int:
    """Return the HTTP status that an error carries; 0 where it has none."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        status = (response.get("ResponseMetadata") or {}).get("HTTPStatusCode")
    else:
        names = ((error, "status"), (error, "code"), (response, "status_code"))
        status = next((value for one, name in names if isinstance(value := getattr(one, name, None), int)), 0)
    return status if isinstance(status, int) else 0
