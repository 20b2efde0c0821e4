"""LangChain and LangGraph: messages, alone, in a list, or in the updates of a graph's stream."""

from __future__ import annotations

from collections.abc import Iterator

from waza.model import JSON
from waza.traces.aliases import exit_code_in
from waza.traces.base import Item, Reader
from waza.traces.fields import arguments, mapping, mappings, name, text, text_of_blocks, texts

_KINDS = ("ai", "human", "tool", "system")


class LangchainReader(Reader):
    """Messages of one run, in any of the ways they are written; one that comes again (same id) is taken once."""

    format = "LangChain messages"
    engine = "langgraph"

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Return whether this is a message, or an update of a graph with messages."""
        return any(True for _ in _messages(item))

    def feed(self, item: Item) -> None:
        """Read a message, or those of an update."""
        for kind, message in _messages(item):
            identity = text(message.get("id"))
            if identity and identity in self._seen:
                continue
            self._seen.add(identity)
            self._read_message(kind, message)

    def _read_message(self, kind: str, message: Item) -> None:
        draft = self.draft
        match kind:
            case "human":
                draft.add_prompt(texts(message.get("content")))
            case "ai":
                self._read_answer(message)
            case "tool":
                self._read_result(message)
        draft.llm_calls = draft.answered

    def _read_answer(self, message: Item) -> None:
        draft = self.draft
        draft.begin_answer(is_new=True)
        draft.add_text(texts(message.get("content")))
        for call in mappings(message.get("tool_calls")):
            draft.add_call(call.get("id"), call.get("name"), arguments(call.get("args")))
        for call in mappings(message.get("invalid_tool_calls")):
            draft.add_call(call.get("id"), call.get("name"), arguments(call.get("args")))
            draft.add_result(call.get("id"), None, False, error=text(call.get("error")) or "the arguments are not JSON")
        usage = mapping(message.get("usage_metadata"))
        details = mapping(usage.get("input_token_details"))
        draft.add_usage(
            input_tokens=usage.get("input_tokens"),
            output_tokens=usage.get("output_tokens"),
            cache_read_tokens=details.get("cache_read"),
            cache_write_tokens=details.get("cache_creation"),
        )
        draft.model = name(mapping(message.get("response_metadata")).get("model_name")) or draft.model

    def _read_result(self, message: Item) -> None:
        identity = message.get("tool_call_id")
        call = self.draft.call_with_id(identity)
        result = text_of_blocks(message.get("content"))
        code = exit_code_in(result, call.name) if call else None
        self.draft.add_result(identity, result, message.get("status") != "error", exit_code=code)


def _messages(item: JSON) -> Iterator[tuple[str, Item]]:
    """Yield the messages in an item: itself, or those in a list of a graph's node."""
    found = _message(item)
    if found:
        yield found
        return
    for value in mapping(item).values():
        inner = mapping(value).get("messages", value)
        for message in mappings(inner):
            if found := _message(message):
                yield found


def _message(item: JSON) -> tuple[str, Item] | None:
    """Return kind and fields of a message; None when it is not a message."""
    match item:
        case {"type": str(kind), "data": {"content": _} as fields} if kind in _KINDS:
            return kind, fields
        case {"lc": 1, "id": [*path], "kwargs": {"content": _} as fields} if path:
            kind = str(path[-1]).removesuffix("Message").lower()
            return (kind, fields) if kind in _KINDS else None
        case {"type": str(kind), "content": _, "additional_kwargs": _} if kind in _KINDS:
            return kind, item
    return None
