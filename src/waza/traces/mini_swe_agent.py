"""mini-swe-agent: a trajectory file (`mini -o traj.json`)."""

from __future__ import annotations

import re

from waza.model import TraceStatus
from waza.traces._messages import read_usage
from waza.traces.aliases import exit_code_in
from waza.traces.base import Item, Reader
from waza.traces.fields import amount, arguments, count, mapping, mappings, name, text, texts

_SUBMITS = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
_BUDGETS = ("LimitsExceeded", "TimeExceeded", "ContextWindowExceededError")
_BLOCK = re.compile(r"```(?:bash|mswea_bash_command)[ \t]*\n([\s\S]*?)\n```")


class MiniSweAgentReader(Reader):
    """One trajectory; the command that submits is a call as any other, and succeeded if the run says `Submitted`."""

    format = "mini-swe-agent trajectory"
    engine = "mini-swe-agent"
    end_mark = "exit status"
    tools = {
        "shell": ("bash",),
    }

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Return whether this names the trajectory format, or has its two parts."""
        if text(item.get("trajectory_format")).startswith("mini-swe-agent"):
            return True
        info = mapping(item.get("info"))
        return isinstance(item.get("messages"), list) and ("exit_status" in info or "mini_version" in info)

    def begins(self, item: Item) -> bool:
        """Return whether this is another trajectory, which each one is."""
        return True

    def feed(self, item: Item) -> None:
        """Read the trajectory."""
        draft = self.draft
        info = mapping(item.get("info"))
        draft.model = name(mapping(mapping(mapping(info.get("config"))).get("model")).get("model_name"))
        for message in mappings(item.get("messages")):
            self._read_message(message)
        stats = mapping(info.get("model_stats"))
        draft.add_cost(stats.get("instance_cost"))
        draft.llm_calls = count(stats.get("api_calls")) or draft.answered
        self._read_end(info, mappings(item.get("messages")))

    def _read_message(self, message: Item) -> None:
        draft = self.draft
        more = mapping(message.get("extra"))
        stamp = amount(more.get("timestamp"))
        at_ms = None if stamp is None else stamp * 1000
        draft.add_time(at_ms)
        if message.get("role") == "assistant":
            draft.begin_answer(is_new=True)
            draft.add_text(texts(message.get("content")))
            read_usage(draft, mapping(more.get("response")).get("usage"))
            self._read_calls(message, more, at_ms)
        elif self._waiting() and message.get("role") in ("tool", "user"):
            self._read_result(message, more, at_ms)
        elif message.get("role") == "user":
            draft.add_prompt(texts(message.get("content")))

    def _read_calls(self, message: Item, more: Item, at_ms: float | None) -> None:
        draft = self.draft
        for call in mappings(message.get("tool_calls")):
            function = mapping(call.get("function"))
            draft.add_call(call.get("id"), function.get("name"), arguments(function.get("arguments")), at_ms=at_ms)
        if message.get("tool_calls"):
            return
        commands = [text(action.get("command")) for action in mappings(more.get("actions"))]
        for command in commands or _BLOCK.findall(texts(message.get("content")))[:1]:
            draft.add_call(f"action-{len(draft.calls) + 1}", "bash", {"command": command}, at_ms=at_ms)

    def _waiting(self) -> list[str]:
        return [call.identity for call in self.draft.calls if call.identity and not call.has_result]

    def _read_result(self, message: Item, more: Item, at_ms: float | None) -> None:
        identity = name(message.get("tool_call_id")) or self._waiting()[0]
        result = more.get("raw_output", message.get("content"))
        code = more.get("returncode")
        if code is None:
            code = exit_code_in(result, "bash")
        problem = name(more.get("exception_info"))
        self.draft.add_result(identity, result, True, at_ms=at_ms, exit_code=code, error=problem)

    def _read_end(self, info: Item, messages: list[Item]) -> None:
        draft = self.draft
        last = mapping(messages[-1].get("extra")) if messages else {}
        status = text(info.get("exit_status")) or text(last.get("exit_status"))
        if not status:
            return
        draft.ended = True
        draft.output = text(info.get("submission")) or text(last.get("submission")) or None
        call = draft.calls[-1] if draft.calls else None
        if status == "Submitted":
            if call and _SUBMITS in text(mapping(call.args).get("command")):
                call.success, call.error, call.has_result = True, None, True
            return
        outcome: TraceStatus = "timeout" if status in _BUDGETS else "error"
        draft.fail(f"it ended with {status}", outcome)
