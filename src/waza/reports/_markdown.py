"""Text of others inside Markdown: always in code spans and fences, where nothing is a link, a mention or HTML."""

from __future__ import annotations

import re
from html import escape

from waza.reports._text import clipped, visible


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
