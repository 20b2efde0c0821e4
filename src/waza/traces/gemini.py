"""Gemini CLI: `gemini -p --output-format stream-json`."""

from __future__ import annotations

from waza.model import Trace
from waza.traces.aliases import exit_code_in
from waza.traces.base import Item, Reader
from waza.traces.fields import arguments, count, mapping, millis, name, text


class GeminiReader(Reader):
    """Events of one run: `init`, `message`, `tool_use`, `tool_result`, and `result` at the end.

    A shell command that fails is recorded as a success, without an exit code.
    """

    format = "Gemini CLI stream-json"
    engine = "gemini"
    end_mark = "`result` event"
    tools = {
        "shell": ("run_shell_command",),
        "read": ("read_file",),
        "write": ("write_file",),
        "edit": ("replace",),
        "list": ("list_directory",),
        "glob": ("glob",),
        "grep": ("search_file_content", "grep_search"),
        "fetch": ("web_fetch",),
        "web search": ("google_web_search",),
        "to-do list": ("write_todos",),
        "sub-agent": ("delegate_to_agent",),
        "skill": ("activate_skill",),
    }
    provider = "gcp.gemini"

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[str] = []

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Return whether this is one of its events, which all carry a time."""
        if "timestamp" not in item:
            return False
        match item.get("type"):
            case "init":
                return "session_id" in item
            case "message":
                return "role" in item and isinstance(item.get("content"), str)
            case "tool_use":
                return "tool_name" in item
            case "tool_result":
                return "tool_id" in item
            case "result":
                return "stats" in item
        return False

    def begins(self, item: Item) -> bool:
        """Return whether this is the first event of another session."""
        return item.get("type") == "init" and self.draft.session_id is not None

    def feed(self, item: Item) -> None:
        """Read one event."""
        draft = self.draft
        at_ms = millis(item.get("timestamp"))
        draft.add_time(at_ms)
        if item.get("type") != "message" or item.get("delta") is not True:
            self._flush()
        match item.get("type"):
            case "init":
                draft.session_id = name(item.get("session_id"))
                draft.model = name(item.get("model"))
            case "message" if item.get("role") == "assistant":
                draft.begin_answer()
                self._parts.append(text(item.get("content")))
            case "message" if item.get("role") == "user":
                draft.add_prompt(text(item.get("content")))
            case "tool_use":
                draft.begin_answer()
                args = arguments(item.get("parameters"))
                draft.add_call(item.get("tool_id"), item.get("tool_name"), args, at_ms=at_ms)
            case "tool_result":
                self._read_result(item, at_ms)
            case "result":
                self._read_end(item)
        draft.llm_calls = draft.answered

    def traces(self) -> list[Trace]:
        """Return the one trace."""
        self._flush()
        return [self.draft.trace()]

    def _flush(self) -> None:
        """Read the parts of a text as one."""
        self.draft.add_text("".join(self._parts))
        self._parts = []

    def _read_result(self, item: Item, at_ms: float | None) -> None:
        identity = item.get("tool_id")
        call = self.draft.call_with_id(identity)
        result = item.get("output")
        problem = mapping(item.get("error"))
        self.draft.add_result(
            identity,
            result,
            item.get("status") == "success",
            at_ms=at_ms,
            error=name(problem.get("message")),
            exit_code=exit_code_in(result, call.name) if call else None,
        )

    def _read_end(self, item: Item) -> None:
        draft = self.draft
        draft.ended = True
        stats = mapping(item.get("stats"))
        draft.duration_ms = count(stats.get("duration_ms"))
        draft.add_usage(
            input_tokens=stats.get("input_tokens"),
            output_tokens=stats.get("output_tokens"),
            cache_read_tokens=stats.get("cached"),
        )
        models = list(mapping(stats.get("models")))
        draft.model = models[0] if len(models) == 1 else draft.model
        if item.get("status") != "success":
            draft.fail(text(mapping(item.get("error")).get("message")) or "the run ended with an error")
