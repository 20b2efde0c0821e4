"""The transcript of a trial: messages and tool calls in order, merged from a trace's events and tool calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

from waza.model import JSON, ToolEvent, Trace
from waza.reports.failed_checks import shown_value
from waza.reports.html.components import fold, soft
from waza.reports.html.markup import Element, Node, TextBudget, el, href, short
from waza.untrusted.json import encode
from waza.untrusted.text import seconds

Who = Literal["user", "agent", "reasoning", "call", "mark", "other"]
_WHO: dict[str, Who] = {
    "user_message": "user",
    "assistant_message": "agent",
    "reasoning": "reasoning",
    "model_call": "mark",
    "step": "mark",
}
_CALL_EVENTS = ("tool_call", "tool_result")


class TraceStep(NamedTuple):
    """One message, tool call or event."""

    who: Who
    text: str = ""
    """The message; for `mark` and `other` a description."""
    turn: int | None = None
    call: int = 0
    """The number of a tool call, from 1; 0 for anything else."""
    event: ToolEvent | None = None


def steps_of(trace: Trace) -> list[TraceStep]:
    """Return the steps in order, prompt by prompt; calls without an event are at the end of their prompt."""
    calls = list(enumerate(trace.tool_events or (), 1))
    counts = [len(turn.tool_events or ()) for turn in trace.turns or ()]
    if not counts or sum(counts) != len(calls):
        return _steps(trace, calls)
    ends = list(accumulate(counts, initial=0))
    turns = zip(trace.turns or (), pairwise(ends), strict=True)
    return [step for turn, (start, end) in turns for step in _steps(turn, calls[start:end])]


def _steps(trace: Trace, calls: Sequence[tuple[int, ToolEvent]]) -> list[TraceStep]:
    """Return the steps after one prompt, or of the whole trace where calls cannot be assigned to prompts."""
    if not any(event.get("type") == "tool_call" for event in trace.events or ()):
        return list(_unordered(trace, calls))
    steps = list(_merged(trace.events or [], calls))
    if not any(step.who == "user" for step in steps) and trace.input:
        steps.insert(0, TraceStep("user", trace.input))
    if trace.output and not any(step.who == "agent" and step.text == trace.output for step in steps[-20:]):
        steps.append(TraceStep("agent", trace.output))
    return steps


def _unordered(trace: Trace, calls: Sequence[tuple[int, ToolEvent]]) -> Iterator[TraceStep]:
    """Yield the known messages around the calls, where events do not record the order."""
    messages = [step for event in trace.events or () if (step := _message(event)) is not None]
    prompts = [step for step in messages if step.who == "user"]
    yield from prompts or ([TraceStep("user", trace.input)] if trace.input else [])
    yield from (TraceStep("call", turn=event.turn, call=number, event=event) for number, event in calls)
    rest = [step for step in messages if step.who != "user"]
    yield from rest
    if trace.output and not any(step.text == trace.output for step in rest):
        yield TraceStep("agent", trace.output)


def _merged(events: Sequence[dict[str, JSON]], calls: Sequence[tuple[int, ToolEvent]]) -> Iterator[TraceStep]:
    by_id = {event.tool_call_id: (number, event) for number, event in calls if event.tool_call_id}
    open_calls = dict(calls)
    for record in events:
        if record.get("type") != "tool_call":
            if record.get("type") not in _CALL_EVENTS and (step := _message(record)) is not None:
                yield step
            continue
        identity = record.get("tool_call_id")
        call = by_id.get(identity) if isinstance(identity, str) else None
        if call is None or call[0] not in open_calls:
            call = next(iter(open_calls.items()), None)
        if call is not None:
            del open_calls[call[0]]
            yield TraceStep("call", turn=call[1].turn, call=call[0], event=call[1])
    yield from (TraceStep("call", turn=event.turn, call=number, event=event) for number, event in open_calls.items())


def _message(event: dict[str, JSON]) -> TraceStep | None:
    """Return an event that is no call as a step; None where it is empty."""
    kind = str(event.get("type") or "")
    turn = event.get("turn")
    turn = turn if isinstance(turn, int) and not isinstance(turn, bool) else None
    content = event.get("content")
    who = _WHO.get(kind, "other")
    if who in ("user", "agent", "reasoning") and isinstance(content, str):
        return TraceStep(who, content, turn) if content else None
    if who == "mark":
        name = event.get("model") or event.get("name") or ""
        return TraceStep("mark", f"{'model call' if kind == 'model_call' else 'step'} {name}".strip(), turn)
    return TraceStep("other", encode(event).decode(), turn)


STEPS = 100
"""Steps on one page."""
MOST_MESSAGE = 8_000
MOST_OF_A_CALL = 4_000
_WORDS = {"user": "prompt", "agent": "agent", "reasoning": "reasoning", "mark": "", "other": "event"}


def page_of(steps: Sequence[TraceStep], call: int) -> int:
    """Return where the page begins that has a call; 0 where there is no such call."""
    place = next((n for n, step in enumerate(steps) if step.call == call), 0) if call else 0
    return place - place % STEPS


def transcript(steps: Sequence[TraceStep], skip: int, budget: TextBudget, whole: str, chosen: int = 0) -> Node:
    """Return a page of steps; `whole` is the address of a single call, without its number."""
    shown = steps[skip : skip + STEPS]
    if not shown:
        return soft("Nothing was recorded.")
    return el("ol", *(_step(step, budget, whole, chosen) for step in shown), class_="steps", start=skip + 1)


def _step(step: TraceStep, budget: TextBudget, whole: str, chosen: int) -> Element:
    if step.event is not None:
        return _call(step.call, step.event, budget, whole, is_open=step.call == chosen)
    if step.who == "mark":
        return el("li", el("span", budget.line(step.text, 200), class_="soft"), class_="step mark-step")
    if step.who == "other":
        return el(
            "li",
            fold(el("span", f"event {short(step.text, 100)}"), budget.text(step.text, MOST_OF_A_CALL)),
            class_="step",
        )
    return el(
        "li",
        el("span", _WORDS[step.who], class_="who"),
        budget.text(step.text, MOST_MESSAGE),
        class_=f"step {step.who}",
    )


def _call(number: int, event: ToolEvent, budget: TextBudget, whole: str, *, is_open: bool) -> Element:
    args = shown_value(event.args, 1_000_000) or ""
    head: list[Node] = [
        el("span", f"{number} ", class_="soft"),
        el("b", short(event.tool_name, 80) or "(no name)"),
        " ",
    ]
    head.append(el("code", budget.line(args, 110), class_="args"))
    side: list[Node] = []
    if event.duration_ms is not None:
        side.append(el("span", seconds(event.duration_ms), class_="soft"))
    if not event.success:
        side.append(el("span", "✗ failed", class_="failed"))
    inner: list[Node] = [el("p", "arguments", class_="soft"), budget.text(args, MOST_OF_A_CALL)]
    for label, value in (("error", event.error), ("result", shown_value(event.result, 1_000_000))):
        if value:
            inner += [el("p", label, class_="soft"), budget.text(value, MOST_OF_A_CALL)]
    inner.append(el("p", *_facts(event), el("a", "this call alone", href=f"{whole}n={number}"), class_="soft"))
    summary: Node = [el("span", *head, class_="what"), el("span", *side, class_="side")]
    status = "passed" if event.success else "failed"
    return el(
        "li",
        fold(summary, *inner, is_open=is_open, id=f"call-{number}"),
        class_="step call-step",
        data_status=status,
    )


def _facts(event: ToolEvent) -> list[Node]:
    facts = [f"turn {event.turn}"]
    facts += [f"began at {seconds(event.start_ms)}"] if event.start_ms is not None else []
    facts += [f"took {seconds(event.duration_ms)}"] if event.duration_ms is not None else []
    facts += [f"id {short(event.tool_call_id, 60)}"] if event.tool_call_id else []
    return [" · ".join(facts), " · "]


def call_address(run: str, task: str, trial: int) -> str:
    """Return where one call of a trial is shown alone, without its number."""
    return href("runs", run, "call", id=task, trial=trial) + "&"
