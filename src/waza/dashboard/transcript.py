"""A trajectory as text: what was asked and said, each tool call folded, a page of steps at a time."""

from __future__ import annotations

from collections.abc import Sequence

from waza.dashboard.markup import Element, Node, el, href, short
from waza.dashboard.parts import fold, soft
from waza.dashboard.room import Room
from waza.dashboard.steps import Step
from waza.model import ToolEvent
from waza.reports._faults import shown_value
from waza.reports._text import seconds

STEPS = 100
"""Steps on one page."""
MOST_SAID = 8_000
MOST_OF_A_CALL = 4_000
_WORDS = {"asked": "asked", "said": "agent", "thought": "reasoning", "mark": "", "other": "event"}


def page_of(steps: Sequence[Step], call: int) -> int:
    """Return where the page begins on which a call stands; 0 where there is no such call."""
    place = next((n for n, step in enumerate(steps) if step.call == call), 0) if call else 0
    return place - place % STEPS


def transcript(steps: Sequence[Step], skip: int, room: Room, whole: str, chosen: int = 0) -> Node:
    """Return a page of steps; `whole` is the address of a single call, without its number."""
    shown = steps[skip : skip + STEPS]
    if not shown:
        return soft("Nothing was recorded.")
    return el("ol", *(_step(step, room, whole, chosen) for step in shown), class_="steps", start=skip + 1)


def _step(step: Step, room: Room, whole: str, chosen: int) -> Element:
    if step.event is not None:
        return _call(step.call, step.event, room, whole, is_open=step.call == chosen)
    if step.who == "mark":
        return el("li", el("span", room.line(step.text, 200), class_="soft"), class_="step mark-step")
    if step.who == "other":
        return el(
            "li",
            fold(el("span", f"event {short(step.text, 100)}"), room.text(step.text, MOST_OF_A_CALL)),
            class_="step",
        )
    return el(
        "li", el("span", _WORDS[step.who], class_="who"), room.text(step.text, MOST_SAID), class_=f"step {step.who}"
    )


def _call(number: int, event: ToolEvent, room: Room, whole: str, *, is_open: bool) -> Element:
    args = shown_value(event.args, 1_000_000) or ""
    head: list[Node] = [
        el("span", f"{number} ", class_="soft"),
        el("b", short(event.tool_name, 80) or "(no name)"),
        " ",
    ]
    head.append(el("code", room.line(args, 110), class_="args"))
    side: list[Node] = []
    if event.duration_ms is not None:
        side.append(el("span", seconds(event.duration_ms), class_="soft"))
    if not event.success:
        side.append(el("span", "✗ failed", class_="failed"))
    inner: list[Node] = [el("p", "arguments", class_="soft"), room.text(args, MOST_OF_A_CALL)]
    for label, value in (("error", event.error), ("result", shown_value(event.result, 1_000_000))):
        if value:
            inner += [el("p", label, class_="soft"), room.text(value, MOST_OF_A_CALL)]
    inner.append(el("p", *_facts(event), el("a", "this call alone", href=f"{whole}n={number}"), class_="soft"))
    summary = el("summary", el("span", *head, class_="what"), el("span", *side, class_="side"))
    status = "passed" if event.success else "failed"
    return el(
        "li",
        el("details", summary, *inner, id=f"call-{number}", open=is_open),
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
