"""OpenHands SDK: the events of a conversation."""

from __future__ import annotations

from waza.model import JSON, SkillInvocation
from waza.traces.base import Item, Reader
from waza.traces.fields import arguments, listing, mapping, millis, name, plain, text, texts

_SHARED = ("id", "timestamp", "source")


class OpenhandsReader(Reader):
    """Events of one conversation; `finish` is the answer, not a tool call. Tokens and model are not in the events."""

    format = "OpenHands events"
    engine = "openhands"

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Say whether this is an event with a kind, a source and a time."""
        kind = text(item.get("kind"))
        return all(key in item for key in _SHARED) and kind.endswith(("Event", "Observation", "Condensation"))

    def feed(self, item: Item) -> None:
        """Take one event."""
        draft = self.draft
        at_ms = millis(item.get("timestamp"))
        draft.saw(at_ms)
        draft.skills = draft.skills or []
        match item.get("kind"):
            case "MessageEvent":
                self._takes_message(item)
            case "ActionEvent":
                self._takes_action(item, at_ms)
            case "ObservationEvent":
                self._takes_outcome(item, at_ms)
            case "AgentErrorEvent" | "UserRejectObservation":
                problem = text(item.get("error")) or text(item.get("rejection_reason"))
                draft.hears(item.get("tool_call_id"), None, False, at_ms=at_ms, error=problem or None)
            case "ConversationErrorEvent":
                draft.fails(text(item.get("detail")) or text(item.get("code")) or "the conversation failed")
        draft.llm_calls = draft.answered

    def _takes_message(self, item: Item) -> None:
        message = mapping(item.get("llm_message"))
        said = texts(message.get("content"))
        if item.get("source") == "agent":
            self.draft.answers(text(item.get("llm_response_id")))
            self.draft.says(said)
        elif item.get("source") == "user":
            self.draft.asks(said)
        activated = [SkillInvocation(name=skill) for skill in listing(item.get("activated_skills")) if name(skill)]
        self.draft.skills = [*(self.draft.skills or []), *activated]

    def _takes_action(self, item: Item, at_ms: float | None) -> None:
        draft = self.draft
        draft.answers(text(item.get("llm_response_id")))
        draft.says(texts(item.get("thought")))
        args = _args(item)
        if item.get("tool_name") == "finish":
            draft.output = text(mapping(args).get("message"))
            return
        draft.calls_tool(item.get("tool_call_id"), item.get("tool_name"), args, at_ms=at_ms)

    def _takes_outcome(self, item: Item, at_ms: float | None) -> None:
        seen = mapping(item.get("observation"))
        result = plain(seen.get("content", seen.get("output")))
        code = seen.get("exit_code", mapping(seen.get("metadata")).get("exit_code"))
        succeeded = seen.get("is_error") is not True
        self.draft.hears(item.get("tool_call_id"), result, succeeded, at_ms=at_ms, exit_code=code)


def _args(item: Item) -> JSON:
    told = mapping(item.get("tool_call")).get("arguments")
    if told is not None:
        return arguments(told)
    return {key: value for key, value in mapping(item.get("action")).items() if key != "kind"}
