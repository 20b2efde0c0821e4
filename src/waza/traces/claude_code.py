"""Claude Code: `claude -p --output-format stream-json --verbose`, and the session files it keeps on disk."""

from __future__ import annotations

from waza.traces._messages import read_end, read_message
from waza.traces.base import Item, Reader
from waza.traces.fields import listing, mapping, name, text

_SESSION_KINDS = ("summary", "file-history-snapshot", "queue-operation")


class ClaudeCodeReader(Reader):
    """Events of one run: `system`, `assistant`, `user`, and `result` at the end.

    A session file (`~/.claude/projects/*/*.jsonl`) has the same messages and no `result`.
    """

    format = "Claude Code stream-json"
    engine = "claude-code"
    end_mark = "`result` event"
    tools = {
        "shell": ("Bash",),
        "read": ("Read",),
        "write": ("Write",),
        "edit": ("Edit", "MultiEdit"),
        "list": ("LS",),
        "glob": ("Glob",),
        "grep": ("Grep",),
        "fetch": ("WebFetch",),
        "web search": ("WebSearch",),
        "to-do list": ("TodoWrite",),
        "sub-agent": ("Agent", "Task"),
        "skill": ("Skill",),
    }
    provider = "anthropic"

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Return whether this is one of its events; Qwen Code's look the same but for its name and ids."""
        if "qwen_code_version" in item or "payload" in item:
            return False
        message = item.get("message")
        match item.get("type"):
            case "system":
                return isinstance(item.get("subtype"), str) and "session_id" in item
            case "assistant" | "user":
                is_qwen = isinstance(message, dict) and message.get("id") == item.get("uuid") is not None
                return isinstance(message, dict) and ("session_id" in item or "sessionId" in item) and not is_qwen
            case "result":
                return "is_error" in item and "session_id" in item
            case "summary":
                return "leafUuid" in item
            case kind:
                return kind in _SESSION_KINDS and ("sessionId" in item or "messageId" in item)

    def begins(self, item: Item) -> bool:
        """Return whether this is the first event of another run, of the same session or not."""
        if item.get("subtype") == "init":
            return self.draft.ended is True or self.draft.session_id not in (None, _session(item))
        return "sessionId" in item and self.draft.session_id not in (None, _session(item))

    def feed(self, item: Item) -> None:
        """Read one event."""
        draft = self.draft
        draft.session_id = draft.session_id or _session(item)
        if "sessionId" in item and draft.ended is False:
            draft.ended = None
        match item.get("type"):
            case "system" if item.get("subtype") == "init":
                draft.model = draft.model or name(item.get("model"))
                if "skills" in item:
                    draft.available_skills = [skill for skill in listing(item["skills"]) if isinstance(skill, str)]
            case "assistant" | "user":
                side = text(item.get("agentId")) or "sidechain"
                event = item | {"parent_tool_use_id": side} if item.get("isSidechain") is True else item
                read_message(draft, mapping(item.get("message")), event, is_answer=item["type"] == "assistant")
            case "result":
                read_end(draft, item)


def _session(item: Item) -> str | None:
    return text(item.get("session_id")) or text(item.get("sessionId")) or None
