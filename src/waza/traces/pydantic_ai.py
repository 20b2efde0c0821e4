"""pydantic-ai: the messages of a run (`result.all_messages_json()`)."""

from __future__ import annotations

from waza.model import JSON
from waza.traces.aliases import exit_code_in
from waza.traces.base import Item, Reader
from waza.traces.fields import arguments, mapping, mappings, millis, name, text, text_of_blocks, texts, written

_OUTPUT_TOOL = "final_result"


class PydanticAiReader(Reader):
    """Requests and responses of one run, made of parts; a call of the output tool is the answer, not a tool call."""

    format = "pydantic-ai messages"
    engine = "pydantic-ai"

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Return whether this is a message made of parts with a `part_kind`."""
        return any("part_kind" in part for part in mappings(item.get("parts")))

    def feed(self, item: Item) -> None:
        """Read one message."""
        draft = self.draft
        at_ms = millis(item.get("timestamp"))
        draft.add_time(at_ms)
        draft.session_id = draft.session_id or name(item.get("conversation_id")) or name(item.get("run_id"))
        if "usage" in item or item.get("kind") == "response":
            self._read_response(item)
        for part in mappings(item.get("parts")):
            self._read_part(part, at_ms)
        draft.llm_calls = draft.answered

    def _read_response(self, item: Item) -> None:
        draft = self.draft
        draft.begin_answer(is_new=True)
        draft.model = name(item.get("model_name")) or draft.model
        usage = mapping(item.get("usage"))
        draft.add_usage(
            input_tokens=usage.get("input_tokens", usage.get("request_tokens")),
            output_tokens=usage.get("output_tokens", usage.get("response_tokens")),
            cache_read_tokens=usage.get("cache_read_tokens"),
            cache_write_tokens=usage.get("cache_write_tokens"),
        )

    def _read_part(self, part: Item, at_ms: float | None) -> None:
        draft = self.draft
        match part.get("part_kind"):
            case "user-prompt":
                draft.add_prompt(texts(part.get("content")))
            case "text":
                draft.begin_answer()
                draft.add_text(text(part.get("content")))
            case "tool-call" | "builtin-tool-call" if part.get("tool_name") == _OUTPUT_TOOL:
                draft.output = _answer(arguments(part.get("args")))
            case "tool-call" | "builtin-tool-call":
                draft.begin_answer()
                args = arguments(part.get("args"))
                draft.add_call(part.get("tool_call_id"), part.get("tool_name"), args, at_ms=at_ms)
            case "tool-return" | "builtin-tool-return":
                self._read_result(part)
            case "retry-prompt":
                problem = text(part.get("content")) or "the tool asked for another try"
                draft.add_result(part.get("tool_call_id"), part.get("content"), False, error=problem)

    def _read_result(self, part: Item) -> None:
        identity = part.get("tool_call_id")
        call = self.draft.call_with_id(identity)
        result = text_of_blocks(part.get("content"))
        code = exit_code_in(result, call.name) if call else None
        succeeded = part.get("outcome", "success") == "success"
        self.draft.add_result(identity, result, succeeded, at_ms=millis(part.get("timestamp")), exit_code=code)


def _answer(args: JSON) -> str:
    match args:
        case {"response": str(only)} if len(args) == 1:
            return only
    return written(args)
