"""Differences with their intervals, one below the other, on an axis with a line at zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from waza.dashboard.markup import Element, Node, el, short


class Difference(NamedTuple):
    """One row: a difference of shares and where it may lie."""

    label: str
    value: float | None
    span: tuple[float, float] | None
    told: str
    is_clear: bool = False
    """Whether more than chance shows it."""


def forest(title: str, rows: Sequence[Difference]) -> Node:
    """Return differences as dots on lines; left of the middle is worse, right of it better."""
    shown = [row for row in rows if row.value is not None]
    if not shown:
        return None
    widest = max([abs(row.value or 0.0) for row in shown] + [abs(end) for row in shown for end in row.span or ()])
    reach = min(1.0, max(0.1, 1.1 * widest))
    head = el("div", el("span", title, class_="tool"), _axis(reach), el("span"), class_="track-row")
    return el("div", head, *(_row(row, reach) for row in shown), class_="timeline forest")


def _x(value: float, reach: float) -> str:
    return f"{50 + 50 * max(-1.0, min(1.0, value / reach)):.2f}%"


def _axis(reach: float) -> Element:
    spots = ((-reach, "start"), (0.0, "middle"), (reach, "end"))
    texts = [el("text", f"{100 * at:+.0f}" if at else "0", x=_x(at, reach), y=12, text_anchor=how, class_="tick-label")
             for at, how in spots]  # fmt: skip
    return el("svg", *texts, height=16, width="100%", aria_hidden="true")


def _row(row: Difference, reach: float) -> Element:
    value = row.value or 0.0
    shapes: list[Node] = [el("line", x1="50%", x2="50%", y1=0, y2=20, class_="zero")]
    if row.span:
        shapes.append(el("line", x1=_x(row.span[0], reach), x2=_x(row.span[1], reach), y1=10, y2=10, class_="reach"))
        shapes += [el("line", x1=_x(end, reach), x2=_x(end, reach), y1=6, y2=14, class_="reach") for end in row.span]
    kind = ("better" if value > 0 else "worse") if row.is_clear and value else ""
    shapes.append(el("circle", cx=_x(value, reach), cy=10, r=5, class_=f"dot {kind}".strip()))
    picture = el("svg", *shapes, height=20, width="100%", aria_hidden="true")
    return el(
        "div",
        el("span", short(row.label, 60), class_="tool"),
        picture,
        el("span", row.told, class_="value"),
        class_="track-row",
    )
