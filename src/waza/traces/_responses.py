"""Items of the OpenAI Responses API: messages, calls and their outputs; the Agents SDK and Codex write them too."""

from __future__ import annotations

from waza.model import JSON
from waza.traces._draft import DraftTrace
from waza.traces.aliases import exit_code_in
from waza.traces.base import Item
from waza.traces.fields import arguments, decode, listing, mapping, name, text, text_of_blocks, texts

_OUTPUT = "_output"
_CALL = "_call"
_NOT_ARGUMENTS = ("id", "type", "status", "call_id", "name", "output", "results", "error", "server_label")


def is_item(item: Item) -> bool:
    """Return whether this is a call or an output of a call."""
    kind = text(item.get("type"))
    return kind.endswith((_CALL, _CALL + _OUTPUT)) and ("call_id" in item or "id" in item)


def read_item(draft: DraftTrace, item: Item, *, at_ms: float | None = None) -> None:
    """Read one item; a role without a type is a message."""
    kind = text(item.get("type"))
    if kind.endswith(_OUTPUT):
        _read_output(draft, item, at_ms)
    elif kind.endswith(_CALL):
        _read_call(draft, item, at_ms)
    elif item.get("role") == "assistant":
        draft.begin_answer(_answer_id(item))
        draft.add_text(texts(item.get("content")))
    elif item.get("role") == "user":
        draft.add_prompt(texts(item.get("content")))


def read_usage(draft: DraftTrace, usage: JSON) -> None:
    """Read the tokens of one model call, by the names of either API."""
    reported = mapping(usage)
    details = mapping(reported.get("input_tokens_details", reported.get("prompt_tokens_details")))
    draft.add_usage(
        input_tokens=reported.get("input_tokens", reported.get("prompt_tokens")),
        output_tokens=reported.get("output_tokens", reported.get("completion_tokens")),
        cache_read_tokens=details.get("cached_tokens"),
    )


def _read_call(draft: DraftTrace, item: Item, at_ms: float | None) -> None:
    identity = item.get("call_id", item.get("id"))
    draft.begin_answer(_answer_id(item))
    draft.add_call(identity, _tool_name(item), _args(item), at_ms=at_ms)
    runs_there = "output" in item or "results" in item or (item.get("status") == "completed" and "call_id" not in item)
    if runs_there:
        result = item.get("output", item.get("results"))
        problem = item.get("error")
        draft.add_result(
            identity, result, problem is None, error=None if problem is None else texts(problem) or str(problem)
        )


def _read_output(draft: DraftTrace, item: Item, at_ms: float | None) -> None:
    identity = item.get("call_id", item.get("id"))
    call = draft.call_with_id(identity)
    result, code = _unpacked(item.get("output"))
    if code is None and call:
        code = exit_code_in(result, call.name)
    success = (
        item.get("status") not in ("failed", "incomplete") and mapping(item.get("output")).get("success") is not False
    )
    draft.add_result(identity, result, success, at_ms=at_ms, exit_code=code)


def _unpacked(output: JSON) -> tuple[JSON, JSON]:
    """Return a result and the exit code with it: Codex packs both into JSON text, shells into a list of chunks."""
    if isinstance(output, str) and output.startswith("{") and '"exit_code"' in output:
        try:
            packed = decode(output.encode("utf-8", "replace"))
        except ValueError:
            return output, None
        return mapping(packed).get("output", output), mapping(mapping(packed).get("metadata")).get("exit_code")
    for chunk in listing(output):
        code = mapping(mapping(chunk).get("outcome")).get("exit_code")
        if code is not None:
            return output, code
    return text_of_blocks(output), None


def _tool_name(item: Item) -> str:
    if item.get("type") == "mcp_call":
        return f"mcp__{text(item.get('server_label'))}__{text(item.get('name'))}"
    return name(item.get("name")) or text(item.get("type")).removesuffix(_CALL)


def _args(item: Item) -> JSON:
    if "arguments" in item:
        return arguments(item["arguments"])
    if "input" in item:
        return {"input": item["input"]}
    if isinstance(item.get("action"), dict):
        return item["action"]
    return {key: value for key, value in item.items() if key not in _NOT_ARGUMENTS}


def _answer_id(item: Item) -> str:
    return text(mapping(item.get("provider_data")).get("response_id"))
