"""What a judge's answer is put together from, whatever the vendor: text, tool calls, why it ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from waza.errors import JudgeError, decoding_fact
from waza.judges._base import Call
from waza.judges._faults import short
from waza.sandbox.strict_json import parse_json
from waza.spending import NOTHING, is_amount, spent

MAX_CHARACTERS = 1_000_000
"""More than this is no verdict; nothing is kept of it."""
MAX_READ_CHARACTERS = 4 * MAX_CHARACTERS
"""So much is read of an answer that is no verdict any more: its usage is reported at its end."""


class Draft:
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


def take(draft: Draft, answer: Any, what: str, count: Callable[[Any], None], read: Callable[[Any], None]) -> None:
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


def charged(fault: JudgeError, draft: Draft, cost: Callable[[int | None, int | None], float | None]) -> JudgeError:
    """Return a fault with what its request was billed, as far as the server reported that."""
    if draft.input_tokens is not None or draft.output_tokens is not None:
        tokens = (draft.input_tokens, draft.output_tokens)
        fault.spending = spent(cost(*tokens), *tokens, is_whole=draft.is_usage_final)
    elif fault.spending == NOTHING:
        fault.spending = spent(None)
    return fault


def finished(draft: Draft, ends: dict[str, str]) -> Draft:
    """Return the draft of a model that came to an end by itself; what was cut off is no verdict."""
    if draft.fault is not None:
        raise draft.fault
    if not draft.ended:
        raise JudgeError("the answer ended before the model did; if its server cannot stream, set stream: false")
    if draft.ended in ends:
        raise JudgeError(f"the model {ends[draft.ended]}")
    return draft
