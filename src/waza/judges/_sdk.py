"""What the vendors' SDKs have in common: drafts of replies, time limits, errors, refused parameters, API keys."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from waza.errors import JudgeError, SpecError, decoding_fact
from waza.judges.base import Call, Reply, Timeouts
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
_HEAD_BYTES = 2 * _SHOWN
"""How much of an answer's body is kept for messages."""
_MOST_REFUSAL = 2_000
"""A longer answer than this may quote the question, so a parameter's name in it means nothing."""
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
        self.status = 0
        """The HTTP status of the answer; 0 while there is none."""
        self.head = b""
        """The first bytes of the answer's body."""
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
            raise JudgeError(f"the answer is not a {what}; is base_url right?")
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


def finished(draft: ReplyDraft, ends: dict[str, str], *, is_streamed: bool) -> ReplyDraft:
    """Return the draft if the model finished by itself; raise JudgeError if it was cut off."""
    if draft.fault is not None:
        raise draft.fault
    if not draft.ended:
        advice = "; if its server cannot stream, set stream: false" if is_streamed else ""
        raise JudgeError(f"the answer ended before the model did{advice}")
    if draft.ended in ends:
        raise JudgeError(f"the model {ends[draft.ended]}")
    return draft


async def chunks(opening: Awaitable[Any], limits: Timeouts, draft: ReplyDraft) -> AsyncIterator[Any]:
    """Yield the chunks of the stream that `opening` opens; raise JudgeError where one exceeds its time limit."""
    stream = None
    try:
        async with within(limits.first_byte_seconds, "did not begin to answer"):
            stream = await opening
            _keep_head(stream.response, draft)
            iterator = aiter(stream)
            chunk = await anext(iterator, _END)
        while chunk is not _END:
            yield chunk
            async with within(limits.idle_seconds, "stopped in the middle of its answer"):
                chunk = await anext(iterator, _END)
    finally:
        if stream is not None:
            await stream.close()


def _keep_head(response: Any, draft: ReplyDraft) -> None:
    """Keep the status and the first bytes of a streamed answer: the SDKs drop what is no event."""
    draft.status, read = response.status_code, response.aiter_bytes

    async def reading(*arguments: Any) -> AsyncIterator[bytes]:
        async for part in read(*arguments):
            draft.head += part[: _HEAD_BYTES - len(draft.head)]
            yield part

    response.aiter_bytes = reading


async def complete_answer(opening: Awaitable[Any], draft: ReplyDraft) -> Any:
    """Return the SDK's object of an answer that is not streamed; `opening` is a call `with_raw_response`."""
    raw = await opening
    draft.status = raw.http_response.status_code
    draft.head = (await raw.http_response.aread())[:_HEAD_BYTES]
    parsed = raw.parse()
    return await parsed if isawaitable(parsed) else parsed


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
        raise JudgeError(f"the model {what} within {seconds:g} s", is_transient=True) from None


class JudgeServer(NamedTuple):
    """Where a judge asks, and which of its settings may help where that fails."""

    address: str
    key: str = ""
    """The variable that holds the key; empty where none is sent."""
    is_streamed: bool = False
    is_forced_by_tool: bool = False
    """Whether the verdict could be asked for as JSON instead of a tool call."""


def fault_of(error: Exception, sdk: Any, server: JudgeServer, draft: ReplyDraft) -> JudgeError:
    """Return an exception as a JudgeError: what happened where, whether it is temporary, what may help, its cost."""
    if isinstance(error, JudgeError):
        return _with_answer(error, server, draft)
    if isinstance(error, sdk.APIStatusError):
        return _status(error, server)
    cause = error.__cause__ or (None if isinstance(error, sdk.APIError) else error)
    is_undecodable = type(cause).__name__ == "DecodingError"
    if (isinstance(error, sdk.APIConnectionError) or _is_transport(error)) and not is_undecodable:
        fact = f"{type(cause).__name__}: {cause}" if cause else str(error)
        is_sent = type(cause).__name__ not in _NOT_SENT
        kind = "connection lost" if is_sent else "no connection"
        fault = JudgeError(
            f"no connection to the judge's model at {server.address}: {short(fact)}", is_transient=True, kind=kind
        )
        fault.spending = fault.spending if is_sent else _NOT_BILLED
        return fault
    if isinstance(error, sdk.APIError) and not is_undecodable:
        fault = JudgeError(f"the model's server broke off: {short(str(error))}", is_transient=_is_temporary(error))
        return _with_answer(fault, server, draft)
    cause = cause or error
    fault = JudgeError(f"the answer cannot be read: {type(cause).__name__}: {short(str(cause))}; is base_url right?")
    return _with_answer(fault, server, draft)


def _with_answer(fault: JudgeError, server: JudgeServer, draft: ReplyDraft) -> JudgeError:
    """Return an error that names the address and, where there was an answer, its status and its first bytes."""
    found = f"{server.address} answered {draft.status}" if draft.status else f"asked {server.address}"
    head = short(draft.head.decode("utf-8", "replace")) if draft.status else ""
    fault.args = (f"{fault} ({found}{f': {head}' if head else ', with an empty body' if draft.status else ''})",)
    return fault


def _is_transport(error: Exception) -> bool:
    """Return whether a connection broke in the middle of a stream: the SDKs pass on their HTTP library's error."""
    return isinstance(error, OSError) or any(cls.__name__ == "TransportError" for cls in type(error).__mro__)


def _status(error: Any, server: JudgeServer) -> JudgeError:
    """Return the JudgeError for an HTTP status, or for an error in a stream that began with 200."""
    status: int = error.status_code
    body = _body(error)
    fact = f"the model's server at {server.address} answered {status}{_advice(status, body, server)}: {short(body)}"
    passing = status in RETRIED or status >= 500 or (status < 400 and _is_temporary(error))
    wait_s = retry_after(error.response.headers) if passing else None
    kind = "5xx" if status >= 500 else str(status) if status in _EVERY_REQUEST else ""
    fault = JudgeError(fact, is_transient=passing, wait_s=wait_s, kind=kind)
    if status >= 400:
        fault.spending = _NOT_BILLED
    return fault


_EVERY_REQUEST = (401, 403, 404)
"""Statuses below 500 that say nothing about the question: every request of this judge gets them."""
_KEY_STATUSES = (401, 403)


def _advice(status: int, body: str, server: JudgeServer) -> str:
    """Return the setting that may help after a status, as the end of a clause; empty where none is known."""
    if status in _KEY_STATUSES:
        if not server.key:
            return "; no key was sent, name its variable in api_key_env"
        return f"; is the key in {server.key} right{'?' if status == 401 else ', and may it use the model?'}"
    if status == 404 or 300 <= status < 400:
        return "; are base_url and model right?"
    if status == 429:
        return "; requests_per_minute or concurrent set a pace"
    words = body.lower()
    if status in (400, 422, 501) and server.is_forced_by_tool and re.search(r"\btool|function call", words):
        return "; if its server has no tool calls, set verdict_by: json_schema"
    if status in (400, 422, 501) and server.is_streamed and re.search(r"\bstream", words):
        return "; if its server cannot stream, set stream: false"
    return ""


def _body(error: Any) -> str:
    """Return the body of an answer with an error status; what the SDK says of it where it was not read."""
    try:
        text: str = error.response.text
    except Exception:  # noqa: BLE001  a body that was not read, or cannot be decoded
        text = ""
    return text or str(error)


class ParametersRefused(Exception):
    """Raised for an answer that refuses parameters which are sent by default."""

    def __init__(self, names: set[str], draft: ReplyDraft) -> None:
        super().__init__(", ".join(sorted(names)))
        self.names = names
        tokens = (draft.input_tokens, draft.output_tokens)
        self.spending = _NOT_BILLED if tokens == (None, None) else spent(None, *tokens)


_REFUSED: dict[tuple[str, str], set[str]] = {}
"""By endpoint and model: the default parameters that it does not take. Learned once in a process."""


async def without_refused(
    endpoint: str, model: str, defaults: set[str], attempt: Callable[[set[str]], Awaitable[Reply]]
) -> Reply:
    """Return the reply of `attempt`, which gets the default parameters to send: without those the model refuses."""
    refused = _REFUSED.setdefault((endpoint, model), set())
    earlier = NOTHING
    while True:
        try:
            reply = await attempt(defaults - refused)
        except ParametersRefused as error:
            earlier += error.spending
            refused |= error.names
        except JudgeError as error:
            error.spending = earlier + error.spending
            raise
        else:
            return replace(reply, earlier=earlier + reply.earlier, unsupported=tuple(sorted(defaults & refused)))


def refused_parameters(error: Exception, sent: set[str]) -> set[str]:
    """Return which of the default parameters that were `sent` an answer refuses: it names them, and is an error."""
    if getattr(error, "status_code", None) not in (400, 422):
        return set()
    body = _body(error)
    return sent & set(re.findall(r"[a-z_]+", body.lower())) if len(body) < _MOST_REFUSAL else set()


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


def key_in(variable: str) -> str:
    """Return the key in an environment variable, or a text for servers that need none where no variable is named.

    Raises SpecError where the variable is not set.
    """
    if not variable:
        return NO_KEY
    if not (key := os.environ.get(variable, "").strip()):
        raise SpecError(f"judge: the environment variable {variable} is not set; it must hold the judge's key")
    return key
