"""What a judge's answer is put together from, whatever the vendor: text, tool calls, why it ended."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from waza.errors import JudgeError
from waza.judges._base import Call
from waza.judges._faults import short
from waza.sandbox.strict_json import parse_json

MAX_CHARACTERS = 1_000_000
"""More than this is no verdict; nothing is kept of it."""


class Draft:
    """An answer as it arrives."""

    def __init__(self) -> None:
        self.text = ""
        self.model: str | None = None
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.ended = ""
        """Why the model stopped, in the vendor's word; empty while it has not."""
        self._calls: dict[Any, list[str]] = {}
        self._ids: dict[int, str] = {}
        self._size = 0

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


def read_arguments(text: str) -> Any:
    """Return a call's arguments; no text at all means none."""
    if not text.strip():
        return {}
    try:
        return parse_json(text)
    except ValueError:
        return text


T = TypeVar("T")


def shaped(answer: Any, shape: type[T], what: str) -> T:
    """Return what an SDK handed on, checked: it takes any types from a server."""
    if not hasattr(answer, "to_dict"):
        raise JudgeError(f"the answer is no {what}: {short(str(answer))}")
    try:
        return msgspec.convert(answer.to_dict(mode="json", warnings=False), shape)
    except msgspec.ValidationError as error:
        raise JudgeError(f"the answer has another shape than a {what}: {error}") from None


def finished(draft: Draft, ends: dict[str, str]) -> Draft:
    """Return the draft of a model that came to an end by itself; what was cut off is no verdict."""
    if not draft.ended:
        raise JudgeError("the answer ended before the model did; if its server cannot stream, set stream: false")
    if draft.ended in ends:
        raise JudgeError(f"the model {ends[draft.ended]}")
    return draft
