"""Messages in the format of Claude Code, which other programs use too: content blocks in events."""

from __future__ import annotations

from waza.model import TraceStatus
from waza.traces._draft import DraftTrace
from waza.traces.aliases import exit_code_in, skill_folder
from waza.traces.base import Item
from waza.traces.fields import (
    arguments,
    count,
    listing,
    mapping,
    mappings,
    millis,
    name,
    reported,
    reported_sum,
    text,
    text_of_blocks,
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
    """Return tokens by our names. Anthropic counts cached input apart, others count it in."""
    read = reported(usage.get("cache_read_input_tokens", usage.get("cacheReadInputTokens")))
    wrote = reported(usage.get("cache_creation_input_tokens", usage.get("cacheCreationInputTokens")))
    fresh = reported(usage.get("input_tokens", usage.get("inputTokens")))
    if engine == "claude-code":
        fresh = reported_sum(fresh, read, wrote)
    output = usage.get("output_tokens", usage.get("outputTokens"))
    return {
        "input_tokens": fresh,
        "output_tokens": output,
        "cache_read_tokens": read,
        "cache_write_tokens": wrote,
    }
