"""Normalise text of unknown origin (lone surrogates, control characters, case) and format numbers for people."""

from __future__ import annotations

import re

from waza.model import JSON

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)|\x1b[ -/]*[0-~]|\x9b[0-?]*[ -/]*[@-~]", re.MULTILINE
)
"""Terminal escape sequences: colours, cursor movements, titles."""
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def well_formed(text: str) -> str:
    """Return the text with surrogate pairs joined and lone surrogates replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def fold_case(text: str) -> str:
    """Return the text folded for case-insensitive comparison: character by character, the length unchanged.

    Simple lower case, with both small sigmas equal. `str.lower` alone gives U+0130 two characters and chooses the
    sigma by its neighbours, so that a part of a text could differ from the same part on its own.
    """
    lowered = text.lower() if text.isascii() else text.replace("\u0130", "i").lower()
    return lowered if lowered.isascii() else lowered.replace("\u03c2", "\u03c3")


def without_controls(text: str) -> str:
    """Return the text without terminal escapes and control characters; line breaks and tabs stay."""
    lines = _ESCAPES.sub("", text.replace("\r\n", "\n")).replace("\r", "\n")
    return _CONTROLS.sub("", well_formed(lines))


def last_lines(text: str, lines: int = 20, chars: int = 2_000) -> str:
    """Return the end of a program's output, without control characters and trailing blank lines."""
    end = without_controls(text[-8 * chars :]).rstrip()
    return "\n".join(end[-chars:].split("\n")[-lines:]).strip("\n")


def utf8(text: str) -> bytes:
    """Return the text as UTF-8, lone surrogates replaced by U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return well_formed(text).encode()


def well_formed_data(value: JSON) -> JSON:
    """Return JSON-like data in which every text, keys too, is well formed."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, dict):
        return {well_formed_data(key): well_formed_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [well_formed_data(item) for item in value]
    return value


_NONCHARACTERS = "\ufdd0-\ufdef" + "".join(chr(plane << 16 | 0xFFFE) + chr(plane << 16 | 0xFFFF) for plane in range(17))
"""Unicode noncharacters, which XML and HTML forbid."""
_INVISIBLE = "\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
"""Characters that reverse text or are invisible, which can hide what a text says."""
_CONTROL = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff{_INVISIBLE}{_NONCHARACTERS}]")
_BREAKS = re.compile("[\n\t]")


def visible(text: str, *, lines: bool = False) -> str:
    """Return the text with control, bidi and surrogate characters written as escapes; `lines` keeps line breaks."""
    if not text.replace("\n", "").replace("\t", "").isprintable():  # fast path for most text
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
    """Return a duration for people."""
    if ms is None:
        return "–"
    if ms < 1000:
        return f"{ms:.0f} ms"
    return f"{ms / 1000:.1f} s" if ms < 60_000 else f"{int(ms // 60_000)} min {int(ms % 60_000 // 1000)} s"


def score(value: float | None) -> str:
    """Return a score with two digits, or a dash when it is undecided."""
    return "–" if value is None else f"{value:.2f}"


def percent(value: float | None) -> str:
    """Return a share in per cent."""
    return "–" if value is None else f"{value * 100:.0f} %"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count} {noun}" + ("" if count == 1 else "s")
