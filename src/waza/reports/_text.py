"""Text from agents made safe to print: control characters are shown, never obeyed."""

from __future__ import annotations

import re

_NOBODY = "\ufdd0-\ufdef" + "".join(chr(plane << 16 | 0xFFFE) + chr(plane << 16 | 0xFFFF) for plane in range(17))
"""Code points that stand for no character: XML and HTML forbid them."""
_UNSEEN = "\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
"""Characters that turn text around, or that nobody sees."""
_CONTROL = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff{_UNSEEN}{_NOBODY}]")
_BREAKS = re.compile("[\n\t]")


def visible(text: str, *, lines: bool = False) -> str:
    """Return the text with control, bidi and surrogate characters written as escapes; `lines` keeps line breaks."""
    if not text.replace("\n", "").replace("\t", "").isprintable():  # most text is, and saying so is quick
        text = _CONTROL.sub(_escape, text)
    return text if lines else _BREAKS.sub(_escape, text)


def clipped(text: str, width: int) -> str:
    """Return the text cut to a width, with a mark where it was cut."""
    return text if len(text) <= width else text[: max(1, width - 1)] + "…"


def _escape(found: re.Match[str]) -> str:
    character, number = found[0], ord(found[0])
    names = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\e"}
    if number > 0xFFFF:
        return f"\\U{number:08x}"
    return names.get(character) or (f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}")


def seconds(ms: float | None) -> str:
    """Return a duration as people say it."""
    if ms is None:
        return "–"
    if ms < 1000:
        return f"{ms:.0f} ms"
    return f"{ms / 1000:.1f} s" if ms < 60_000 else f"{int(ms // 60_000)} min {int(ms % 60_000 // 1000)} s"


def score(value: float | None) -> str:
    """Return a score with two digits, or a dash when nobody can tell."""
    return "–" if value is None else f"{value:.2f}"


def percent(value: float | None) -> str:
    """Return a share in per cent."""
    return "–" if value is None else f"{value * 100:.0f} %"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count} {noun}" + ("" if count == 1 else "s")
