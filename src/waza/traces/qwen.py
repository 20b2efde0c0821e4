"""Qwen Code: `qwen -p --output-format stream-json`; Claude Code's format with differences."""

from __future__ import annotations

from waza.traces._messages import read_end, read_message
from waza.traces.base import Item, Reader
from waza.traces.fields import count, listing, mapping, name, texts


class QwenReader(Reader):
    """Events of one run; a text and the calls after it are messages of their own, though one model answer.

    An error of the model's server is recorded as an answer without tokens, in a run that succeeded.
    """

    format = "Qwen Code stream-json"
    engine = "qwen"
    end_mark = "`result` event"
    tools = {
        "shell": ("run_shell_command",),
        "read": ("read_file",),
        "write": ("write_file",),
        "edit": ("edit",),
        "list": ("list_directory",),
        "glob": ("glob",),
        "grep": ("grep_search", "search_file_content"),
        "fetch": ("web_fetch",),
        "web search": ("web_search",),
        "to-do list": ("todo_write",),
        "sub-agent": ("agent", "task"),
        "skill": ("skill",),
    }
    provider = "alibaba_cloud"

    def __init__(self) -> None:
        super().__init__()
        self._server_error = ""

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Return whether this names Qwen Code, or is a message whose id is its event's."""
        if item.get("type") == "system":
            return "qwen_code_version" in item
        message = item.get("message")
        return (
            item.get("type") == "assistant"
            and isinstance(message, dict)
            and name(item.get("uuid")) is not None
            and message.get("id") == item.get("uuid")
        )

    def begins(self, item: Item) -> bool:
        """Return whether this is the first event of another run."""
        return item.get("subtype") == "init" and self.draft.session_id is not None

    def feed(self, item: Item) -> None:
        """Read one event."""
        draft = self.draft
        draft.session_id = draft.session_id or name(item.get("session_id"))
        match item.get("type"):
            case "system" if item.get("subtype") == "init":
                draft.model = name(item.get("model"))
                offered = item.get("skills", item.get("slash_commands"))
                draft.available_skills = [skill for skill in listing(offered) if isinstance(skill, str)]
            case "assistant" | "user":
                read_message(draft, mapping(item.get("message")), item, is_answer=item["type"] == "assistant")
                if item["type"] == "assistant":
                    self._server_error = _server_error(mapping(item.get("message")))
            case "result":
                read_end(draft, item)
                if self._server_error and draft.status == "success":
                    draft.fail(self._server_error)
                    draft.output = ""


def _server_error(message: Item) -> str:
    """Return the server error in a message; empty when it is an answer."""
    content = texts(message.get("content"))
    output_tokens = count(mapping(message.get("usage")).get("output_tokens"))
    return content if content.startswith("[API Error: ") and output_tokens == 0 else ""
