"""RE2's syntax plus lookaround and back-references, rewritten for an engine that backtracks, with RE2's meaning.

RE2 itself checks the syntax: `without_backtracking` removes what it cannot run, and a pattern that RE2 then refuses is
refused. `for_backtracking` may therefore assume a valid pattern. Nothing is matched here.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator

_CHAR = r"\\x\{[0-9A-Fa-f]+\}|\\x[0-9A-Fa-f]{2}|\\[0-7]{1,3}|\\.|."
_PROPERTY = r"\\[pP](?:\{[^}]*\}|.)"
TOKEN = re.compile(
    rf"""
      \\Q(?P<quoted>.*?)(?:\\E|\Z)
    | \[(?P<negated>\^?)(?P<members>\]?+(?:\[:\^?\w+:\]|\\.|[^\]\\])*+)\]
    | \(\?(?P<look><?[=!])
    | \(\?P=(?P<name>\w+)\) | \\k<(?P<k_name>\w+)> | \\(?P<number>[1-9])(?![0-9])
    | \(\?(?P<flags>[imsU]*(?:-[imsU]+)?)(?P<flags_end>[:)])
    | (?P<open>\()(?:\?P?<(?P<group>\w+)>)?
    | (?P<close>\))
    | (?P<repeat>[*+?]|\{{\d+(?:,\d*)?\}})(?P<lazy>\??)
    | (?P<place>[.^$]|\\[AzbB])
    | (?P<member>{_PROPERTY}|\\[dDsSwW])
    | (?P<either>\|)
    | (?P<char>{_CHAR})
    """,
    re.VERBOSE | re.DOTALL,
)
_MEMBER = re.compile(
    rf"\[:(?P<posix>\^?\w+):\]|\\(?P<perl>[dDsSwW])|(?P<property>{_PROPERTY})|(?P<low>{_CHAR})(?:-(?P<high>{_CHAR}))?",
    re.DOTALL,
)
_CONTROL = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_WORD = string.ascii_letters + string.digits + "_"
_SETS = {
    "d": string.digits,
    "s": "\t\n\f\r ",
    "w": _WORD,
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "ascii": "".join(map(chr, range(128))),
    "blank": "\t ",
    "cntrl": "".join(map(chr, [*range(32), 127])),
    "digit": string.digits,
    "graph": "".join(map(chr, range(33, 127))),
    "lower": string.ascii_lowercase,
    "print": "".join(map(chr, range(32, 127))),
    "punct": string.punctuation,
    "space": string.whitespace,
    "upper": string.ascii_uppercase,
    "word": _WORD,
    "xdigit": string.hexdigits,
}
_AFTER, _NOT_AFTER, _BEFORE, _NOT_BEFORE = (f"(?{look}[0-9A-Za-z_])" for look in ("<=", "<!", "=", "!"))
_PLACES = {
    "\\A": r"(?:\A)",
    "\\z": r"(?:\Z)",
    "\\b": f"(?:{_AFTER}{_NOT_BEFORE}|{_NOT_AFTER}{_BEFORE})",
    "\\B": f"(?:{_AFTER}{_BEFORE}|{_NOT_AFTER}{_NOT_BEFORE})",
}
_PLACES_BY_FLAG = {
    "^": ("m", r"(?:\A)", r"(?:(?<![^\n]))"),
    "$": ("m", r"(?:\Z)", r"(?:(?![^\n]))"),
    ".": ("s", r"[^\n]", r"(?s:.)"),
}


def without_backtracking(source: str) -> str:
    """Return the pattern with lookarounds as plain groups and back-references as empty ones."""
    return TOKEN.sub(lambda token: "(?:" if token["look"] else "(?:)" if _reference(token) else token[0], source)


def for_backtracking(source: str, *, ignore_case: bool) -> str:
    """Return the pattern as the `regex` module must read it to mean what RE2 would; flags are spelled out."""
    scopes = [frozenset("i" if ignore_case else "")]
    return "".join(_rewritten(token, scopes) for token in TOKEN.finditer(source))


def unbalanced(source: str) -> int | None:
    """Return the position of the first bracket without a partner, or None."""
    opened: list[int] = []
    for token in TOKEN.finditer(source):
        if token["close"]:
            if not opened:
                return token.start()
            opened.pop()
        elif token["open"] or token["look"] or token["flags_end"] == ":":
            opened.append(token.start())
    return opened[-1] if opened else None


def _reference(token: re.Match[str]) -> str | None:
    return token["name"] or token["k_name"] or token["number"]


def _rewritten(token: re.Match[str], scopes: list[frozenset[str]]) -> str:
    """Return one token rewritten; `scopes` has the flags of every group that is open here."""
    flags = scopes[-1]
    if (char := token["char"]) is not None:
        return _literal(code_of(char), flags)
    if (quoted := token["quoted"]) is not None:
        return "".join(_literal(ord(char), flags) for char in quoted)
    if token["members"] is not None:
        members = "".join(_members(item, flags) for item in _MEMBER.finditer(token["members"]))
        return _folded(f"[{token['negated']}{members}]", flags)
    if member := token["member"]:
        return _folded(f"[{_members(_MEMBER.match(member), flags)}]", flags)
    if place := token["place"]:
        if place in _PLACES:
            return _PLACES[place]
        flag, without, with_flag = _PLACES_BY_FLAG[place]
        return with_flag if flag in flags else without
    if repeat := token["repeat"]:
        return repeat + ("?" if bool(token["lazy"]) != ("U" in flags) else "")
    if reference := _reference(token):
        return _folded(f"(?:\\{reference})" if token["number"] else f"(?:(?P={reference}))", flags)
    if token["either"]:
        return "|"
    return _bracket(token, scopes)


def _bracket(token: re.Match[str], scopes: list[frozenset[str]]) -> str:
    flags = scopes[-1]
    if token["close"]:
        scopes.pop()
        return ")"
    if token["flags_end"]:
        on, _, off = token["flags"].partition("-")
        flags = (flags | set(on)) - set(off)
    if token["flags_end"] == ")":
        scopes[-1] = flags
        return ""
    scopes.append(flags)
    if token["look"]:
        return f"(?{token['look']}"
    if token["flags_end"]:
        return "(?:"
    return f"(?P<{token['group']}>" if token["group"] else "("


def _members(item: re.Match[str] | None, flags: frozenset[str]) -> str:
    """Return one member of a character class, written as ranges wherever RE2 means ASCII."""
    assert item is not None
    if name := item["posix"]:
        return _named(name.lstrip("^"), name.startswith("^"), flags)
    if name := item["perl"]:
        return _named(name.lower(), name.isupper(), flags)
    if prop := item["property"]:
        return f"{prop[:2]}{{{prop[2:].strip('{}')}}}"
    return _range(code_of(item["low"]), code_of(item["high"] or item["low"]))


def _named(name: str, negated: bool, flags: frozenset[str]) -> str:
    chars = set(_SETS[name])
    if not negated:
        return "".join(_range(ord(char), ord(char)) for char in sorted(chars))
    if "i" in flags:
        chars |= {other for char in chars for other in char.lower() + char.upper()}
        chars |= {alike for char, alike in (("s", "\u017f"), ("k", "\u212a")) if char in chars}
    return "".join(_range(low, high) for low, high in _gaps(map(ord, chars)))


def _gaps(codes: Iterable[int]) -> Iterator[tuple[int, int]]:
    low = 0
    for code in [*sorted(codes), 0x110000]:
        if low < code:
            yield low, code - 1
        low = code + 1


def code_of(text: str) -> int:
    """Return the code point of the character that a `char` token means."""
    if len(text) == 1:
        return ord(text)
    if text[1] == "x":
        return int(text[2:].strip("{}"), 16)
    if text[1] in "01234567":
        return int(text[1:], 8)
    if text[1] == "C":
        raise ValueError(r"\C (any byte) cannot be used together with lookaround or back-references")
    return ord(_CONTROL.get(text[1], text[1]))


def _range(low: int, high: int) -> str:
    return f"\\U{low:08x}" if low == high else f"\\U{low:08x}-\\U{high:08x}"


def _literal(code: int, flags: frozenset[str]) -> str:
    char = chr(code)
    written = char if char.isascii() and char.isalnum() else _range(code, code)
    return written if char.lower() == char.upper() else _folded(written, flags)


def _folded(written: str, flags: frozenset[str]) -> str:
    return f"(?i:{written})" if "i" in flags else written
