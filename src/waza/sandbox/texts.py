"""Texts as engines and comparisons take them: half characters that agents leave replaced, case folded."""

from __future__ import annotations

from waza.model import JSON


def well_formed(text: str) -> str:
    """Return the text with surrogate pairs joined and lone surrogates replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def fold_case(text: str) -> str:
    """Return the text as it is compared where case does not matter: character by character, the length unchanged.

    Simple lower case, with both small sigmas equal. `str.lower` alone gives U+0130 two characters and chooses the
    sigma by its neighbours, so that a part of a text could differ from the same part on its own.
    """
    lowered = text.lower() if text.isascii() else text.replace("\u0130", "i").lower()
    return lowered if lowered.isascii() else lowered.replace("\u03c2", "\u03c3")


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
