"""Message logs: OpenAI chat, Responses items, Anthropic's content blocks; a conversation, or one message per line."""

from __future__ import annotations

from waza.model import JSON
from waza.traces import _messages
from waza.traces._messages import read_message
from waza.traces.aliases import exit_code_in
from waza.traces.base import Item, Reader
from waza.traces.fields import arguments, mapping, mappings, name, text, text_of_blocks, texts

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_OBJECTS = ("response", "chat.completion")
_LISTS = ("messages", "input", "output", "conversation")


class OpenaiMessagesReader(Reader):
    """One conversation: `{"messages": […]}`, a response object, or one message or item after the other.

    A result has no success flag: it has failed if it is marked as an error or has a non-zero exit code.
    """

    format = "OpenAI or Anthropic messages"

    def __init__(self) -> None:
        super().__init__()
        self._last: JSON = None

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Return whether this is a message, an item of a response, or a whole conversation of them."""
        if item.get("object") in _OBJECTS:
            return True
        if "trajectory_format" in item:
            return False
        lists = [first for key in _LISTS if (first := next(iter(mappings(item.get(key))), None))]
        return any(map(_is_message, lists)) or _is_message(item)

    def begins(self, item: Item) -> bool:
        """Return whether this is another conversation: a whole one, unless it is the response to the one before."""
        if item.get("object") in _OBJECTS:
            return self._last is not None and item.get("previous_response_id") != self._last
        return not _is_message(item) and any(mappings(item.get(key)) for key in _LISTS)

    def feed(self, item: Item) -> None:
        """Read a message, an item, or a whole conversation."""
        if _is_message(item):
            self._read_message(item)
            return
        draft = self.draft
        if isinstance(item.get("input"), str):
            draft.add_prompt(item["input"])
        for key in _LISTS:
            for message in mappings(item.get(key)):
                self._read_message(message)
        for choice in mappings(item.get("choices"))[:1]:
            self._read_message(mapping(choice.get("message")))
        _messages.read_usage(draft, item.get("usage"))
        draft.model = name(item.get("model")) or draft.model
        draft.session_id = draft.session_id or name(item.get("id"))
        self._last = item.get("id") if "object" in item else None
        if item.get("status") == "failed":
            draft.fail(text(mapping(item.get("error")).get("message")) or "the response failed")
        self._read_task_id(item)

    def _read_task_id(self, item: Item) -> None:
        """Keep what says which task a conversation belongs to."""
        for key in ("task_id", "id"):
            if name(item.get(key)) and "object" not in item:
                self.draft.extra[key] = item[key]

    def _read_message(self, message: Item) -> None:
        draft = self.draft
        role = message.get("role")
        blocks = mappings(message.get("content"))
        if role in ("tool", "function"):
            self._read_result(message)
        elif any(block.get("type") in ("tool_use", "tool_result") for block in blocks):
            read_message(draft, message, message, is_answer=role == "assistant")
        elif role == "assistant" and message.get("type") in (None, "message"):
            self._read_answer(message)
        else:
            _messages.read_item(draft, message)
        draft.llm_calls = draft.answered

    def _read_answer(self, message: Item) -> None:
        self.draft.begin_answer(is_new=message.get("type") is None)
        self.draft.add_text(texts(message.get("content")))
        for call in mappings(message.get("tool_calls")):
            function = mapping(call.get("function", call.get("custom")))
            args = arguments(function.get("arguments", function.get("input")))
            self.draft.add_call(call.get("id"), function.get("name"), args)
        legacy = mapping(message.get("function_call"))
        if legacy:
            self.draft.add_call(legacy.get("name"), legacy.get("name"), arguments(legacy.get("arguments")))

    def _read_result(self, message: Item) -> None:
        identity = message.get("tool_call_id") or message.get("name")
        call = self.draft.call_with_id(identity)
        result = text_of_blocks(message.get("content"))
        failed = message.get("is_error") is True or message.get("status") == "error"
        code = exit_code_in(result, call.name) if call else None
        self.draft.add_result(identity, result, not failed, exit_code=code)


def _is_message(item: Item) -> bool:
    if "role" in item and item["role"] in _ROLES and "parts" not in item:
        return "content" in item or "tool_calls" in item or "function_call" in item
    return _messages.is_item(item)
