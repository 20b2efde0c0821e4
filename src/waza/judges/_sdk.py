"""What the vendors' SDKs have in common: drafts of replies, time limits, errors, API keys."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from waza.errors import JudgeError, SpecError, decoding_fact
from waza.judges.base import Call, Timeouts
from waza.judges.rate_limits import RETRIED, retry_after
from waza.spending import NOTHING, Spending, is_amount, spent
from waza.untrusted.json import parse_json

NO_KEY = "no-key-needed"
MAX_CHARACTERS = 1_000_000
"""A longer answer is not a verdict, and not stored."""
MAX_READ_CHARACTERS = 4 * MAX_CHARACTERS
"""How much is read of an answer that is too long: its usage is reported at its end."""
T = TypeVar("T")
_END = object()
_TEMPORARY = ("overloaded", "rate_limit", "server_error", "api_error", "timeout", "unavailable")
"""Words in the type of a temporary error in the middle of a stream."""
_SHOWN = 300
_NOT_BILLED = Spending(count=1)
"""The cost of a request that the server refused, or that never reached it."""
_NOT_SENT = ("ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol")
"""Errors of the SDKs' HTTP library from before the request was sent."""


class ReplyDraft:
    """A reply as it arrives."""

    def __init__(self) -> None:
        self.text = ""
        self.model: str | None = None
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.is_usage_final = False
        """Whether the token counts are those of the whole answer."""
        self.fault: JudgeError | None = None
        """Why it is not a verdict; the rest is read only for its usage."""
        self.ended = ""
        """The vendor's reason why the model stopped; empty while it has not."""
        self._calls: dict[Any, list[str]] = {}
        self._ids: dict[int, str] = {}
        self._size = 0

    def count(self, input_tokens: Any, output_tokens: Any, *, is_final: bool) -> None:
        """Take the token counts that a server reports; an invalid count changes nothing."""
        if (read := _count(input_tokens)) is not None:
            self.input_tokens = read
        if (written := _count(output_tokens)) is not None:
            self.output_tokens = written
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

    def call_key(self, index: int, id: str | None) -> tuple[int, str]:
        """Return the key of a call that arrives in chunks: some servers give several calls the same index."""
        if id:
            self._ids[index] = id
        return index, self._ids.get(index, "")

    def calls(self) -> tuple[Call, ...]:
        """Return the tool calls; arguments that are not strict JSON stay text, which no schema accepts."""
        return tuple(Call(name, read_arguments(text)) for name, text in self._calls.values())

    def _grow(self, text: str) -> None:
        self._size += len(text)
        if self._size > MAX_CHARACTERS:
            raise JudgeError(f"the answer is longer than {MAX_CHARACTERS:,} characters")

    @property
    def is_endless(self) -> bool:
        """Whether it is too long to wait for its end."""
        return self._size > MAX_READ_CHARACTERS

    def reject(self, fault: JudgeError) -> None:
        """Record why this is not a verdict; the first reason counts."""
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


def take(draft: ReplyDraft, answer: Any, what: str, count: Callable[[Any], None], read: Callable[[Any], None]) -> None:
    """Add an SDK's object to the draft: first its usage, which counts even if the rest is invalid."""
    try:
        if not hasattr(answer, "to_dict"):
            raise JudgeError(f"the answer is not a {what}: {short(str(answer))}")
        tree = answer.to_dict(mode="json", warnings=False)
        count(tree)
        read(tree)
    except JudgeError as fault:
        draft.reject(fault)


def shaped(tree: Any, shape: type[T], what: str) -> T:
    """Return an answer's data, validated: the SDKs accept any types from a server."""
    try:
        return msgspec.convert(tree, shape)
    except msgspec.ValidationError as error:
        raise JudgeError(f"the answer has another shape than a {what}: {decoding_fact(error, tree)}") from None


def part_of(tree: Any, key: str) -> dict[str, Any]:
    """Return an object in an answer's data; an empty one where there is none."""
    part = tree.get(key) if isinstance(tree, dict) else None
    return part if isinstance(part, dict) else {}


def charged(fault: JudgeError, draft: ReplyDraft, cost: Callable[[int | None, int | None], float | None]) -> JudgeError:
    """Return an error with the cost of its request, as far as the server reported it."""
    if draft.input_tokens is not None or draft.output_tokens is not None:
        tokens = (draft.input_tokens, draft.output_tokens)
        fault.spending = spent(cost(*tokens), *tokens, is_whole=draft.is_usage_final)
    elif fault.spending == NOTHING:
        fault.spending = spent(None)
    return fault


def finished(draft: ReplyDraft, ends: dict[str, str]) -> ReplyDraft:
    """Return the draft if the model finished by itself; raise JudgeError if it was cut off."""
    if draft.fault is not None:
        raise draft.fault
    if not draft.ended:
        raise JudgeError("the answer ended before the model did; if its server cannot stream, set stream: false")
    if draft.ended in ends:
        raise JudgeError(f"the model {ends[draft.ended]}")
    return draft


async def chunks(opening: Awaitable[Any], limits: Timeouts) -> AsyncIterator[Any]:
    """Yield the chunks of the stream that `opening` opens; raise JudgeError where one exceeds its time limit."""
    stream = None
    try:
        async with within(limits.first_byte_seconds, "did not begin to answer"):
            stream = await opening
            iterator = aiter(stream)
            chunk = await anext(iterator, _END)
        while chunk is not _END:
            yield chunk
            async with within(limits.idle_seconds, "stopped in the middle of its answer"):
                chunk = await anext(iterator, _END)
    finally:
        if stream is not None:
            await stream.close()


@asynccontextmanager
async def within(seconds: float, what: str) -> AsyncIterator[None]:
    """Limit the time of a block; raise JudgeError with `what` the model failed to do."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise JudgeError(f"the model {what} within {seconds:g} s", is_passing=True) from None


def fault_of(error: Exception, sdk: Any) -> JudgeError:
    """Return an exception of an SDK as a JudgeError: whether it is temporary, how long to wait, what it cost."""
    if isinstance(error, JudgeError):
        return error
    if isinstance(error, sdk.APIStatusError):
        return _status(error)
    if isinstance(error, sdk.APIConnectionError) or _is_transport(error):
        cause = error.__cause__ or (None if isinstance(error, sdk.APIError) else error)
        fact = f"{type(cause).__name__}: {cause}" if cause else str(error)
        fault = JudgeError(f"no connection to the judge's model: {short(fact)}", is_passing=True)
        if type(cause).__name__ in _NOT_SENT:
            fault.spending = _NOT_BILLED
        return fault
    if isinstance(error, sdk.APIError):
        return JudgeError(f"the model's server broke off: {short(str(error))}", is_passing=_is_temporary(error))
    return JudgeError(f"the answer cannot be read: {type(error).__name__}: {short(str(error))}")


def _is_transport(error: Exception) -> bool:
    """Return whether a connection broke in the middle of a stream: the SDKs pass on their HTTP library's error."""
    return isinstance(error, OSError) or any(cls.__name__ == "TransportError" for cls in type(error).__mro__)


def _status(error: Any) -> JudgeError:
    """Return the JudgeError for an HTTP status, or for an error in a stream that began with 200."""
    status: int = error.status_code
    hint = {401: "; is the key right?", 403: "; may this key use the model?", 404: "; are base_url and model right?"}
    fact = f"the model's server answered {status}{hint.get(status, '')}: {short(str(error))}"
    passing = status in RETRIED or status >= 500 or (status < 400 and _is_temporary(error))
    wait_s = retry_after(error.response.headers) if passing else None
    fault = JudgeError(fact, is_passing=passing, wait_s=wait_s)
    if status >= 400:
        fault.spending = _NOT_BILLED
    return fault


def data_in(error: Exception) -> Iterator[Any]:
    """Yield the data that a vendor's error carries, as the SDK gives it and as the server sent it."""
    yield getattr(error, "body", None)
    response = getattr(error, "response", None)
    try:
        yield response.json() if response is not None else None
    except Exception:  # noqa: BLE001  a body that was not read, or is not JSON, reports nothing
        return


def _is_temporary(error: Any) -> bool:
    body = error.body if isinstance(error.body, dict) else {}
    inner = body.get("error")
    details = inner if isinstance(inner, dict) else body
    words = f"{details.get('type')} {details.get('code')}".lower()
    return any(word in words for word in _TEMPORARY)


def short(text: str) -> str:
    """Return a text on one line, truncated."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"


def key_for(named: str, usual: str, *, has_own_url: bool) -> str:
    """Return the key in the variable `named`, else in the `usual` one, which is only sent to its vendor's own address.

    Raises SpecError where a key is needed and its variable is not set.
    """
    if named or not has_own_url:
        variable = named or usual
        if not (key := os.environ.get(variable, "").strip()):
            raise SpecError(f"judge: the environment variable {variable} is not set; it must hold the judge's key")
        return key
    return NO_KEY
