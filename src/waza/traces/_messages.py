"""Messages that several programs write: content blocks as in Claude Code, items of the OpenAI Responses API."""

from __future__ import annotations

from waza.model import JSON, TraceStatus
from waza.traces.aliases import exit_code_in, skill_folder
from waza.traces.base import DraftTrace, Item
from waza.traces.fields import (
    arguments,
    count,
    decode,
    listing,
    mapping,
    mappings,
    millis,
    name,
    reported,
    reported_sum,
    text,
    text_of_blocks,
    texts,
)

_BUDGETS = ("error_max_turns", "error_max_budget_usd")
_ALL_THREADS = ("model_usage_since_last_result", "modelUsage", "model_usage")


def read_message(draft: DraftTrace, message: Item, event: Item, *, is_answer: bool) -> None:
    """Read one message; `event` is the event around it, with thread and time."""
    thread = text(event.get("parent_tool_use_id"))
    at_ms = millis(event.get("timestamp"))
    draft.add_time(at_ms)
    content = message.get("content")
    blocks = [{"text": content}] if isinstance(content, str) else mappings(content)
    if is_answer:
        _read_answer(draft, message, blocks, thread, at_ms, name(event.get("agent_id")))
    else:
        _read_user(draft, blocks, event, thread, at_ms)


def _read_answer(
    draft: DraftTrace, message: Item, blocks: list[Item], thread: str, at_ms: float | None, agent: str | None
) -> None:
    if message.get("model") == "<synthetic>":
        return  # a message of the program about an API error, not an answer
    identity = text(message.get("id"))
    draft.begin_answer(identity, thread)
    draft.llm_calls = draft.answered
    if not thread:
        draft.model = name(message.get("model")) or draft.model
    usage = mapping(message.get("usage"))
    if usage:
        draft.usage_by_answer[identity or str(len(draft.usage_by_answer))] = _tokens(usage, draft.engine)
    for block in blocks:
        if "name" in block and "input" in block:
            args = arguments(block["input"])
            draft.add_call(block.get("id"), block["name"], args, at_ms=at_ms, thread=thread, agent=agent)
        elif "text" in block:
            draft.add_text(text(block["text"]), thread)


def _read_user(draft: DraftTrace, blocks: list[Item], event: Item, thread: str, at_ms: float | None) -> None:
    for block in blocks:
        if "tool_use_id" in block:
            _read_result(draft, block, at_ms)
        elif event.get("isSynthetic") or event.get("isMeta"):
            if draft.calls:
                draft.calls[-1].skill_folder = skill_folder(block.get("text"))
        elif "text" in block:
            draft.add_prompt(text(block["text"]), thread)


def _read_result(draft: DraftTrace, block: Item, at_ms: float | None) -> None:
    """Read a tool's result; `is_error` is absent, not false, on some that succeeded."""
    identity = block["tool_use_id"]
    result = text_of_blocks(block.get("content"))
    call = draft.call_with_id(identity)
    code = exit_code_in(result, call.name) if call else None
    draft.add_result(identity, result, block.get("is_error") is not True, at_ms=at_ms, exit_code=code)


def read_end(draft: DraftTrace, event: Item) -> None:
    """Read the last event of a run: final answer, numbers, and whether it is an error."""
    draft.ended = True
    draft.llm_calls = None if _has_subagents(draft) else draft.answered
    draft.session_id = name(event.get("session_id")) or draft.session_id
    draft.duration_ms = count(event.get("duration_ms"))
    draft.add_cost(event.get("total_cost_usd"))
    for usage in _totals(draft, event):
        draft.add_usage(**_tokens(usage, draft.engine))
    answer = text(event.get("result"))
    if event.get("is_error") is True or text(event.get("subtype")).startswith("error"):
        status: TraceStatus = "timeout" if event.get("subtype") in _BUDGETS else "error"
        message_text = answer or "; ".join(item for item in listing(event.get("errors")) if isinstance(item, str))
        draft.fail(message_text or text(event.get("subtype")), status)
        draft.output = "" if status == "error" else None
    elif answer:
        draft.output = answer


def _totals(draft: DraftTrace, event: Item) -> list[Item]:
    """Return the usage of this run: `usage` is the main thread's, `modelUsage` counts a resumed session's past too."""
    since = mapping(event.get(_ALL_THREADS[0]))
    keys = _ALL_THREADS if _has_subagents(draft) else ()
    models = since or next((found for key in keys if (found := mapping(event.get(key)))), {})
    return mappings(list(models.values())) or [mapping(event.get("usage"))]


def _has_subagents(draft: DraftTrace) -> bool:
    """Return whether a sub-agent was at work: its last answer is never printed, so answers cannot be counted."""
    return any("parent_tool_call_id" in call.extra for call in draft.calls)


def _tokens(usage: Item, engine: str | None) -> Item:
    """Return tokens by our names. Anthropic counts cached input separately; others include it."""
    read = reported(usage.get("cache_read_input_tokens", usage.get("cacheReadInputTokens")))
    wrote = reported(usage.get("cache_creation_input_tokens", usage.get("cacheCreationInputTokens")))
    input_tokens = reported(usage.get("input_tokens", usage.get("inputTokens")))
    if engine == "claude-code":
        input_tokens = reported_sum(input_tokens, read, wrote)
    output = usage.get("output_tokens", usage.get("outputTokens"))
    return {
        "input_tokens": input_tokens,
        "output_tokens": output,
        "cache_read_tokens": read,
        "cache_write_tokens": wrote,
    }


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
    is_server_side = (
        "output" in item or "results" in item or (item.get("status") == "completed" and "call_id" not in item)
    )
    if is_server_side:
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
