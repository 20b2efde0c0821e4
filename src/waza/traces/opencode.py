"""OpenCode: `opencode run --format json`."""

from __future__ import annotations

from waza.traces.base import Item, Reader
from waza.traces.fields import amount, arguments, mapping, name, reported, reported_sum, text

_KINDS = ("step_start", "text", "tool_use", "step_finish", "error", "reasoning")


class OpencodeReader(Reader):
    """Events of one run, each with the session's id: steps, texts, and tool calls when they are over.

    There is no prompt and no model; the call that names the session is not counted.
    """

    format = "OpenCode --format json"
    engine = "opencode"
    end_mark = "last `step_finish` event"
    tools = {
        "shell": ("bash",),
        "read": ("read",),
        "write": ("write",),
        "edit": ("edit",),
        "patch": ("patch", "apply_patch"),
        "list": ("list",),
        "glob": ("glob",),
        "grep": ("grep",),
        "fetch": ("webfetch",),
        "web search": ("websearch",),
        "to-do list": ("todowrite",),
        "sub-agent": ("task",),
        "skill": ("skill",),
    }

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Return whether this is an event of a session with a part, or its error."""
        has_body = isinstance(item.get("part"), dict) or "error" in item
        return item.get("type") in _KINDS and "sessionID" in item and has_body

    def begins(self, item: Item) -> bool:
        """Return whether this is an event of another session."""
        known, other = self.draft.session_id, name(item.get("sessionID"))
        return None not in (known, other) and known != other

    def feed(self, item: Item) -> None:
        """Read one event."""
        draft = self.draft
        draft.session_id = draft.session_id or name(item.get("sessionID"))
        draft.add_time(amount(item.get("timestamp")))
        part = mapping(item.get("part"))
        match item.get("type"):
            case "step_start":
                draft.begin_answer(text(part.get("messageID")))
            case "text":
                draft.add_text(text(part.get("text")))
            case "tool_use":
                self._read_call(part)
            case "step_finish":
                draft.ended = part.get("reason") not in ("tool-calls", "tool_calls")
                self._read_usage(part)
            case "error":
                draft.ended = True
                problem = mapping(item.get("error"))
                message = text(mapping(problem.get("data")).get("message")) or text(problem.get("name"))
                draft.fail(message or "the run ended with an error")
        draft.llm_calls = draft.answered

    def _read_call(self, part: Item) -> None:
        state = mapping(part.get("state"))
        time = mapping(state.get("time"))
        start, end = amount(time.get("start")), amount(time.get("end"))
        identity = part.get("callID")
        self.draft.add_call(identity, part.get("tool"), arguments(state.get("input")), at_ms=start)
        if state.get("status") in ("pending", "running"):
            return
        is_whole = state.get("status") == "completed" and part.get("tool") != "invalid"
        self.draft.add_result(
            identity,
            state.get("output"),
            is_whole,
            at_ms=end,
            error=name(state.get("error")),
            exit_code=mapping(state.get("metadata")).get("exit"),
        )

    def _read_usage(self, part: Item) -> None:
        """Read a step's tokens; cached ones are counted apart."""
        tokens = mapping(part.get("tokens"))
        cache = mapping(tokens.get("cache"))
        read, wrote = reported(cache.get("read")), reported(cache.get("write"))
        self.draft.add_usage(
            input_tokens=reported_sum(tokens.get("input"), read, wrote),
            output_tokens=tokens.get("output"),
            cache_read_tokens=read,
            cache_write_tokens=wrote,
        )
        self.draft.add_cost(part.get("cost"))
