"""Two trajectories side by side: equal calls at the start are folded, the first difference is marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from waza.analysis.changes import divergence
from waza.model import ToolEvent
from waza.reports.failed_checks import shown_value
from waza.reports.html.components import fold, pager
from waza.reports.html.markup import Element, Node, TextBudget, el, short
from waza.untrusted.text import plural, seconds

ROWS = 120
"""Rows on one page."""
MOST_CALLS = 1_500
"""Calls after the first difference that are aligned."""
CONTEXT_CALLS = 3
"""Equal calls before the first difference that stay unfolded."""


class AlignedRow(NamedTuple):
    """A row of the table: a call of each side, None where a side has none."""

    before: tuple[int, ToolEvent] | None
    after: tuple[int, ToolEvent] | None
    is_same: bool = False


def rows_of(before: Sequence[ToolEvent], after: Sequence[ToolEvent]) -> tuple[list[AlignedRow], int]:
    """Return rows of calls, aligned by tool from the first difference on; and how many are equal before it."""
    alike = divergence(before, after)
    same = min(alike.call - (alike.kind != "same"), len(before), len(after)) if alike else 0
    ones, others = list(enumerate(before, 1)), list(enumerate(after, 1))
    rows = [AlignedRow(one, other, True) for one, other in zip(ones[:same], others[:same], strict=True)]
    left, right = ones[same : same + MOST_CALLS], others[same : same + MOST_CALLS]
    names = [[event.tool_name for _, event in side] for side in (left, right)]
    for tag, i, j, k, m in SequenceMatcher(a=names[0], b=names[1], autojunk=False).get_opcodes():
        rows += _block(left[i:j], right[k:m], is_equal=tag == "equal")
    return rows, same


def _block(
    ones: list[tuple[int, ToolEvent]], others: list[tuple[int, ToolEvent]], *, is_equal: bool
) -> Iterator[AlignedRow]:
    for place in range(max(len(ones), len(others))):
        one = ones[place] if place < len(ones) else None
        other = others[place] if place < len(others) else None
        yield AlignedRow(one, other, bool(is_equal and one and other and one[1].args == other[1].args))


def trajectories(
    before: Sequence[ToolEvent], after: Sequence[ToolEvent], labels: tuple[str, str], skip: int, address: str
) -> Node:
    """Return both trajectories as a table, with equal calls at the start folded."""
    rows, same = rows_of(before, after)
    if not rows:
        return el("p", "Neither called a tool.", class_="soft")
    folded = max(0, same - CONTEXT_CALLS) if same < len(rows) else 0
    budget, left = TextBudget(350_000), rows[folded:]
    shown = left[skip : skip + ROWS]
    first = same - folded - skip
    heads = [el("th", "", scope="col", class_="place", aria_label="equal or different")]
    heads += [el("th", short(label, 60), scope="col") for label in labels]
    body = [_row(row, place == first, budget) for place, row in enumerate(shown)]
    table = el("table", el("thead", el("tr", *heads)), el("tbody", *body), class_="sides")
    start = _start(rows[:folded]) if folded else None
    return [start, el("div", table, class_="wide", tabindex="0", role="region", aria_label="trajectories side by side"),
            pager(address, len(left), skip, ROWS, "rows")]  # fmt: skip


def _start(rows: Sequence[AlignedRow]) -> Element:
    names = [f"{row.before[0]} {short(row.before[1].tool_name, 60)}" for row in rows[:300] if row.before]
    more = [f"… {len(rows) - 300} more"] if len(rows) > 300 else []
    return fold(f"{plural(len(rows), 'call')} equal at the start", el("p", " · ".join([*names, *more]), class_="soft"))


def _row(row: AlignedRow, is_first: bool, budget: TextBudget) -> Element:
    mark, label = ("=", "equal") if row.is_same else ("≠", "differ")
    if row.before is None or row.after is None:
        mark, label = ("+", "only after") if row.before is None else ("−", "only before")
    kind = "same" if row.is_same else "other"
    words = el("span", "first difference", class_="tag") if is_first else None
    cells = [_cell(row.before, row, budget), _cell(row.after, row, budget)]
    place = el("td", el("span", mark, title=label, role="img", aria_label=label), class_="place")
    return el(
        "tr", place, el("td", words, cells[0]), el("td", cells[1]), class_=f"{kind}{' diverges' if is_first else ''}"
    )


def _cell(side: tuple[int, ToolEvent] | None, row: AlignedRow, budget: TextBudget) -> Node:
    if side is None:
        return el("span", "–", class_="soft", aria_label="no call")
    number, event = side
    failed = el("span", " ✗ failed", class_="failed") if not event.success else None
    took = el("span", f" {seconds(event.duration_ms)}", class_="soft") if event.duration_ms is not None else None
    head: list[Node] = [el("span", f"{number} ", class_="soft"), el("b", short(event.tool_name, 60)), took, failed]
    args = shown_value(event.args, 20_000) or ""
    if row.is_same:
        return [*head, " ", el("code", budget.line(args, 80), class_="soft")]
    inner: list[Node] = [budget.text(args, 2_000)]
    if result := event.error or shown_value(event.result, 20_000):
        inner += [el("p", "error" if event.error else "result", class_="soft"), budget.text(result, 1_000)]
    return [*head, el("div", el("code", budget.line(args, 200))), *_differing(side, row), fold("all of it", *inner)]


def _differing(side: tuple[int, ToolEvent], row: AlignedRow) -> Iterator[Node]:
    """Yield the arguments in which a call differs from the one next to it, on the later side."""
    if row.before is None or row.after is None or side is not row.after:
        return
    difference = divergence([row.before[1]], [row.after[1]])
    for one in difference.arguments if difference else ():
        before, after = (shown_value(value, 120) or "nothing" for value in (one.before, one.after))
        yield el("div", el("b", short(one.path or "arguments", 80)), f": {before} → {after}", class_="soft")
