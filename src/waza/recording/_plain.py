"""Any value as JSON-like data or text, copied, so that later changes of it do not reach what was recorded."""

from __future__ import annotations

from typing import Any

import msgspec

from waza.model import JSON


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
