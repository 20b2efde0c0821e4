"""Open recordings and the calls that go on in them; which belongs to which; what a log of them tells."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from typing import Any, Literal, NamedTuple, Self

import msgspec

from waza.model import JSON, Crash, ToolEvent, Trace, TraceStatus, Usage
from waza.recording.failures import is_infrastructure
from waza.spending import sum_amounts

Kind = Literal["tool_call", "model_call", "step"]

CURRENT: ContextVar[Recording | None] = ContextVar("waza_recording", default=None)
WITHIN: ContextVar[RecordedCall | None] = ContextVar("waza_call", default=None)
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
        self.crash: Crash | None = None
        self._log: list[tuple[bool, RecordedCall]] = []
        self._seen: _Seen | None = None
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
            self._seen = _seen(self._log, self._started)
        self._ended = time.perf_counter()
        _back(CURRENT, self._token)
        if error is not None:
            self.error, self.status = why(error), "error" if is_infrastructure(error) else "failure"
            self.crash = Crash(exception=self.error) if self.status == "failure" else None
            with suppress(Exception):  # an exception may refuse attributes; it goes on to the caller all the same
                error._waza_recording = self  # type: ignore[attr-defined]
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
            seen = self._seen or _seen(self._log, self._started)
        ended = self._ended if self._seen else time.perf_counter()
        whole = not self._unclaimed
        output = text(self.output)
        answer = [{"type": "assistant_message", "turn": seen.turn, "content": output}] if output else []
        return Trace(
            input=self.input,
            output=output,
            status=self.status,
            error=self.error,
            crash=self.crash,
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


def recorded_before(error: BaseException) -> Trace | None:
    """Return what the outermost recording that an exception came through had seen; None where there was none."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        if isinstance(recording := vars(found).pop("_waza_recording", None), Recording):
            return recording.trace
        found = found.__cause__ or found.__context__
    return None


class RecordedCall:
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
        self._within: RecordedCall | None = None
        self._token: Token[RecordedCall | None] | None = None
        self._started = 0.0

    def __enter__(self) -> Self:
        if self._started:
            raise RuntimeError(f"this call of '{self.name}' is over; make another one")
        self._within = WITHIN.get()
        self._token = WITHIN.set(self)
        with _LOCK:
            self._recordings = _claimed()
            for recording in self._recordings:
                recording._log.append((True, self))
        self._started = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        _back(WITHIN, self._token)
        taken_ms = (time.perf_counter() - self._started) * 1000
        result, reason = plain(self.result), None if error is None else why(error)
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
    def told_result(self) -> JSON:
        """What came of the call; nothing yet while it goes on."""
        return None if self.duration_ms is None else self.result

    def leave(self) -> None:
        """Let what follows here not count as part of the call, though it goes on."""
        _back(WITHIN, self._token)
        self._token = None

    @contextmanager
    def within(self) -> Iterator[None]:
        """Let what happens in the block count as part of the call."""
        token = WITHIN.set(self)
        try:
            yield
        finally:
            _back(WITHIN, token)


def _back(variable: ContextVar[Any], token: Token[Any] | None) -> None:
    """Put a variable back; a block that ends in another context than it began in (a generator) leaves none behind."""
    if token is not None:
        with suppress(ValueError):
            variable.reset(token)


def _claimed() -> list[Recording]:
    """Return the open recordings this place in the program belongs to, inner ones first."""
    recording = CURRENT.get()
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


class _Seen(NamedTuple):
    """What a recording knows, as it goes into a trace."""

    events: list[dict[str, JSON]]
    tool_events: list[ToolEvent]
    usage: Usage
    steps: int
    turn: int


def _seen(log: list[tuple[bool, RecordedCall]], began: float) -> _Seen:
    """Return what a log of beginnings and ends tells; `began` is when the recording did."""
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
            _tool_event(call, number, turns[number - 1], order, began) for order, (number, call) in enumerate(tools, 1)
        ],
        usage=_usage(calls),
        steps=len(calls),
        turn=max(turns, default=1),
    )


def _event(is_start: bool, call: RecordedCall, numbers: dict[int, int], turn: int) -> dict[str, JSON]:
    """Return how something began, or how a tool call ended."""
    number = str(numbers[id(call)])
    if not is_start:
        outcome = {"result": call.told_result, "success": call.error is None, "error": call.error}
        return {"type": "tool_result", "turn": turn, "tool_call_id": number, **outcome}
    within = numbers.get(id(call._within))
    about: dict[str, JSON] = {"type": call.kind, "turn": turn} | ({"parent_id": str(within)} if within else {})
    if call.kind == "tool_call":
        return about | {"tool_name": call.name, "tool_call_id": number, "args": call.args}
    return about | {"model" if call.kind == "model_call" else "name": call.name}


def _turns(calls: list[RecordedCall]) -> list[int]:
    """Return for each call in which turn it was made: each call of the model begins one."""
    turns, models = [], 0
    for call in calls:
        models += call.kind == "model_call"
        turns.append(max(models, 1))
    return turns


def _tool_event(call: RecordedCall, number: int, turn: int, order: int, began: float) -> ToolEvent:
    return ToolEvent(
        tool_name=call.name,
        args=call.args,
        result=call.told_result,
        success=call.error is None,
        error=call.error,
        turn=turn,
        sequence=order,
        tool_call_id=str(number),
        start_ms=max(0.0, (call._started - began) * 1000) if call._started else None,
        duration_ms=call.duration_ms,
    )


def _usage(calls: list[RecordedCall]) -> Usage:
    """Return the model calls with their tokens; those are not recorded when one call does not know them."""
    models = [call for call in calls if call.kind == "model_call"]
    read = [call.input_tokens for call in models if call.input_tokens is not None]
    written = [call.output_tokens for call in models if call.output_tokens is not None]
    return Usage(
        llm_calls=len(models),
        input_tokens=sum_amounts(read) if models and len(read) == len(models) else None,
        output_tokens=sum_amounts(written) if models and len(written) == len(models) else None,
    )


# Any value as JSON-like data or text, copied, so that later changes of it do not reach what was recorded.


def text(value: Any) -> str:
    """Return an answer as text: texts as they are, data as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(plain(value)).decode()


def plain(value: Any) -> JSON:
    """Return a copy made of JSON's types, which later changes of the value cannot reach."""
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=_told)
    except (TypeError, ValueError, RecursionError):
        return _told(value)


def why(error: BaseException) -> str:
    """Return an exception's name and what it says about itself."""
    return f"{type(error).__name__}: {_told(error)}"


def _told(value: Any) -> JSON:
    """Return what an object of no JSON type says about itself."""
    dump = getattr(value, "model_dump", None)
    try:
        return dump(mode="json") if callable(dump) and not isinstance(value, type) else str(value)
    except Exception as error:  # noqa: BLE001  an object that cannot be written must not change what the agent does
        return f"[{type(value).__name__} that cannot be written: {type(error).__name__}]"
