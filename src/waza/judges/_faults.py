"""What a vendor's SDK raised, as a sentence about the judge: which faults pass, and how long to wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from waza.errors import JudgeError
from waza.judges._retry import REPEATED, asked_wait
from waza.spending import Spending

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
