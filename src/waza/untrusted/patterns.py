"""Run a pattern safely: RE2 in linear time, or a backtracking engine in a child process that can be killed.

`Pattern` refuses what cannot be compiled with a ValueError; `Pattern.search` never hangs: it raises PatternTimeout.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple

import re2

from waza.process.question_worker import Child, NoAnswer
from waza.untrusted.lookaround import TOKEN, for_backtracking, unbalanced, without_backtracking
from waza.untrusted.text import utf8, well_formed
from waza.untrusted.universal import (
    ASCII,
    every_character,
    matches_every_text,
    matches_no_text,
    python_ascii_members,
    python_members,
    python_tree,
    re2_tree,
    spans,
)

MAX_PATTERN_CHARS = 5_000
_SPECIAL = frozenset(r"\.^$*+?{}[]|()")
_REASONS = {
    "missing ]": "a '[' is never closed",
    "missing )": "a '(' is never closed",
    "unexpected )": "a ')' closes nothing",
    "no argument for repetition operator": "there is nothing to repeat",
    "bad repetition operator": "two repetition operators in a row",
    "invalid repetition size": "a repetition count must be in order and at most 1000, all nested ones together",
    "invalid character class range": "an unknown or reversed character class",
    "invalid escape sequence": "an unknown escape",
    "invalid named capture group": "a group name is not valid",
    "invalid perl operator": "a kind of group that RE2 does not know",
    "trailing \\": "a single backslash at the end",
    "pattern too large - compile failed": "it is too large once its repetitions are written out",
}
_HINTS = {"\\Z": "; the end of the text is \\z", "\\u": "; write \\x{...} for a character by its number"}
_ESCAPES = re.compile(r"\\.|[^\\]|\\\Z", re.DOTALL)
_REPEATED_CLASS = re.compile(r"[sSdDwW](?:[*+?]|\{\d)")
_IN_CLASS = re.compile(r"[dDsSwWnrtfv]|[pP](?:\{|[A-Z])|x[0-9A-Fa-f{]")
_ELSEWHERE = re.compile(r"\\(?:Z|u[0-9A-Fa-f]{4})|(\\.)", re.DOTALL)
"""Escapes of other engines that RE2 does not have."""
_MAY_BE_IMPOSSIBLE = re.compile(r"[$^].|.[$^]|\\[AzZbBP]|\\p\{\^|\(\?<?[=!]", re.DOTALL)
_WITNESSES = ("", "\x01", "\n\x01\n")
"""Texts that most patterns do not match; one that matches all of them may match every text."""


class PatternTimeout(Exception):
    """A pattern that gave no result within its limits."""


class Pattern:
    r"""A compiled pattern; `source` is what the author wrote, `meant` the pattern that is run.

    They differ where backslashes are doubled and only single ones make sense: `\\s*` would be a backslash and any
    number of the letter s, and `print\\(` has no end. Where both readings make sense (`\\bword`, a backslash and
    "bword", or "word" at an edge) the pattern is refused; a backslash itself is written `[\\]`.

    With `python` it has the syntax and meaning of Python's `re`, otherwise those of RE2, where lookaround and
    back-references may be added.
    """

    __slots__ = ("_finds", "_program", "ignore_case", "meant", "python", "source")

    def __init__(self, source: str, *, ignore_case: bool = False, python: bool = False) -> None:
        if not source:
            raise ValueError("an empty pattern matches everything")
        if len(source) > MAX_PATTERN_CHARS:
            raise ValueError(f"a pattern has at most {MAX_PATTERN_CHARS} characters, this one has {len(source)}")
        if source != well_formed(source):
            raise ValueError("not a valid pattern: it contains a lone surrogate")
        self.source = source
        self.meant = _intended(source, python)
        self.ignore_case = ignore_case
        self.python = python
        self._finds: Callable[[bytes], bool] | None = None
        self._program: PatternProgram | None = None
        if not python:
            self._compile()
        elif ignore_case or _SPECIAL & set(source):
            self._program = PatternProgram("re", self.meant, ignore_case)
            check_program(self._program)

    def __repr__(self) -> str:
        return f"Pattern({self.source!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, self._key()

    def search(self, text: str) -> bool:
        """Return whether the pattern matches anywhere in `text`; raise PatternTimeout when time or memory runs out."""
        if self._finds is not None:
            return self._finds(utf8(text))
        text = well_formed(text)
        if self._program is None:
            return self.source in text
        try:
            return search(self._program, text)
        except NoAnswer as reason:
            raise PatternTimeout(f"pattern '{self.source}' {reason}") from None

    def matches_every_text(self) -> bool:
        """Return whether the pattern certainly matches in every text, the empty one and those of many lines too."""
        try:
            if not all(map(self.search, _WITNESSES)):
                return False
        except PatternTimeout:
            return False
        return _matches_every_text(self.meant, self.ignore_case, self.python)

    def matches_no_text(self) -> bool:
        """Return whether the pattern certainly matches in no text, such as `$a` and `[^\\s\\S]`."""
        return _MAY_BE_IMPOSSIBLE.search(self.meant) is not None and _matches_no_text(
            self.meant, self.ignore_case, self.python
        )

    def _key(self) -> tuple[str, bool, bool]:
        return self.source, self.ignore_case, self.python

    def _compile(self) -> None:
        try:
            self._finds = finder(re2.compile(self.meant, _options(self.ignore_case)))
        except re2.error as error:
            self._program = _backtracking(self.meant, self.ignore_case, error)


def _intended(source: str, python: bool) -> str:
    """Return the pattern its author meant; raise ValueError where doubled backslashes leave two possible readings."""
    if "\\\\" not in source or not (doubled := _doubled(source)):
        return source
    everywhere = {at for at, token in _escapes(source) if token == "\\\\"} - _deliberate(source)
    candidates = (_replaced(source, dict.fromkeys(places, "\\")) for places in (everywhere, doubled))
    single = next((each for each in candidates if _is_valid(each, python)), None)
    is_mixed = single is None or any(len(token) == 2 and token != "\\\\" for _, token in _escapes(source))
    repeated = next((at for at in doubled if _REPEATED_CLASS.match(source, at + 2)), None)
    if single is None and repeated is None:
        return source
    if single is not None and (not _is_valid(source, python) or (repeated is not None and not is_mixed)):
        return single
    at = next(iter(doubled)) if repeated is None else repeated
    escape = source[at + 1 : at + 3]
    meant = single or _replaced(source, {at: "\\\\\\"})
    literal = _replaced(source, {at: r"\x5c" if in_class else r"[\\]" for at, in_class in doubled.items()})
    raise ValueError(
        f"doubled backslashes: '{source}' looks for a backslash and '{escape[1]}', but {escape} may be meant, which "
        f"YAML's single quotes and blocks take as it is; write '{meant}', "
        f"or '{literal}' where the backslash itself is meant"
    )


def _doubled(source: str) -> dict[int, bool]:
    """Return the positions of doubled backslashes before what one could escape, and whether each is in a class."""
    found = {}
    deliberate = _deliberate(source)
    for token in TOKEN.finditer(source):
        if token[0] == "\\\\":
            following = source[token.end() : token.end() + 1]
            if token.start() not in deliberate and following.isascii() and following.isprintable() and following != " ":
                found[token.start()] = False
        elif token["members"]:
            first = token.start("members")
            for at, member in _escapes(token["members"]):
                if member == "\\\\" and _IN_CLASS.match(source, first + at + 2):
                    found[first + at] = True
    return found


def _deliberate(source: str) -> set[int]:
    r"""Return the positions of deliberate doubled backslashes: before another escape or at the end (`\\\\`, `\\\.`)."""
    tokens = _escapes(source)
    found = set()
    for (at, token), (_, after) in zip(tokens, [*tokens[1:], (0, "\\")], strict=True):
        if token == "\\\\" and after[0] == "\\":
            found |= {at, at + 2}
    return found


def _escapes(source: str) -> list[tuple[int, str]]:
    return [(token.start(), token[0]) for token in _ESCAPES.finditer(source)]


def _replaced(source: str, by: Mapping[int, str]) -> str:
    """Return the pattern with the doubled backslashes at some positions replaced."""
    return "".join(by.get(at, token) for at, token in _escapes(source))


def _is_valid(source: str, python: bool) -> bool:
    """Return whether a pattern compiles; escapes of other engines count as valid, they get a hint of their own."""
    try:
        if python:
            python_tree(source, ignore_case=False)
        else:
            known = _ELSEWHERE.sub(lambda token: token[1] or "x", source)
            re2.compile(without_backtracking(known), _options(False))
    except (re2.error, re.error, OverflowError, RecursionError):
        return False
    return True


def _rebuild(source: str, ignore_case: bool, python: bool) -> Pattern:
    return Pattern(source, ignore_case=ignore_case, python=python)


@lru_cache(maxsize=1024)
def _matches_no_text(source: str, ignore_case: bool, python: bool) -> bool:
    read = python_tree if python else re2_tree
    members = (python_members, python_ascii_members) if python else (re2_members, re2_ascii_members)
    return matches_no_text(lambda: read(source, ignore_case=ignore_case), *members)


@lru_cache(maxsize=256)
def _matches_every_text(source: str, ignore_case: bool, python: bool) -> bool:
    read, members = (python_tree, python_members) if python else (re2_tree, re2_members)
    return matches_every_text(lambda: read(source, ignore_case=ignore_case), members) is True


@lru_cache(maxsize=64)
def re2_members(source: str) -> list[range]:
    """Return the characters that a pattern of `re2_tree` for one character matches."""
    return spans(found[0] for found in re2.compile(f"(?:{source})+", _options(False)).finditer(every_character()))


def re2_ascii_members(source: str) -> list[range]:
    """Return the ASCII characters among them."""
    return spans(found[0] for found in re2.compile(f"(?:{source})+", _options(False)).finditer(ASCII))


@lru_cache(maxsize=4096)
def name_glob(name: str) -> Callable[[str], bool] | None:
    """Return a function that matches a whole text against the glob `name`: `*` is any characters, `?` one.

    Returns None where `name` is no glob; raises ValueError for one that is too long.
    """
    if "*" not in name and "?" not in name:
        return None
    if len(name) > MAX_PATTERN_CHARS:
        raise ValueError(f"a glob has at most {MAX_PATTERN_CHARS} characters, this one has {len(name)}")
    # RE2, because backtracking over several `*` takes time that grows with a power of the name's length.
    source = _escaped(well_formed(name), {"*": ".*", "?": "."})
    finds = finder(re2.compile(rf"(?s)\A{source}\z", _options(False)))
    return lambda text: finds(utf8(text))


def fits_name(name: str, text: str) -> bool:
    """Return whether a text equals a name, or matches it as a glob."""
    if name == text:
        return True
    glob = name_glob(name)
    return glob is not None and glob(text)


@lru_cache(maxsize=4096)
def path_glob(glob: str) -> Callable[[str], bool]:
    """Return a function that matches a file's path against a glob: `*` and `?` stay in a folder, `**` does not.

    A `**` between slashes is any number of folders, none too; at the end it is everything below. A path that is the
    glob itself matches too. Raises ValueError for a glob that is too long.
    """
    if len(glob) > MAX_PATTERN_CHARS:
        raise ValueError(f"a glob has at most {MAX_PATTERN_CHARS} characters, this one has {len(glob)}")
    wildcards = {"*": "[^/]*", "?": "[^/]"}
    *folders, name = well_formed(glob).split("/")
    source = "".join("(?:[^/]+/)*" if part == "**" else f"{_escaped(part, wildcards)}/" for part in folders)
    source += ".+" if name == "**" else _escaped(name, wildcards)
    finds = finder(re2.compile(rf"(?s)\A{source}\z", _options(False)))
    return lambda path: path == glob or finds(utf8(path))


def _escaped(text: str, wildcards: Mapping[str, str]) -> str:
    return "".join(wildcards.get(letter) or re2.escape(letter) for letter in text)


def finder(compiled: Any) -> Callable[[bytes], bool]:
    """Return a function that reports whether an RE2 pattern matches in UTF-8.

    It calls RE2 directly where possible: the binding's own `search` costs twice as much, and given a str it computes
    the position of every match in characters.
    """
    try:
        match, anywhere = compiled._regexp.Match, re2._Anchor.UNANCHORED
    except AttributeError:
        return lambda raw: compiled.search(raw) is not None
    return lambda raw: match(anywhere, raw, 0, len(raw))[0][0] >= 0


def _backtracking(source: str, ignore_case: bool, error: Exception) -> PatternProgram:
    """Return the program of a pattern that RE2 refuses only for its lookaround or back-references."""
    reduced = without_backtracking(source)
    if reduced == source:
        raise ValueError(_refusal(source, error))
    try:
        re2.compile(reduced, _options(ignore_case))
    except re2.error as remaining:
        raise ValueError(_refusal(source, remaining)) from None
    program = PatternProgram("regex", for_backtracking(source, ignore_case=ignore_case))
    check_program(program)
    return program


@cache
def _options(ignore_case: bool) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.case_sensitive = not ignore_case
    return options


def _refusal(source: str, error: Exception) -> str:
    """Return why RE2 refuses the pattern, with the position where it is known."""
    reason, _, fragment = error.args[0].decode("utf-8", "replace").partition(": ")
    at = source.find(fragment)
    if reason in ("missing )", "unexpected )"):
        bracket = unbalanced(source)
        at, fragment = (-1, "") if bracket is None else (bracket, source[bracket : bracket + 20])
    place = f", '{fragment}' at position {at + 1}" if fragment and at >= 0 else ""
    return f"not a valid pattern: {_REASONS.get(reason, reason)}{place}{_HINTS.get(fragment, '')}"


SEARCH_LIMIT_S = 1.0
COMPILE_LIMIT_S = 2.0

CHILD = Child("regex")


class PatternProgram(NamedTuple):
    """A pattern for one of the child's engines: `regex`, or Python's own `re`."""

    engine: Literal["regex", "re"]
    pattern: str
    ignore_case: bool = False


def check_program(program: PatternProgram) -> None:
    """Raise ValueError with the reason when the engine cannot compile the program, or not in time."""
    try:
        CHILD.ask(program._asdict(), COMPILE_LIMIT_S)
    except NoAnswer as reason:
        raise ValueError(f"not a usable pattern: it {reason} while it was compiled") from None
    except ValueError as reason:
        raise ValueError(f"not a valid pattern: {reason}") from None


def search(program: PatternProgram, text: str) -> bool:
    """Return whether the program matches anywhere in `text`; raise NoAnswer when time or memory runs out."""
    return bool(CHILD.ask(program._asdict() | {"text": text}, SEARCH_LIMIT_S))
