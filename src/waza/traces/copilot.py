"""GitHub Copilot: `copilot --output-format json`, the session's events.jsonl, and the SDK's events.

The three have the same events. Standard output has no tokens; the flattened form (`at_ms`, `tool_call_id`, … next to
`type`) is read too.
"""

from __future__ import annotations

from collections.abc import Iterable

from waza.model import JSON, SkillInvocation, ToolEvent
from waza.traces.aliases import exit_code_in
from waza.traces.base import Item, Reader
from waza.traces.fields import amount, count, mapping, mappings, millis, name, text

_PREFIXES = ("session.", "assistant.", "tool.", "user.", "skill.", "subagent.", "model.", "permission.", "hook.")
_INTERNAL = "report_intent"
"""A tool by which the model announces what it is about to do; not a call of the agent."""
_ENDS = ("result", "session.shutdown", "session.idle")


class CopilotReader(Reader):
    """Events of one session, paired by `toolCallId`; a non-zero exit code is a failure here, not for Copilot."""

    format = "GitHub Copilot session events"
    engine = "copilot"
    end_mark = "`result`, `session.shutdown` or `session.idle` event"
    tools = {
        "shell": ("bash", "powershell"),
        "read": ("view",),
        "write": ("create",),
        "edit": ("edit",),
        "patch": ("apply_patch", "str_replace_editor"),
        "glob": ("glob",),
        "grep": ("grep", "rg"),
        "fetch": ("web_fetch",),
        "web search": ("web_search",),
        "to-do list": ("update_todo",),
        "sub-agent": ("task",),
        "skill": ("skill",),
    }

    def __init__(self) -> None:
        super().__init__()
        self._turn_starts = 0
        self._requests = 0
        self._hidden: set[str] = set()

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Return whether this is a session's event, by its dotted type."""
        kind = text(item.get("type"))
        if kind == "result":
            return "sessionId" in item and "exitCode" in item
        return kind.startswith(_PREFIXES) and (isinstance(item.get("data"), dict) or "at_ms" in item)

    def begins(self, item: Item) -> bool:
        """Return whether this is the first event of another session."""
        if item.get("type") == "session.start":
            known = self.draft.session_id
            return known is not None and mapping(item.get("data")).get("sessionId") != known
        return item.get("type") == "session.skills_loaded" and self.draft.ended is True

    def feed(self, item: Item) -> None:
        """Read one event."""
        kind = text(item.get("type"))
        fields = mapping(item.get("data", item))
        at_ms = millis(item.get("timestamp", item.get("at_ms")))
        self.draft.add_time(at_ms)
        if kind in _ENDS:
            self.draft.ended = True
        if kind.startswith("tool."):
            self._read_tool(kind, fields, at_ms, _thread(item, fields), name(item.get("agentId")))
        elif kind.startswith("assistant.") or kind == "user.message":
            self._read_message(kind, fields, _thread(item, fields))
        else:
            self._read_session(kind, item, fields)
        self.draft.turns = self._turn_starts or None
        self.draft.llm_calls = self._requests or len(self.draft.usage_by_answer) or self.draft.answered

    def _read_message(self, kind: str, fields: Item, thread: str) -> None:
        draft = self.draft
        match kind:
            case "user.message":
                draft.add_prompt(text(fields.get("content")), thread)
            case "assistant.turn_start" if not thread:
                self._turn_starts += 1
            case "assistant.message":
                draft.begin_answer(thread=thread, is_new=True)
                draft.model = name(fields.get("model")) or draft.model
                draft.add_text(text(fields.get("content")), thread)
                draft.status, draft.error = "success", None
            case "assistant.usage":
                self._spends(fields)

    def _read_tool(self, kind: str, fields: Item, at_ms: float | None, thread: str, agent: str | None) -> None:
        identity = name(fields.get("toolCallId", fields.get("tool_call_id")))
        tool = name(fields.get("toolName", fields.get("tool_name")))
        if kind == "tool.execution_start" and tool == _INTERNAL and identity:
            self._hidden.add(identity)
        elif kind == "tool.execution_start" and identity and tool:
            self.draft.add_call(identity, tool, fields.get("arguments"), at_ms=at_ms, thread=thread, agent=agent)
        elif kind == "tool.execution_complete" and identity not in self._hidden:
            self._read_result(identity, fields, at_ms)

    def _read_result(self, identity: str | None, fields: Item, at_ms: float | None) -> None:
        call = self.draft.call_with_id(identity)
        output = fields.get("result")
        result = output["content"] if isinstance(output, dict) and isinstance(output.get("content"), str) else output
        code = mapping(fields.get("shellExecution")).get("exitCode")
        if code is None and call:
            code = exit_code_in(result, call.name)
        problem = name(mapping(fields.get("error")).get("message"))
        succeeded = fields.get("success") is True
        self.draft.add_result(identity, result, succeeded, at_ms=at_ms, error=problem, exit_code=code)

    def _read_session(self, kind: str, item: Item, fields: Item) -> None:
        draft = self.draft
        match kind:
            case "session.start":
                draft.session_id = name(fields.get("sessionId"))
                draft.model = name(fields.get("selectedModel"))
            case "session.tools_updated":
                draft.model = draft.model or name(fields.get("model"))
            case "session.skills_loaded":
                offered = [skill for skill in mappings(fields.get("skills")) if skill.get("enabled") is not False]
                draft.available_skills = [text(skill.get("name")) for skill in offered]
            case "skill.invoked" if name(fields.get("name")):
                invoked = SkillInvocation(name=text(fields["name"]), path=name(fields.get("path")))
                draft.skills = [*(draft.skills or []), invoked]
            case "session.usage_record":
                self._spends(mapping(fields.get("usage")))
            case "session.error":
                draft.fail(text(fields.get("message")) or text(fields.get("errorType")) or "the session failed")
            case "session.shutdown":
                self._read_totals(fields)
            case "result":
                self._read_end(item)

    def _spends(self, usage: Item) -> None:
        key = text(usage.get("apiCallId")) or str(len(self.draft.usage_by_answer))
        self.draft.usage_by_answer[key] = _tokens(usage)

    def _read_totals(self, fields: Item) -> None:
        """Read the session's totals; they count what single records may have missed."""
        totals = mapping(fields.get("accountingSnapshot", fields)).get("modelMetrics")
        models = mappings(list(mapping(totals).values()))
        for model in models:
            self.draft.add_usage(**_tokens(mapping(model.get("usage"))))
        requests = [count(mapping(model.get("requests")).get("count")) for model in models]
        if requests and None not in requests:
            self._requests = sum(number or 0 for number in requests)

    def _read_end(self, item: Item) -> None:
        draft = self.draft
        draft.session_id = name(item.get("sessionId")) or draft.session_id
        draft.duration_ms = amount(mapping(item.get("usage")).get("sessionDurationMs"))
        code = item.get("exitCode")
        if code == 0:
            draft.status, draft.error = "success", None
        elif draft.status == "success":
            draft.fail(f"it exited with code {code}", "failure")


def tool_events(events: Iterable[Item]) -> list[ToolEvent] | None:
    """Return the tool calls of a session's events; None when there are no events at all."""
    reader = CopilotReader()
    is_empty = True
    for event in events:
        is_empty = False
        reader.feed(event)
    return None if is_empty else reader.draft.trace().tool_events


def _thread(item: Item, fields: Item) -> str:
    """Return the call that started the sub-agent an event belongs to; empty for the agent itself."""
    started_by: JSON = fields.get("parentToolCallId", item.get("parentToolCallId"))
    return text(started_by) or text(item.get("agentId"))


def _tokens(usage: Item) -> Item:
    return {
        "input_tokens": usage.get("inputTokens"),
        "output_tokens": usage.get("outputTokens"),
        "cache_read_tokens": usage.get("cacheReadTokens"),
        "cache_write_tokens": usage.get("cacheWriteTokens"),
    }
