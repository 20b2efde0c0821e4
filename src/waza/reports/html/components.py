"""Components that pages share: marks, tiles, folds, tables, bars, links, dates; and documents rendered as HTML."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from waza.model import JSON
from waza.reports.document import (
    MOST,
    Bar,
    Bars,
    Block,
    Fold,
    ForeignText,
    Grid,
    Heading,
    Mark,
    TextLine,
    Tone,
    Toned,
    Words,
)
from waza.reports.html.markup import PAGE_END, Element, Html, Node, el, href, page_head, render, short
from waza.stats.scores import Interval
from waza.untrusted.text import percent

WORDS = {
    "passed": "passed", "failed": "failed", "error": "undecided", "skipped": "not graded",
    "running": "running", "unreadable": "unreadable",
}  # fmt: skip
MARKS = {"passed": "✓", "failed": "✗", "error": "?", "skipped": "–", "running": "▶", "unreadable": "!"}
CHARTS = ("uPlot.iife.min.js", "charts.js")
"""The scripts of a page that has a chart."""


def mark(status: str) -> Element:
    """Return a status as a mark that is read out as its word."""
    return el("span", MARKS[status], class_=f"mark {status}", role="img", aria_label=WORDS[status], title=WORDS[status])


def badge(status: str) -> Element:
    """Return a status as mark and word."""
    return el("span", el("span", MARKS[status], aria_hidden="true"), f" {WORDS[status]}", class_=f"badge {status}")


def tile(label: str, value: Node, note: Node = "") -> Element:
    """Return one number of a summary."""
    return el("div", el("span", label, class_="soft"), el("b", value), el("span", note, class_="soft"), class_="tile")


def tiles(*some: Element) -> Element:
    """Return tiles next to each other."""
    return el("div", *some, class_="tiles")


def soft(*words: Node) -> Element:
    """Return a paragraph in the background."""
    return el("p", *words, class_="soft")


def fold(summary: Node, *inner: Node, is_open: bool = False, **attributes: str) -> Element:
    """Return a part that can be folded."""
    return el("details", el("summary", summary), *inner, open=is_open, **attributes)


def grid(label: str, head: Sequence[Node], rows: Iterable[Node], *, class_: str = "") -> Element:
    """Return a table that scrolls sideways within itself; `head` holds the cells of its first row."""
    table = el("table", el("thead", el("tr", *head)), el("tbody", *rows), class_=class_ or None)
    return el("div", table, class_="wide", tabindex="0", role="region", aria_label=label)


def number(*words: Node, **more: str | None) -> Element:
    """Return a table cell with a number."""
    return el("td", *words, class_="number", **more)


def head_cell(words: str, *, is_number: bool = False) -> Element:
    """Return the head of a column."""
    return el("th", words, scope="col", class_="number" if is_number else None)


def interval(ci: Interval | None) -> Node:
    """Return an interval of a share in percent, in one line; nothing where there is none."""
    # The sign stays with its number where a line ends.
    return whole(f"{ci.lower * 100:.0f}–{percent(ci.upper)}") if ci else None


def whole(words: str) -> Element:
    """Return words that are not wrapped."""
    return el("span", words, class_="whole")


def day(started: float) -> str:
    """Return a moment as date and time, in UTC."""
    try:
        return f"{datetime.fromtimestamp(started, UTC):%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):
        return "–"


def when(started: float) -> Element:
    """Return a moment; a script adds how long ago that is."""
    return el("time", day(started), datetime=f"{day(started).replace(' ', 'T')}Z")


def money(cost: float | None) -> str:
    """Return a cost in dollars."""
    if cost is None:
        return "–"
    return f"${cost:.2f}" if cost >= 10 else f"${cost:.4f}"


def count(number: int | None) -> str:
    """Return a large number in short."""
    if number is None:
        return "–"
    for unit, size in (("M", 1_000_000), ("k", 10_000)):
        if number >= size:
            return f"{number / (1_000_000 if unit == 'M' else 1_000):.1f} {unit}"
    return f"{number:,}"


def run_link(key: str, words: str = "") -> Element:
    """Return a link to a run."""
    return el("a", short(words or key, 80), href=href("runs", key))


def task_address(key: str, task: str, trial: int | None = None) -> str:
    """Return where a task of a run is shown, or one trial of it."""
    return href("runs", key, "task", id=task, trial=trial)


def progress(done: int | None, planned: int | None) -> Element:
    """Return the progress of a run, as a bar and in words."""
    amount = f"{done or 0} of {planned}" if planned else f"{done or 0} done"
    bar = el("progress", value=done or 0, max=planned or 1, aria_label="trials done") if planned else None
    return el("span", bar, el("span", amount, class_="amount"), class_="progress")


def sparkline(rates: Sequence[float | None], label: str) -> Element:
    """Return pass rates as a small line with a dot at its end, and what it shows in words."""
    points = [(place, rate) for place, rate in enumerate(rates) if rate is not None]
    if not points:
        return el("span", "–", class_="soft")
    wide = max(1, len(rates) - 1)
    spots = [(4 + 172 * place / wide, 23 - 18 * rate) for place, rate in points]
    ends = [el("line", x1="0", x2="180", y1=str(y), y2=str(y), class_="sparkend") for y in (5, 23)]
    line = el("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in spots), class_="spark")
    dot = el("circle", cx=f"{spots[-1][0]:.1f}", cy=f"{spots[-1][1]:.1f}", r="2.5", class_="sparkdot")
    description = f"{label}: pass rate of the last {len(points)} runs, now {percent(points[-1][1])}"
    style = {"viewBox": "0 0 180 28", "preserveAspectRatio": "xMinYMid meet", "class_": "sparkline"}
    return el("svg", *ends, line, dot, **style, role="img", aria_label=description)


def chart(kind: str, label: str, data: JSON, table: Node) -> Element:
    """Return a chart that a script draws, and the same numbers as a table for those who cannot see it."""
    # As escapes, `<`, `>` and `&` cannot end a block of data; what is not ASCII is written so already.
    text = json.dumps(data)
    for character in "<>&\x7f":
        text = text.replace(character, f"\\u{ord(character):04x}")
    source = el("script", Html(text), type="application/json")
    drawn = el("div", class_="canvas", role="img", aria_label=label)
    return el(
        "figure", el("figcaption", label), source, drawn, fold("as a table", table), class_="chart", data_kind=kind
    )


def choice(name: str, values: Sequence[str], chosen: str, words: Mapping[str, str] | None = None) -> Element:
    """Return a list to choose a value from, or none; `words` are what it shows for each."""
    options = [el("option", f"any {name}", value="")]
    for value in values[:500]:
        shown = words.get(value, value) if words else short(value, 60)
        options.append(el("option", shown, value=value, selected=value == chosen))
    return el("select", *options, name=name, aria_label=name)


def pager(address: str, total: int, skip: int, size: int, noun: str) -> Element | None:
    """Return links to the page before and after; nothing where all fits on one."""
    if total <= size and not skip:
        return None
    shown = f"{min(skip + 1, total):,}–{min(skip + size, total):,} of {total:,} {noun}"
    before = el("a", "← before", href=f"{address}skip={max(0, skip - size)}", rel="prev") if skip else None
    after = el("a", "next →", href=f"{address}skip={skip + size}", rel="next") if skip + size < total else None
    return el("nav", before, el("span", shown, class_="soft"), after, class_="pager", aria_label=f"pages of {noun}")


def bar_plot(title: Node, bars: Iterable[Bar]) -> Node:
    """Return a plot: a title and a row for each bar; nothing where there is no bar."""
    rows = [_bar_row(bar) for bar in bars]
    return [el("h3", title), *rows] if rows else None


def _bar_row(bar: Bar) -> Element:
    shapes = [_rect("track", 0, 1, 1, 8), _rect("bar", 0, bar.length, 1, 8)]
    shapes += [_rect("span", bar.span[0], bar.span[1], 4, 2)] if bar.span else []
    shapes += [_rect("tick", min(tick, 0.995), min(tick, 0.995) + 0.005, 1, 8) for tick in bar.ticks]
    view = {"viewBox": "0 0 1000 10", "preserveAspectRatio": "none", "aria_hidden": "true"}
    label, value = el("span", short(bar.label, MOST)), el("span", short(bar.value, MOST), class_="value")
    return el("div", label, el("svg", *shapes, **view), value, class_="row")


def _rect(kind: str, start: float, end: float, top: int, height: int) -> Element:
    left, width = 1000 * start, max(0.0, 1000 * (end - start))
    return el("rect", class_=kind, x=f"{left:.1f}", y=top, width=f"{width:.1f}", height=height)


# Documents (`reports/document.py`) as HTML.

_CLASSES: dict[Tone, str | None] = {"": None, "good": "passed", "bad": "failed", "open": "error", "soft": "soft"}


def words(some: Words) -> list[Node]:
    """Return the words of a line; text of others is cut to what a line holds."""
    return [_word(word) for word in some]


def _word(word: str | ForeignText | Mark | Toned) -> Node:
    if isinstance(word, Mark):
        return mark(word.status)
    if isinstance(word, Toned):
        return el("span" if word.tone in ("", "soft") else "b", word.text, class_=_CLASSES[word.tone])
    return short(word.text, word.most) if isinstance(word, ForeignText) else word


def line(one: TextLine, *, class_: str = "") -> Element:
    """Return a sentence."""
    tone = _CLASSES[one.tone]
    indent = "\u2003" * one.level
    return el("p", indent, *words(one.words), class_=" ".join(part for part in (class_, tone) if part) or None)


def items(lines: Iterable[TextLine]) -> Element:
    """Return sentences as a list."""
    return el("ul", *(el("li", *words(one.words), class_=_CLASSES[one.tone]) for one in lines))


def table(label: str, one: Grid) -> Element:
    """Return a table."""
    kinds = [None if place in one.texts else "number" for place in range(len(one.columns))]
    heads = [el("th", name, scope="col", class_=kind) for name, kind in zip(one.columns, kinds, strict=True)]
    rows = [
        el("tr", *(el("td", *words(cell), class_=kind) for cell, kind in zip(row, kinds, strict=True)))
        for row in one.rows
    ]
    return grid(label, heads, rows)


def document_nodes(blocks: Iterable[Block], level: int = 1) -> Iterator[Node]:
    """Yield a document as a part of a page; its title is a heading of this level, later headings are one below."""
    title = "table"
    for block in blocks:
        if isinstance(block, Heading):
            title = "".join(word if isinstance(word, str) else getattr(word, "text", "") for word in block.words)
            yield el(f"h{level}", *words(block.words))
            level = max(2, level)
        elif isinstance(block, Grid):
            yield table(short(title, 100), block)
        elif isinstance(block, Bars):
            yield bar_plot(block.title, block.bars)
        elif isinstance(block, Fold):
            yield fold(block.title, *document_nodes(block.blocks, max(2, level)), is_open=block.is_open)
        else:
            yield line(block)


def document_page(blocks: Iterable[Block], title: str) -> str:
    """Return a document as one page that runs no script and loads nothing."""
    return page_head(title) + render(list(document_nodes(blocks))) + PAGE_END
