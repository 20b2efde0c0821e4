"""Which exceptions mean that an agent could not run because of a network, a vendor or a credential.

Every other exception is a crash of the agent. Classes are recognised by package and name, so that no
vendor's library has to be imported, or even installed.
"""

from __future__ import annotations

import errno
import ssl
from typing import Any

from waza.errors import EngineError

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
