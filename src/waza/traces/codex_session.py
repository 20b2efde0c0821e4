"""Codex: the session files it keeps on disk (`~/.codex/sessions/**/rollout-*.jsonl`)."""

from __future__ import annotations

from waza.traces._messages import read_item
from waza.traces.base import Item, Reader
from waza.traces.codex import unwrapped
from waza.traces.fields import mapping, millis, name, text

_KINDS = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_SHELLS = ("shell", "local_shell", "shell_command", "exec_command")


class CodexSessionReader(Reader):
    """Lines of one session: what the model was sent and answered, with times, and a running count of tokens."""

    format = "Codex session file"
    engine = "codex"

    @classmethod
    def recognises(cls, item: Item) -> bool:
        """Return whether this is a line with a type and its payload."""
        return item.get("type") in _KINDS and isinstance(item.get("payload"), dict)

    def begins(self, item: Item) -> bool:
        """Return whether this is the first line of another session."""
        known = self.draft.session_id
        return item.get("type") == "session_meta" and known is not None and mapping(item["payload"]).get("id") != known

    def feed(self, item: Item) -> None:
        """Read one line."""
        draft = self.draft
        at_ms = millis(item.get("timestamp"))
        draft.add_time(at_ms)
        payload = mapping(item.get("payload"))
        match item.get("type"):
            case "session_meta":
                draft.session_id = name(payload.get("id"))
            case "turn_context":
                draft.model = name(payload.get("model")) or draft.model
            case "response_item" if payload.get("role") != "user":
                self._read_item(payload, at_ms)
            case "event_msg":
                self._read_event(payload)

    def _read_item(self, payload: Item, at_ms: float | None) -> None:
        read_item(self.draft, payload, at_ms=at_ms)
        call = self.draft.calls[-1] if self.draft.calls else None
        if call and call.name in _SHELLS and isinstance(call.args, dict):
            for key in ("command", "cmd"):
                if key in call.args:
                    call.args = {**call.args, key: unwrapped(call.args[key])}

    def _read_event(self, payload: Item) -> None:
        """Read what is only in events: the user's own prompt (without what Codex puts before it), tokens, errors."""
        draft = self.draft
        match payload.get("type"):
            case "user_message":
                draft.add_prompt(text(payload.get("message")))
            case "token_count":
                total = mapping(mapping(payload.get("info")).get("total_token_usage"))
                if total:
                    draft.tokens = {}
                    draft.add_usage(
                        input_tokens=total.get("input_tokens"),
                        output_tokens=total.get("output_tokens"),
                        cache_read_tokens=total.get("cached_input_tokens"),
                    )
            case "error":
                draft.fail(text(payload.get("message")) or "the session failed")
            case "turn_aborted":
                draft.fail(f"the turn was aborted: {text(payload.get('reason'))}")
