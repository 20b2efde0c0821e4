"""A line of numbers as a plot in text: a column a run, in eighths of a row."""

from __future__ import annotations

from collections.abc import Sequence

BLOCKS = " ▁▂▃▄▅▆▇█"
PLAIN = " .:-=+*#@"


def plot(numbers: Sequence[float | None], high: float, *, height: int = 3, plain: bool = False) -> list[str]:
    """Return rows of columns from 0 to `high`, the top one first; a number that is not known is a dot at the bottom."""
    marks = PLAIN if plain else BLOCKS
    filled = [None if number is None else round(number / (high or 1.0) * height * 8) for number in numbers]
    return ["".join(_cell(eighths, row, marks) for eighths in filled) for row in reversed(range(height))]


def _cell(eighths: int | None, row: int, marks: str) -> str:
    if eighths is None:
        return " " if row else "·"
    return marks[max(1 if row == 0 else 0, min(8, eighths - 8 * row))]
