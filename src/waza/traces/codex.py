"""Codex: `codex exec --json`."""

from __future__ import annotations

import shlex

from waza.traces.base import Item, Reader
from waza.traces.fields import arguments, listing, mapping, name, text, text_of_blocks

_KINDS = ("thread.", "turn.", "item.")
_TOOLS = ("command_execution", "file_change", "mcp_tool_call", "collab_tool_call", "web_search")
_SHELLS = ("bash", "sh", "zsh", "dash")
_NOT_ARGUMENTS = ("id", "type", "status", "tool", "server", "result", "error", "aggregated_output", "exit_code")


class CodexReader(Reader):
    """Events of one `codex exec`: items that start and are completed, and the turn's usage at the end.

    Model answers are not marked: a call that starts after another one came back counts as a new turn. There are no
    times, no model and no prompt. A call of a tool that does not exist leaves nothing here.
    """

    format = "Codex exec --json"
    engine = "codex"
    end_mark = "`turn.completed` event"
    tools = {
        "shell": ("command_execution", "shell", "local_shell", "shell_command", "exec_command"),
        "patch": ("file_change", "apply_patch"),
        "web search": ("web_search",),
        "to-do list": ("todo_list", "update_plan"),
        "sub-agent": ("spawn_agent",),
    }
    reads_skill_files = True
    provider = "openai"

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Return whether this is an event of a thread, a turn or an item."""
        kind = text(item.get("type"))
        return kind.startswith(_KINDS) and (
            "thread_id" in item or isinstance(item.get("item"), dict) or kind.startswith("turn.")
        )

    def begins(self, item: Item) -> bool:
        """Return whether this is the first event of another run, of the same thread or not."""
        return item.get("type") == "thread.started" and self.draft.session_id is not None

    def feed(self, item: Item) -> None:
        """Read one event."""
        draft = self.draft
        match item.get("type"):
            case "thread.started":
                draft.session_id = name(item.get("thread_id"))
            case "item.started" | "item.updated" | "item.completed":
                self._read_item(mapping(item.get("item")), is_over=item["type"] == "item.completed")
            case "turn.completed":
                draft.ended = True
                draft.tokens = {}  # the numbers are those of the whole thread so far
                self._read_usage(mapping(item.get("usage")))
            case "turn.failed":
                draft.ended = True
                draft.fail(text(mapping(item.get("error")).get("message")) or "the turn failed")

    def _read_item(self, item: Item, *, is_over: bool) -> None:
        kind = item.get("type")
        if kind == "agent_message" and is_over:
            self.draft.begin_answer()
            self.draft.add_text(text(item.get("text")))
        elif kind in _TOOLS:
            self._read_call(item, is_over)

    def _read_call(self, item: Item, is_over: bool) -> None:
        identity = item.get("id")
        if self.draft.call_with_id(identity) is None:
            self.draft.begin_answer()
            self.draft.add_call(identity, _tool_name(item), _args(item))
        if is_over:
            result = item.get("aggregated_output", text_of_blocks(mapping(item.get("result")).get("content")))
            succeeded = item.get("status", "completed") == "completed"
            problem = text(mapping(item.get("error")).get("message")) or None
            self.draft.add_result(identity, result, succeeded, error=problem, exit_code=item.get("exit_code"))

    def _read_usage(self, usage: Item) -> None:
        self.draft.add_usage(
            input_tokens=usage.get("input_tokens"),
            output_tokens=usage.get("output_tokens"),
            cache_read_tokens=usage.get("cached_input_tokens"),
            cache_write_tokens=usage.get("cache_write_input_tokens"),
        )


def _tool_name(item: Item) -> str:
    """Return the tool's name as the model knows it if it is recorded, else the item's type."""
    if item.get("type") == "mcp_tool_call":
        return f"mcp__{text(item.get('server'))}__{text(item.get('tool'))}"
    return text(item.get("tool")) or text(item.get("type"))


def _args(item: Item) -> object:
    if "arguments" in item:
        return arguments(item["arguments"])
    if item.get("type") == "command_execution":
        return {"command": unwrapped(item.get("command"))}
    if item.get("type") == "file_change":
        return {"changes": listing(item.get("changes"))}
    return {key: value for key, value in item.items() if key not in _NOT_ARGUMENTS}


def unwrapped(command: object) -> str:
    """Return the command the model gave, without the shell it was wrapped in: `/bin/bash -lc '…'`."""
    if isinstance(command, list):
        parts = [part for part in command if isinstance(part, str)]
        command = shlex.join(parts)
    else:
        command = text(command)
        try:
            parts = shlex.split(command)
        except ValueError:
            return command
    if len(parts) == 3 and parts[1] in ("-lc", "-c") and parts[0].rsplit("/", 1)[-1] in _SHELLS:
        return parts[2]
    return command
