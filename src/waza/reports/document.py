"""A document as blocks (headings, lines, tables, bars), rendered for a terminal or as Markdown.

`reports/html/components.py` renders it as HTML. A line consists of our words (`str`) and of text of others
(`ForeignText`), which is shown and never interpreted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Literal, NamedTuple

from rich.console import Console, JustifyMethod
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from waza.untrusted.text import clipped, visible

MOST = 300
Tone = Literal["", "good", "bad", "open", "soft"]
_STYLES = {"": "", "good": "green", "bad": "red", "open": "yellow", "soft": "dim", "head": "bold"}


class ForeignText(NamedTuple):
    """Text of an author or an agent."""

    text: str
    most: int = MOST
    """Characters of it that are shown."""


class Toned(NamedTuple):
    """Our own words in a tone."""

    text: str
    tone: Tone


class Mark(NamedTuple):
    """A status as a mark."""

    status: str


Words = tuple["str | ForeignText | Toned | Mark", ...]


class Heading(NamedTuple):
    """The title of a part; the first one is the document's."""

    words: Words


class TextLine(NamedTuple):
    """A sentence; from level 1 on an item below the line above."""

    words: Words
    tone: Tone = ""
    level: int = 0


class Grid(NamedTuple):
    """A table; columns but the first are numbers, unless `texts` names others."""

    columns: tuple[str, ...]
    rows: list[tuple[Words, ...]]
    texts: tuple[int, ...] = (0,)


class Bar(NamedTuple):
    """A row of a plot; all numbers are shares of its width, from 0 to 1."""

    label: str
    length: float
    value: str
    span: tuple[float, float] | None = None
    """An interval around the bar's end."""
    ticks: tuple[float, ...] = ()


class Bars(NamedTuple):
    """Bars with their values; without drawings, a line of the values."""

    title: str
    bars: list[Bar]


class Fold(NamedTuple):
    """Blocks that can be folded away where the format has that."""

    title: str
    blocks: list[Block]
    is_open: bool = False


Block = Heading | TextLine | Grid | Bars | Fold


MARKS = {"passed": ("✓", "green"), "failed": ("✗", "red"), "error": ("?", "yellow"), "skipped": ("-", "dim")}
ASCII_MARKS = {"passed": "ok", "failed": "FAIL", "error": "??", "skipped": "--"}
MARKDOWN_MARKS = {"passed": "✅", "failed": "❌", "error": "❔", "skipped": "➖"}


def print_document(blocks: Iterable[Block], console: Console) -> None:
    """Print a document on a terminal."""
    for block in blocks:
        if isinstance(block, Grid):
            console.print(_rich_table(block, console))
        elif isinstance(block, Heading):
            console.print()
            console.print(_rich_text(block.words, console, "bold"))
        elif isinstance(block, Bars):
            values = " · ".join(f"{bar.label} {bar.value}" for bar in block.bars)
            console.print(Text(f"{block.title}: {visible(values)}"))
        elif isinstance(block, Fold):
            console.print(Text(block.title))
            print_document(block.blocks, console)
        else:
            line = _rich_text(block.words, console, _STYLES[block.tone])
            console.print(Padding(line, (0, 0, 0, 2 * block.level), expand=False) if block.level else line)


def terminal_mark(status: str, console: Console) -> Text:
    """Return a status as a mark; in ASCII where the terminal has nothing else."""
    mark, colour = MARKS[status]
    return Text(ASCII_MARKS[status] if is_ascii(console) else mark, style=colour)


def is_ascii(console: Console) -> bool:
    """Return whether a terminal may not show characters beyond ASCII."""
    return (console.encoding or "ascii").lower().replace("-", "") not in ("utf8", "utf16", "utf32")


def _rich_text(words: Words, console: Console, style: str = "") -> Text:
    text = Text(style=style)
    for word in words:
        if isinstance(word, Mark):
            text.append_text(terminal_mark(word.status, console))
        elif isinstance(word, Toned):
            text.append(word.text, style=_STYLES[word.tone] if word.tone == "soft" else f"bold {_STYLES[word.tone]}")
        else:
            text.append(word if isinstance(word, str) else visible(clipped(word.text, word.most)))
    return text


def _rich_table(grid: Grid, console: Console) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(grid.columns))
    for place, column in enumerate(grid.columns):
        # Half of an interval says something else, and half of a name names nothing.
        is_whole = column.endswith("interval") or column in ("run", "skill")
        justify: JustifyMethod = "left" if place in grid.texts else "right"
        table.add_column(
            column, justify=justify, overflow="ellipsis" if column == "skill" else "fold", no_wrap=is_whole
        )
    for row in grid.rows:
        table.add_row(*(_rich_text(words, console) for words in row))
    return table


def markdown_document(blocks: Iterable[Block], level: int = 1) -> str:
    """Return a document as Markdown; its title is a heading one below this level."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(_markdown(blocks, level))).strip() + "\n"


def _markdown(blocks: Iterable[Block], level: int) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, Heading):
            yield f"\n{'#' * (level + 1)} {_spans(block.words)}\n"
            level = max(2, level)
        elif isinstance(block, Grid):
            yield "\n" + _markdown_row(block.columns)
            yield "".join("|---" if place in block.texts else "|---:" for place in range(len(block.columns))) + "|"
            yield from (_markdown_row([_spans(words, in_table=True) for words in row]) for row in block.rows)
            yield ""
        elif isinstance(block, Bars):
            values = " · ".join(f"{code(bar.label)} {escape(bar.value, quote=False)}" for bar in block.bars)
            yield f"\n{block.title}: {values}\n"
        elif isinstance(block, Fold):
            is_open = " open" if block.is_open else ""
            yield f"\n<details{is_open}><summary>{escape(block.title, quote=False)}</summary>\n"
            yield from _markdown(block.blocks, level)
            yield "\n</details>\n"
        else:
            strong = "**" if block.tone in ("good", "bad", "open") and not block.level else ""
            indent = "  " * (block.level - 1) + "- " if block.level else ""
            line = f"{indent}{strong}{_spans(block.words)}{strong}"
            yield line if block.level else f"\n{line}\n"


def _markdown_row(cells: Sequence[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def _spans(words: Words, *, in_table: bool = False) -> str:
    show = cell if in_table else code
    parts = []
    for word in words:
        if isinstance(word, Mark):
            parts.append(MARKDOWN_MARKS[word.status])
        elif isinstance(word, ForeignText):
            parts.append(show(word.text, word.most))
        else:
            parts.append(escape(word if isinstance(word, str) else word.text, quote=False))
    return "".join(parts)


# Text of others inside Markdown is always in code spans and fences, where nothing is a link, a mention or HTML.


def code(text: str, most: int = 200) -> str:
    """Return any text as a code span."""
    text = visible(clipped(text, most))
    if not text:
        return "(nothing)"
    ticks = _fence(text, 1)
    pad = " " if "`" in (text[0], text[-1]) or (text[0] == text[-1] == " " and text.strip(" ")) else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def cell(text: str, most: int = 200) -> str:
    """Return any text as a code span in a table, where a pipe would end the cell."""
    return code(text, most).replace("|", "\\|")


def fenced(text: str, most: int) -> str:
    """Return any text as a fenced block with its line breaks."""
    text = visible(clipped(text, most), lines=True)
    ticks = _fence(text, 3)
    return f"{ticks}text\n{text}\n{ticks}\n"


def html_code(text: str, most: int = 200) -> str:
    """Return any text for a line of HTML, such as a `summary`."""
    return f"<code>{escape(visible(clipped(text, most)))}</code>"


def _fence(text: str, least: int) -> str:
    """Return a run of backticks longer than any in the text."""
    longest = max((len(ticks) for ticks in re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)
