"""OpenHands SDK: the events of a conversation."""

from __future__ import annotations

from waza.model import JSON, SkillInvocation
from waza.traces.base import Item, Reader
from waza.traces.fields import arguments, listing, mapping, millis, name, text, text_of_blocks, texts

_SHARED = ("id", "timestamp", "source")


class OpenhandsReader(Reader):
    """Events of one conversation; `finish` is the answer, not a tool call. Tokens and model are not in the events."""

    format = "OpenHands events"
    engine = "openhands"
    tools = {
        "shell": ("terminal", "execute_bash"),
        "patch": ("file_editor", "str_replace_editor"),
        "to-do list": ("task_tracker",),
    }

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Return whether this is an event with a kind, a source and a time."""
        kind = text(item.get("kind"))
        return all(key in item for key in _SHARED) and kind.endswith(("Event", "Observation", "Condensation"))

    def feed(self, item: Item) -> None:
        """Read one event."""
        draft = self.draft
        at_ms = millis(item.get("timestamp"))
        draft.add_time(at_ms)
        draft.skills = draft.skills or []
        match item.get("kind"):
            case "MessageEvent":
                self._read_message(item)
            case "ActionEvent":
                self._read_action(item, at_ms)
            case "ObservationEvent":
                self._read_result(item, at_ms)
            case "AgentErrorEvent" | "UserRejectObservation":
                problem = text(item.get("error")) or text(item.get("rejection_reason"))
                draft.add_result(item.get("tool_call_id"), None, False, at_ms=at_ms, error=problem or None)
            case "ConversationErrorEvent":
                draft.fail(text(item.get("detail")) or text(item.get("code")) or "the conversation failed")
        draft.llm_calls = draft.answered

    def _read_message(self, item: Item) -> None:
        message = mapping(item.get("llm_message"))
        content = texts(message.get("content"))
        if item.get("source") == "agent":
            self.draft.begin_answer(text(item.get("llm_response_id")))
            self.draft.add_text(content)
        elif item.get("source") == "user":
            self.draft.add_prompt(content)
        activated = [SkillInvocation(name=skill) for skill in listing(item.get("activated_skills")) if name(skill)]
        self.draft.skills = [*(self.draft.skills or []), *activated]

    def _read_action(self, item: Item, at_ms: float | None) -> None:
        draft = self.draft
        draft.begin_answer(text(item.get("llm_response_id")))
        draft.add_text(texts(item.get("thought")))
        args = _args(item)
        if item.get("tool_name") == "finish":
            draft.output = text(mapping(args).get("message"))
            return
        draft.add_call(item.get("tool_call_id"), item.get("tool_name"), args, at_ms=at_ms)

    def _read_result(self, item: Item, at_ms: float | None) -> None:
        observation = mapping(item.get("observation"))
        result = text_of_blocks(observation.get("content", observation.get("output")))
        code = observation.get("exit_code", mapping(observation.get("metadata")).get("exit_code"))
        succeeded = observation.get("is_error") is not True
        self.draft.add_result(item.get("tool_call_id"), result, succeeded, at_ms=at_ms, exit_code=code)


def _args(item: Item) -> JSON:
    given = mapping(item.get("tool_call")).get("arguments")
    if given is not None:
        return arguments(given)
    return {key: value for key, value in mapping(item.get("action")).items() if key != "kind"}
