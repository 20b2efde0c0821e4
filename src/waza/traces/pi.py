"""pi: `pi -p --mode json`."""

from __future__ import annotations

from waza.traces.base import Item, Reader
from waza.traces.fields import (
    arguments,
    mapping,
    mappings,
    millis,
    name,
    reported,
    reported_sum,
    text,
    text_of_blocks,
    texts,
)


class PiReader(Reader):
    """Events of one run: `session`, turns, messages, tool executions, and `agent_end`."""

    format = "pi --mode json"
    engine = "pi"
    end_mark = "`agent_end` event"
    tools = {
        "shell": ("bash",),
        "read": ("read",),
        "write": ("write",),
        "edit": ("edit",),
        "list": ("ls",),
        "glob": ("find",),
        "grep": ("grep",),
    }
    reads_skill_files = True

    def __init__(self) -> None:
        super().__init__()
        self._spoke_ms: float | None = None

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Return whether this is one of its events."""
        match item.get("type"):
            case "session":
                return "cwd" in item and "id" in item
            case "agent_start" | "turn_start":
                return len(item) == 1
            case "message_start" | "message_end" | "turn_end":
                return isinstance(item.get("message"), dict)
            case "tool_execution_start" | "tool_execution_end":
                return "toolCallId" in item
        return False

    def begins(self, item: Item) -> bool:
        """Return whether this is the first event of another session."""
        return item.get("type") == "session" and self.draft.session_id is not None

    def feed(self, item: Item) -> None:
        """Read one event."""
        draft = self.draft
        match item.get("type"):
            case "session":
                draft.session_id = name(item.get("id"))
                draft.add_time(millis(item.get("timestamp")))
            case "message_end":
                self._read_message(mapping(item.get("message")))
            case "tool_execution_start":
                draft.begin_answer()
                args = arguments(item.get("args"))
                draft.add_call(item.get("toolCallId"), item.get("toolName"), args, at_ms=self._spoke_ms)
            case "tool_execution_end":
                result = text_of_blocks(mapping(item.get("result")).get("content"))
                draft.add_result(item.get("toolCallId"), result, item.get("isError") is not True)
            case "agent_end":
                draft.ended = True
        draft.llm_calls = draft.answered

    def _read_message(self, message: Item) -> None:
        at_ms = millis(message.get("timestamp"))
        self.draft.add_time(at_ms)
        match message.get("role"):
            case "user":
                self.draft.add_prompt(texts(message.get("content")))
            case "assistant":
                self._spoke_ms = at_ms
                self._read_answer(message)
            case "toolResult":
                self._read_time(message, at_ms)

    def _read_answer(self, message: Item) -> None:
        """Read an answer; one that ended in an error is an error of the run, unless another answer follows."""
        draft = self.draft
        draft.status, draft.error = "success", None
        if message.get("stopReason") in ("error", "aborted"):
            draft.fail(text(message.get("errorMessage")) or text(message.get("stopReason")))
            return
        draft.begin_answer(text(message.get("responseId")))
        draft.model = name(message.get("model")) or draft.model
        draft.add_text(texts([block for block in mappings(message.get("content")) if block.get("type") == "text"]))
        usage = mapping(message.get("usage"))
        read, wrote = reported(usage.get("cacheRead")), reported(usage.get("cacheWrite"))
        draft.add_usage(
            input_tokens=reported_sum(usage.get("input"), read, wrote),
            output_tokens=usage.get("output"),
            cache_read_tokens=read,
            cache_write_tokens=wrote,
        )
        draft.add_cost(mapping(usage.get("cost")).get("total"))

    def _read_time(self, message: Item, at_ms: float | None) -> None:
        """Take when a result came: the time since the model spoke bounds how long the call took."""
        call = self.draft.call_with_id(message.get("toolCallId"))
        if call and at_ms is not None and call.at_ms is not None and at_ms > call.at_ms:
            call.duration_ms = at_ms - call.at_ms
