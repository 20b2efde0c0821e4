"""A short document in three forms: for a terminal, as Markdown, as a page of HTML.

A line consists of our words (`str`) and of text of others (`ForeignText`), which is shown and never obeyed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape
from typing import Literal, NamedTuple

from rich.console import Console, JustifyMethod
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from waza.reports.html.elements import page_head, text
from waza.untrusted.text import clipped, visible

MOST = 300
Tone = Literal["", "good", "bad", "open", "soft"]
_STYLES = {"": "", "good": "green", "bad": "red", "open": "yellow", "soft": "dim", "head": "bold"}
_CLASSES = {"": "", "good": "passed", "bad": "failed", "open": "error", "soft": "soft"}


class ForeignText(NamedTuple):
    """Text of an author or an agent."""

    text: str


Words = tuple["str | ForeignText", ...]


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


Block = Heading | TextLine | Grid


def print_document(blocks: Iterable[Block], console: Console) -> None:
    """Print a document on a terminal."""
    for block in blocks:
        if isinstance(block, Grid):
            console.print(_rich_table(block))
        elif isinstance(block, Heading):
            console.print()
            console.print(Text(_plain(block.words), style="bold"))
        else:
            line = Text(_plain(block.words), style=_STYLES[block.tone])
            console.print(Padding(line, (0, 0, 0, 2 * block.level), expand=False) if block.level else line)


def _plain(words: Words) -> str:
    return "".join(word if isinstance(word, str) else visible(clipped(word.text, MOST)) for word in words)


def _rich_table(grid: Grid) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(grid.columns):
        is_whole = column.endswith("interval") or column == "run"  # half of one says something else, or names nothing
        justify: JustifyMethod = "left" if place in grid.texts else "right"
        table.add_column(column, justify=justify, overflow="fold", no_wrap=is_whole)
    for row in grid.rows:
        table.add_row(*(Text(_plain(words)) for words in row))
    return table


def markdown_document(blocks: Iterable[Block], level: int = 1) -> str:
    """Return a document as Markdown; its title is a heading one below this level."""
    return "\n".join(_markdown(blocks, level)).strip() + "\n"


def _markdown(blocks: Iterable[Block], level: int) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, Heading):
            yield f"\n{'#' * (level + 1)} {_spans(block.words)}\n"
            level = max(2, level)
        elif isinstance(block, Grid):
            yield "\n| " + " | ".join(block.columns) + " |"
            yield "".join("|---" if place in block.texts else "|---:" for place in range(len(block.columns))) + "|"
            yield from ("| " + " | ".join(_spans(words, in_table=True) for words in row) + " |" for row in block.rows)
            yield ""
        else:
            strong = "**" if block.tone in ("good", "bad", "open") and not block.level else ""
            indent = "  " * (block.level - 1) + "- " if block.level else ""
            line = f"{indent}{strong}{_spans(block.words)}{strong}"
            yield line if block.level else f"\n{line}\n"


def _spans(words: Words, *, in_table: bool = False) -> str:
    show = cell if in_table else code
    return "".join(escape(word, quote=False) if isinstance(word, str) else show(word.text, MOST) for word in words)


def html_document(blocks: Iterable[Block], title: str) -> str:
    """Return a document as one page that runs no script and loads nothing."""
    return page_head(title) + "".join(html_blocks(blocks)) + "</body>\n</html>\n"


def html_blocks(blocks: Iterable[Block], level: int = 1) -> Iterator[str]:
    """Yield a document as a part of a page; its title is a heading of this level, the others stand one below."""
    for block in blocks:
        if isinstance(block, Heading):
            yield f"<h{level}>{_inline(block.words)}</h{level}>\n"
            level = max(2, level)
        elif isinstance(block, Grid):
            yield _html_table(block)
        else:
            name = f' class="{_CLASSES[block.tone]}"' if block.tone else ""
            yield f"<p{name}>{'&emsp;' * block.level}{_inline(block.words)}</p>\n"


def _html_table(grid: Grid) -> str:
    classes = ["" if place in grid.texts else ' class="number"' for place in range(len(grid.columns))]
    head = "".join(f"<th{name}>{escape(column)}</th>" for name, column in zip(classes, grid.columns, strict=True))
    rows = [zip(classes, row, strict=True) for row in grid.rows]
    body = "".join(f"<tr>{''.join(f'<td{name}>{_inline(words)}</td>' for name, words in row)}</tr>\n" for row in rows)
    return f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n'


def _inline(words: Words) -> str:
    return "".join(escape(word) if isinstance(word, str) else text(word.text, MOST) for word in words)


# Text of others inside Markdown: always in code spans and fences, where nothing is a link, a mention or HTML.


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
    """Return more backticks than stand side by side anywhere in the text."""
    longest = max((len(ticks) for ticks in re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)
