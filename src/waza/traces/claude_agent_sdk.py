"""Claude Agent SDK: its message objects, written as JSON."""

from __future__ import annotations

from waza.traces._messages import read_end, read_message
from waza.traces.base import Item, Reader
from waza.traces.fields import listing, mapping, name, text

_CLASSES = ("SystemMessage", "AssistantMessage", "UserMessage", "ResultMessage", "StreamEvent")


class ClaudeAgentSdkReader(Reader):
    """Messages of one `query()`: the fields of each dataclass, and the class's name under `cls`."""

    format = "Claude Agent SDK messages"
    engine = "claude-code"
    end_mark = "ResultMessage"

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Return whether the class's name is one of the SDK's."""
        return item.get("cls") in _CLASSES

    def begins(self, item: Item) -> bool:
        """Return whether this is the first message of another run."""
        return item.get("subtype") == "init" and self.draft.ended is True

    def feed(self, item: Item) -> None:
        """Read one message."""
        draft = self.draft
        match item.get("cls"):
            case "SystemMessage" if item.get("subtype") == "init":
                session = mapping(item.get("data"))
                draft.session_id = name(session.get("session_id"))
                draft.model = name(session.get("model"))
                if "skills" in session:
                    draft.available_skills = [skill for skill in listing(session["skills"]) if isinstance(skill, str)]
            case "AssistantMessage":
                message = {**item, "id": text(item.get("message_id"))}
                read_message(draft, message, item, is_answer=True)
            case "UserMessage":
                read_message(draft, item, item, is_answer=False)
            case "ResultMessage":
                read_end(draft, item)
