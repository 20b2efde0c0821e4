"""What a judge's answer is put together from, whatever the vendor: text, tool calls, why it ended."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from waza.errors import JudgeError, SpecError, decoding_fact
from waza.judges.base import Call, Timeouts
from waza.judges.rate_limits import REPEATED, asked_wait
from waza.spending import NOTHING, Spending, is_amount, spent
from waza.untrusted.json import parse_json

MAX_CHARACTERS = 1_000_000
"""More than this is no verdict; nothing is kept of it."""
MAX_READ_CHARACTERS = 4 * MAX_CHARACTERS
"""So much is read of an answer that is no verdict any more: its usage is reported at its end."""


class ReplyDraft:
    """An answer as it arrives."""

    def __init__(self) -> None:
        self.text = ""
        self.model: str | None = None
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.is_usage_final = False
        """Whether the token counts are those of the whole answer."""
        self.fault: JudgeError | None = None
        """Why it is no verdict; what comes after it is read for its usage alone."""
        self.ended = ""
        """Why the model stopped, in the vendor's word; empty while it has not."""
        self._calls: dict[Any, list[str]] = {}
        self._ids: dict[int, str] = {}
        self._size = 0

    def count(self, input_tokens: Any, output_tokens: Any, *, is_final: bool) -> None:
        """Take the token counts that a server reports; one that is no count changes nothing."""
        if (asked := _count(input_tokens)) is not None:
            self.input_tokens = asked
        if (said := _count(output_tokens)) is not None:
            self.output_tokens = said
            self.is_usage_final = is_final

    def write(self, text: str) -> None:
        """Add text."""
        self._grow(text)
        self.text += text

    def call(self, key: Any, name: str = "", arguments: str = "") -> None:
        """Add to the tool call known by `key`."""
        self._grow(name + arguments)
        parts = self._calls.setdefault(key, ["", ""])
        parts[0] += name
        parts[1] += arguments

    def known(self, index: int, id: str | None) -> tuple[int, str]:
        """Return the key of a call that arrives in pieces: some servers give several calls the same index."""
        if id:
            self._ids[index] = id
        return index, self._ids.get(index, "")

    def calls(self) -> tuple[Call, ...]:
        """Return the tool calls; arguments that are no strict JSON stay text, which fits no schema."""
        return tuple(Call(name, read_arguments(text)) for name, text in self._calls.values())

    def _grow(self, text: str) -> None:
        self._size += len(text)
        if self._size > MAX_CHARACTERS:
            raise JudgeError(f"the answer is longer than {MAX_CHARACTERS:,} characters")

    @property
    def is_endless(self) -> bool:
        """Whether it is too long to wait for its end."""
        return self._size > MAX_READ_CHARACTERS

    def spoil(self, fault: JudgeError) -> None:
        """Note why this is no verdict; the first fault counts."""
        self.fault = self.fault or fault


def read_arguments(text: str) -> Any:
    """Return a call's arguments; no text at all means none."""
    if not text.strip():
        return {}
    try:
        return parse_json(text)
    except ValueError:
        return text


def _count(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and is_amount(value) else None


T = TypeVar("T")


def take(draft: ReplyDraft, answer: Any, what: str, count: Callable[[Any], None], read: Callable[[Any], None]) -> None:
    """Take what an SDK handed on: first its usage, which counts whatever else is wrong, then the rest of it."""
    try:
        if not hasattr(answer, "to_dict"):
            raise JudgeError(f"the answer is no {what}: {short(str(answer))}")
        tree = answer.to_dict(mode="json", warnings=False)
        count(tree)
        read(tree)
    except JudgeError as fault:
        draft.spoil(fault)


def shaped(tree: Any, shape: type[T], what: str) -> T:
    """Return an answer's data, checked: an SDK takes any types from a server."""
    try:
        return msgspec.convert(tree, shape)
    except msgspec.ValidationError as error:
        raise JudgeError(f"the answer has another shape than a {what}: {decoding_fact(error, tree)}") from None


def part_of(tree: Any, key: str) -> dict[str, Any]:
    """Return an object in an answer's data; an empty one where there is none."""
    found = tree.get(key) if isinstance(tree, dict) else None
    return found if isinstance(found, dict) else {}


def charged(fault: JudgeError, draft: ReplyDraft, cost: Callable[[int | None, int | None], float | None]) -> JudgeError:
    """Return a fault with what its request was billed, as far as the server reported that."""
    if draft.input_tokens is not None or draft.output_tokens is not None:
        tokens = (draft.input_tokens, draft.output_tokens)
        fault.spending = spent(cost(*tokens), *tokens, is_whole=draft.is_usage_final)
    elif fault.spending == NOTHING:
        fault.spending = spent(None)
    return fault


def finished(draft: ReplyDraft, ends: dict[str, str]) -> ReplyDraft:
    """Return the draft of a model that came to an end by itself; what was cut off is no verdict."""
    if draft.fault is not None:
        raise draft.fault
    if not draft.ended:
        raise JudgeError("the answer ended before the model did; if its server cannot stream, set stream: false")
    if draft.ended in ends:
        raise JudgeError(f"the model {ends[draft.ended]}")
    return draft


# The time limits of one answer that arrives in pieces: until the first, between two, and in all.

_END = object()


async def pieces(opening: Awaitable[Any], limits: Timeouts) -> AsyncIterator[Any]:
    """Yield the pieces of the stream that `opening` opens, each in time; raise JudgeError where one is late."""
    stream = None
    try:
        async with within(limits.first_byte_seconds, "did not begin to answer"):
            stream = await opening
            iterator = aiter(stream)
            piece = await anext(iterator, _END)
        while piece is not _END:
            yield piece
            async with within(limits.idle_seconds, "stopped in the middle of its answer"):
                piece = await anext(iterator, _END)
    finally:
        if stream is not None:
            await stream.close()


@asynccontextmanager
async def within(seconds: float, what: str) -> AsyncIterator[None]:
    """Do something in time; raise JudgeError that says what the model did not do."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise JudgeError(f"the model {what} within {seconds:g} s", is_passing=True) from None


# What a vendor's SDK raised, as a sentence about the judge: which faults pass, and how long to wait.

_PASSING = ("overloaded", "rate_limit", "server_error", "api_error", "timeout", "unavailable")
"""Words in the type of an error that arrives in the middle of a stream and may pass."""
_SHOWN = 300
_REFUSED = Spending(count=1)
"""What a request is billed that the server refused, or that never reached it."""
_NOT_SENT = ("ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol")
"""Errors of the SDKs' HTTP library from before the request was sent."""


def fault_of(error: Exception, sdk: Any) -> JudgeError:
    """Return the fault behind an exception of the SDK; whatever it is, it is no verdict."""
    if isinstance(error, JudgeError):
        return error
    if isinstance(error, sdk.APIStatusError):
        return _status(error)
    if isinstance(error, sdk.APIConnectionError) or _is_transport(error):
        cause = error.__cause__ or (None if isinstance(error, sdk.APIError) else error)
        fact = f"{type(cause).__name__}: {cause}" if cause else str(error)
        fault = JudgeError(f"no connection to the judge's model: {short(fact)}", is_passing=True)
        if type(cause).__name__ in _NOT_SENT:
            fault.spending = _REFUSED
        return fault
    if isinstance(error, sdk.APIError):
        return JudgeError(f"the model's server broke off: {short(str(error))}", is_passing=_passes(error))
    return JudgeError(f"the answer cannot be read: {type(error).__name__}: {short(str(error))}")


def _is_transport(error: Exception) -> bool:
    """Say whether a connection broke in the middle of a stream: the SDKs let their HTTP library's error through."""
    return isinstance(error, OSError) or any(cls.__name__ == "TransportError" for cls in type(error).__mro__)


def _status(error: Any) -> JudgeError:
    """Return the fault behind an HTTP status, or behind an error in a stream that began with 200."""
    status: int = error.status_code
    hint = {401: "; is the key right?", 403: "; may this key use the model?", 404: "; are base_url and model right?"}
    fact = f"the model's server answered {status}{hint.get(status, '')}: {short(str(error))}"
    passing = status in REPEATED or status >= 500 or (status < 400 and _passes(error))
    wait_s = asked_wait(error.response.headers) if passing else None
    fault = JudgeError(fact, is_passing=passing, wait_s=wait_s)
    if status >= 400:
        fault.spending = _REFUSED
    return fault


def reported_with(error: Exception) -> Iterator[Any]:
    """Yield the data that a vendor's error carries, as the SDK gives it and as the server sent it."""
    yield getattr(error, "body", None)
    response = getattr(error, "response", None)
    try:
        yield response.json() if response is not None else None
    except Exception:  # noqa: BLE001  a body that was not read, or is no JSON, reports nothing
        return


def _passes(error: Any) -> bool:
    body = error.body if isinstance(error.body, dict) else {}
    inner = body.get("error")
    told = inner if isinstance(inner, dict) else body
    words = f"{told.get('type')} {told.get('code')}".lower()
    return any(word in words for word in _PASSING)


def short(text: str) -> str:
    """Return a text on one line, cut to what a person reads."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"


# Keys of model servers: from the environment alone, and only to the server they are meant for.

NO_KEY = "no-key-needed"


def key_for(named: str, usual: str, *, has_own_url: bool) -> str:
    """Return the key in the variable `named`, else in the `usual` one, which goes to its vendor's address alone.

    Raises SpecError where a key is needed and its variable is not set.
    """
    if named or not has_own_url:
        variable = named or usual
        if not (key := os.environ.get(variable, "").strip()):
            raise SpecError(f"judge: the environment variable {variable} is not set; it must hold the judge's key")
        return key
    return NO_KEY
