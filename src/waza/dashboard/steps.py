"""What an agent did, in order: messages and tool calls, put together from a trace's events and its tool calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

from waza.model import JSON, ToolEvent, Trace
from waza.results.plain import encode

Who = Literal["asked", "said", "thought", "call", "mark", "other"]
_WHO: dict[str, Who] = {
    "user_message": "asked", "assistant_message": "said", "reasoning": "thought", "model_call": "mark", "step": "mark",
}  # fmt: skip
_PASSED_OVER = ("tool_call", "tool_result")


class Step(NamedTuple):
    """One thing that happened."""

    who: Who
    text: str = ""
    """What was said; for `mark` and `other` what it is."""
    turn: int | None = None
    call: int = 0
    """The number of a tool call, from 1; 0 for anything else."""
    event: ToolEvent | None = None


def steps_of(trace: Trace) -> list[Step]:
    """Return what happened in order, prompt by prompt; calls that no event tells of stand at the end of theirs."""
    calls = list(enumerate(trace.tool_events or (), 1))
    counts = [len(turn.tool_events or ()) for turn in trace.turns or ()]
    if not counts or sum(counts) != len(calls):
        return _steps(trace, calls)
    ends = list(accumulate(counts, initial=0))
    turns = zip(trace.turns or (), pairwise(ends), strict=True)
    return [step for turn, (start, end) in turns for step in _steps(turn, calls[start:end])]


def _steps(trace: Trace, calls: Sequence[tuple[int, ToolEvent]]) -> list[Step]:
    """Return what happened after one prompt, or where nobody can tell which call belongs to which."""
    if not any(event.get("type") == "tool_call" for event in trace.events or ()):
        return list(_plain(trace, calls))
    steps = list(_merged(trace.events or [], calls))
    if not any(step.who == "asked" for step in steps) and trace.input:
        steps.insert(0, Step("asked", trace.input))
    if trace.output and not any(step.who == "said" and step.text == trace.output for step in steps[-20:]):
        steps.append(Step("said", trace.output))
    return steps


def _plain(trace: Trace, calls: Sequence[tuple[int, ToolEvent]]) -> Iterator[Step]:
    """Yield the messages that are known around the calls, where events do not say which came when."""
    said = [step for event in trace.events or () if (step := _message(event)) is not None]
    asked = [step for step in said if step.who == "asked"]
    yield from asked or ([Step("asked", trace.input)] if trace.input else [])
    yield from (Step("call", turn=event.turn, call=number, event=event) for number, event in calls)
    rest = [step for step in said if step.who != "asked"]
    yield from rest
    if trace.output and not any(step.text == trace.output for step in rest):
        yield Step("said", trace.output)


def _merged(events: Sequence[dict[str, JSON]], calls: Sequence[tuple[int, ToolEvent]]) -> Iterator[Step]:
    by_id = {event.tool_call_id: (number, event) for number, event in calls if event.tool_call_id}
    open_calls = dict(calls)
    for told in events:
        if told.get("type") != "tool_call":
            if told.get("type") not in _PASSED_OVER and (step := _message(told)) is not None:
                yield step
            continue
        identity = told.get("tool_call_id")
        found = by_id.get(identity) if isinstance(identity, str) else None
        if found is None or found[0] not in open_calls:
            found = next(iter(open_calls.items()), None)
        if found is not None:
            del open_calls[found[0]]
            yield Step("call", turn=found[1].turn, call=found[0], event=found[1])
    yield from (Step("call", turn=event.turn, call=number, event=event) for number, event in open_calls.items())


def _message(event: dict[str, JSON]) -> Step | None:
    """Return an event that is no call as a step; None where it says nothing."""
    kind = str(event.get("type") or "")
    turn = event.get("turn")
    turn = turn if isinstance(turn, int) and not isinstance(turn, bool) else None
    content = event.get("content")
    who = _WHO.get(kind, "other")
    if who in ("asked", "said", "thought") and isinstance(content, str):
        return Step(who, content, turn) if content else None
    if who == "mark":
        name = event.get("model") or event.get("name") or ""
        return Step("mark", f"{'model call' if kind == 'model_call' else 'step'} {name}".strip(), turn)
    return Step("other", encode(event).decode(), turn)
