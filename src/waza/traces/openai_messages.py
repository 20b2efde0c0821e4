"""Message logs: OpenAI chat, Responses items, Anthropic's content blocks; a conversation, or one message a line."""

from __future__ import annotations

from waza.model import JSON
from waza.traces import _responses
from waza.traces._claude_messages import takes_message
from waza.traces.aliases import exit_code_in
from waza.traces.base import Item, Reader
from waza.traces.fields import arguments, mapping, mappings, name, plain, text, texts

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_OBJECTS = ("response", "chat.completion")
_LISTS = ("messages", "input", "output", "conversation")


class OpenaiMessagesReader(Reader):
    """One conversation: `{"messages": […]}`, a response object, or one message or item after the other.

    A result has no word for success: one is taken as failed where it says so itself or tells an exit code.
    """

    format = "OpenAI or Anthropic messages"

    def __init__(self) -> None:
        super().__init__()
        self._last: JSON = None

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Say whether this is a message, an item of a response, or a whole conversation of them."""
        if item.get("object") in _OBJECTS:
            return True
        if "trajectory_format" in item:
            return False
        lists = [first for key in _LISTS if (first := next(iter(mappings(item.get(key))), None))]
        return any(map(_is_message, lists)) or _is_message(item)

    def begins(self, item: Item) -> bool:
        """Say whether this is another conversation: a whole one, unless it is the response to the one before."""
        if item.get("object") in _OBJECTS:
            return self._last is not None and item.get("previous_response_id") != self._last
        return not _is_message(item) and any(mappings(item.get(key)) for key in _LISTS)

    def feed(self, item: Item) -> None:
        """Take a message, an item, or a whole conversation."""
        if _is_message(item):
            self._takes(item)
            return
        draft = self.draft
        if isinstance(item.get("input"), str):
            draft.asks(item["input"])
        for key in _LISTS:
            for message in mappings(item.get(key)):
                self._takes(message)
        for choice in mappings(item.get("choices"))[:1]:
            self._takes(mapping(choice.get("message")))
        _responses.takes_usage(draft, item.get("usage"))
        draft.model = name(item.get("model")) or draft.model
        draft.session_id = draft.session_id or name(item.get("id"))
        self._last = item.get("id") if "object" in item else None
        if item.get("status") == "failed":
            draft.fails(text(mapping(item.get("error")).get("message")) or "the response failed")
        self._keeps(item)

    def _keeps(self, item: Item) -> None:
        """Keep what says which task a conversation belongs to."""
        for key in ("task_id", "id"):
            if name(item.get(key)) and "object" not in item:
                self.draft.extra[key] = item[key]

    def _takes(self, message: Item) -> None:
        draft = self.draft
        role = message.get("role")
        blocks = mappings(message.get("content"))
        if role in ("tool", "function"):
            self._takes_outcome(message)
        elif any(block.get("type") in ("tool_use", "tool_result") for block in blocks):
            takes_message(draft, message, message, is_answer=role == "assistant")
        elif role == "assistant" and message.get("type") in (None, "message"):
            self._takes_answer(message)
        else:
            _responses.takes_item(draft, message)
        draft.llm_calls = draft.answered

    def _takes_answer(self, message: Item) -> None:
        self.draft.answers(is_new=message.get("type") is None)
        self.draft.says(texts(message.get("content")))
        for call in mappings(message.get("tool_calls")):
            function = mapping(call.get("function", call.get("custom")))
            args = arguments(function.get("arguments", function.get("input")))
            self.draft.calls_tool(call.get("id"), function.get("name"), args)
        legacy = mapping(message.get("function_call"))
        if legacy:
            self.draft.calls_tool(legacy.get("name"), legacy.get("name"), arguments(legacy.get("arguments")))

    def _takes_outcome(self, message: Item) -> None:
        identity = message.get("tool_call_id") or message.get("name")
        call = self.draft.called(identity)
        result = plain(message.get("content"))
        failed = message.get("is_error") is True or message.get("status") == "error"
        code = exit_code_in(result, call.name) if call else None
        self.draft.hears(identity, result, not failed, exit_code=code)


def _is_message(item: Item) -> bool:
    if "role" in item and item["role"] in _ROLES and "parts" not in item:
        return "content" in item or "tool_calls" in item or "function_call" in item
    return _responses.is_item(item)
