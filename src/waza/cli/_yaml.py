"""Values as YAML text that reads back as the very same values, whatever is in them."""

from __future__ import annotations

import re
from textwrap import indent

from waza.model import JSON

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
"""Plain words that some reader of YAML takes for something else than a text."""
_LONGEST_KEY = 1000
"""Readers of YAML look no further than 1024 letters for the colon behind a key."""
_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def quoted(text: str) -> str:
    """Return a text in double quotes, on one line: also safe behind a `#`."""
    return '"' + "".join(_ESCAPES.get(letter) or _visible(letter) for letter in text) + '"'


def word(text: str) -> str:
    """Return a text without quotes where nobody could take it for anything else."""
    return text if _PLAIN.fullmatch(text) and text.lower() not in _WORDS else quoted(text)


def text_at(text: str, spaces: int) -> str:
    """Return a text as the value of a key whose own column is `spaces`: as a block where it has several lines."""
    if not _fits_block(text):
        return quoted(text)
    return ("|\n" if text.endswith("\n") else "|-\n") + indent(text.removesuffix("\n"), " " * (spaces + 2))


def flow(value: JSON) -> str:
    """Return any value on one line."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return quoted(value)
        case list():
            return "[" + ", ".join(map(flow, value)) + "]"
        case dict():
            return "{" + ", ".join(f"{_key(key)}: {flow(inner)}" for key, inner in value.items()) + "}"
        case _:
            raise TypeError(f"no JSON value: {type(value).__name__}")


def _key(text: str) -> str:
    """Return a text as a key; a long one is announced, as YAML wants it."""
    key = quoted(text)
    return key if len(key) < _LONGEST_KEY else f"? {key} "


def _visible(letter: str) -> str:
    if letter == " " or (letter.isprintable() and letter != "\ufeff"):
        return letter
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _fits_block(text: str) -> bool:
    """Say whether a text has several lines and can stand as it is: nothing invisible, no line of blanks."""
    lines = text.removesuffix("\n").split("\n")
    return (
        len(lines) > 1
        and lines[0][:1] not in ("", " ", "\t")
        and lines[-1] != ""
        and all(line == "" or (line.strip() and line.replace("\t", " ").isprintable()) for line in lines)
        and "\ufeff" not in text
    )
