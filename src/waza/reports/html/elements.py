"""Pieces of HTML: text of others is always text; a plot is rows of bars that we draw ourselves."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from typing import NamedTuple

from waza.untrusted.text import clipped, visible


def text(words: str, most: int = 300) -> str:
    """Return any text for one line of HTML, or for an attribute in double quotes."""
    return escape(visible(clipped(words, most)))


def pre(words: str, most: int) -> str:
    """Return any text as a block with its line breaks."""
    # A reader of HTML drops the line break after the tag, so one is put there to be dropped.
    return f"<pre>\n{escape(visible(clipped(words, most), lines=True))}</pre>"


def fold(summary: str, inner: str, *, is_open: bool = False) -> str:
    """Return a part that can be folded; both parts are HTML already."""
    return f"<details{' open' if is_open else ''}><summary>{summary}</summary>\n{inner}</details>\n"


def tile(label: str, value: str, note: str = "") -> str:
    """Return one number of the summary."""
    return f'<div class="tile"><span class="soft">{label}</span><b>{value}</b><span class="soft">{note}</span></div>\n'


class Bar(NamedTuple):
    """A row of a plot; all numbers are shares of its width, from 0 to 1."""

    label: str
    length: float
    value: str
    span: tuple[float, float] | None = None
    """An interval around the bar's end."""
    ticks: tuple[float, ...] = ()


def plot(title: str, bars: Iterable[Bar]) -> str:
    """Return a plot: a title and a row for each bar."""
    rows = "".join(_row(bar) for bar in bars)
    return f"<h3>{title}</h3>\n{rows}" if rows else ""


def _row(bar: Bar) -> str:
    shapes = _rect("track", 0, 1, 1, 8) + _rect("bar", 0, bar.length, 1, 8)
    shapes += _rect("span", bar.span[0], bar.span[1], 4, 2) if bar.span else ""
    shapes += "".join(_rect("tick", min(tick, 0.995), min(tick, 0.995) + 0.005, 1, 8) for tick in bar.ticks)
    drawn = f'<svg viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">{shapes}</svg>'
    return f'<div class="row"><span>{text(bar.label)}</span>{drawn}<span class="value">{text(bar.value)}</span></div>\n'


def _rect(kind: str, start: float, end: float, top: int, height: int) -> str:
    left, width = 1000 * start, max(0.0, 1000 * (end - start))
    return f'<rect class="{kind}" x="{left:.1f}" y="{top}" width="{width:.1f}" height="{height}"></rect>'


def page_head(title: str) -> str:
    """Return the start of a page that may run no script and load nothing, its style included."""
    style = files("waza.server").joinpath("static", "report.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{text(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
    )
