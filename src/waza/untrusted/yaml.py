"""Read YAML 1.2 (core schema) of unknown origin as data with positions; each error has a place, a fact and a next step.

Built on libyaml's events, never on its composer, which overflows the C stack on deep nesting. Sizes are bounded
before anything is built. What the data means is not decided here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

from yaml import (
    AliasEvent,
    BaseLoader,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    MarkedYAMLError,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    YAMLError,
)

from waza.errors import Problem, SpecError

_EventParser: type[BaseLoader] | type[CBaseLoader]
try:
    from yaml import CBaseLoader

    _EventParser = CBaseLoader
except ImportError:  # PyYAML built without libyaml gives the same events, only slower
    _EventParser = BaseLoader

MAX_BYTES = 5_000_000
MAX_DEPTH = 64
MAX_NODES = 100_000
MAX_EXPANDED_NODES = 1_000_000
MAX_DIGITS = 4_300
MAX_PROBLEMS = 100

_CONSTANTS: dict[str, bool | float | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_NUMBER_STARTS = frozenset("+-.0123456789")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_STANDARD_TAG = "tag:yaml.org,2002:"


class Mark(NamedTuple):
    """A place in a file, counted from 1."""

    line: int
    column: int


class _ParserMark(Protocol):
    """The parser's own mark, counted from 0; converted only when it is needed."""

    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...


class YamlMap(dict[str, Any]):
    """A dict with its position and those of its keys in the file."""

    __slots__ = ("_place", "_places")
    _place: _ParserMark
    _places: dict[str, _ParserMark]

    @property
    def mark(self) -> Mark:
        """Where the mapping begins."""
        return _mark(self._place)

    @property
    def marks(self) -> dict[str, Mark]:
        """The position of each key."""
        return {key: _mark(place) for key, place in self._places.items()}


class YamlList(list[Any]):
    """A list with its position and those of its items in the file."""

    __slots__ = ("_place", "_places")
    _place: _ParserMark
    _places: list[_ParserMark]

    @property
    def mark(self) -> Mark:
        """Where the list begins."""
        return _mark(self._place)

    @property
    def marks(self) -> list[Mark]:
        """The position of each item."""
        return [_mark(place) for place in self._places]


def read_yaml(text: str | bytes, file: str, *, may_be_empty: bool = False) -> Any:
    """Return the one document in `text` as data with positions; raise SpecError with all problems.

    Mappings are `YamlMap`, lists are `YamlList`. A file without content is refused, or None if it `may_be_empty`.
    """
    raw, decoded_text = decoded(text, file, MAX_BYTES)
    reader = _EventReader(file)
    try:
        data = reader.document(raw, may_be_empty)
    except YAMLError as error:
        raise SpecError([*reader.problems, explained(error, decoded_text, file)]) from None
    if reader.problems:
        raise SpecError(reader.problems)
    return data


def mark_of(data: Any, path: Sequence[str | int]) -> Mark:
    """Return the position of the deepest existing part of `path`: a mapping's key, or a list's item."""
    if isinstance(data, Mark):
        return data
    place: _ParserMark | None = data._place if isinstance(data, YamlMap | YamlList) else None
    for step in path:
        try:
            deeper = data._places[step]
            data = data[step]
        except (AttributeError, LookupError, TypeError):
            break
        place = deeper
    return Mark(1, 1) if place is None else _mark(place)


def _mark(place: _ParserMark) -> Mark:
    return Mark(place.line + 1, place.column + 1)


class _EventReader:
    """One pass over the events of one document."""

    _next: Callable[[], Any]

    def __init__(self, file: str) -> None:
        self._file = file
        self._nodes = 0
        self._expanded = 0
        self._anchors: dict[str, Any] = {}
        self._open: list[Any] = []
        self._sizes: dict[int, tuple[int, int]] = {}
        self.problems: list[Problem] = []

    def document(self, raw: bytes, may_be_empty: bool) -> Any:
        """Return the data of the only document in `raw`."""
        self._next = _EventParser(raw).get_event
        self._next()
        event: Any = self._next()
        if type(event) is StreamEndEvent:
            return None if may_be_empty else self._empty()
        if event.version not in (None, (1, 2)):
            self._report(event, "files are read as YAML 1.2; remove the %YAML line")
        event = self._next()
        if type(event) is ScalarEvent and not (event.value or event.style or event.tag or may_be_empty):
            self._empty()
        data = self._node(event)
        self._next()
        event = self._next()
        if type(event) is DocumentStartEvent:
            self._report(event, "a second document begins here; keep one document in a file and remove the '---'")
        return data

    def _empty(self) -> NoReturn:
        raise SpecError(Problem("the file is empty; write the keys it should contain", self._file, 1, 1))

    def _node(self, event: Any) -> Any:
        """Return the value that begins with `event`."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            self._refuse(event, f"the file has more than {MAX_NODES:,} values; split it")
        kind = type(event)
        if kind is ScalarEvent:
            if event.tag or event.anchor:
                return self._unusual_scalar(event)
            text: str = event.value
            if event.style or (text not in _CONSTANTS and text[0] not in _NUMBER_STARTS):
                return text
            return self._plain(event, text)
        if kind is MappingStartEvent:
            return self._mapping(event)
        if kind is SequenceStartEvent:
            return self._sequence(event)
        return self._alias(event)

    def _mapping(self, start: Any) -> YamlMap:
        mapping = YamlMap()
        mapping._place = start.start_mark
        places = mapping._places = {}
        self._begin(start, mapping, "map")
        while type(event := self._next()) is not MappingEndEvent:
            key = self._node(event)
            if type(key) is not str or (key == "<<" and not event.style):
                self._bad_key(event, key)
            elif key in places:
                first = places[key].line + 1
                self._report(event, f"the key '{_short(key)}' is on line {first} already; keep one of the two")
            else:
                places[key] = event.start_mark
                mapping[key] = self._node(self._next())
                continue
            self._node(self._next())
        self._open.pop()
        return mapping

    def _sequence(self, start: Any) -> YamlList:
        items = YamlList()
        items._place = start.start_mark
        places = items._places = []
        self._begin(start, items, "seq")
        while type(event := self._next()) is not SequenceEndEvent:
            places.append(event.start_mark)
            items.append(self._node(event))
        self._open.pop()
        return items

    def _begin(self, start: Any, container: YamlMap | YamlList, tag: str) -> None:
        self._open.append(container)
        if len(self._open) > MAX_DEPTH:
            self._refuse(start, f"the nesting is deeper than {MAX_DEPTH} levels; flatten it")
        if start.tag and start.tag != _STANDARD_TAG + tag:
            self._bad_tag(start)
        if start.anchor:
            self._anchors[start.anchor] = container

    def _plain(self, event: Any, text: str) -> Any:
        """Return the value of an unquoted text in the core schema."""
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if _INT.fullmatch(text):
            return self._integer(event, text)
        if not _FLOAT.fullmatch(text):
            return text
        number = float(text)
        if number in (float("inf"), float("-inf")):
            self._report(event, f"the number {_short(text)} is too large; write a smaller one")
        return number

    def _integer(self, event: Any, text: str) -> int:
        base = {"0x": 16, "0o": 8}.get(text[:2], 10)
        # Beyond 4,300 decimal digits Python itself refuses to print a number; a hex digit is worth 1.2 of them.
        if len(text) > (MAX_DIGITS if base == 10 else MAX_DIGITS * 4 // 5):
            self._report(event, f"the number has {len(text):,} digits; write a smaller one, or quote it if it is text")
            return 0
        return int(text, base)

    def _unusual_scalar(self, event: Any) -> Any:
        """Return the value of a scalar with a tag or an anchor."""
        if event.tag:
            value = self._tagged(event)
        else:
            value = event.value if event.style else self._plain(event, event.value)
        if event.anchor:
            self._anchors[event.anchor] = value
        return value

    def _tagged(self, event: Any) -> Any:
        kind = event.tag.removeprefix(_STANDARD_TAG)
        if kind == "str":
            return event.value
        value = self._plain(event, event.value)
        if kind == "float" and type(value) is int:
            return float(value)
        wanted = {"int": int, "float": float, "bool": bool, "null": type(None)}.get(kind)
        if type(value) is not wanted:
            self._bad_tag(event)
        return value

    def _alias(self, event: AliasEvent) -> Any:
        """Return the value of an alias, within the budget for expanded values."""
        name = event.anchor
        if name not in self._anchors:
            self._report(event, f"no value above is named &{name}; put *{name} in quotes if it is text")
            return f"*{name}"
        value = self._anchors[name]
        if any(value is container for container in self._open):
            self._refuse(event, f"*{name} contains itself; write the inner value out")
        size, height = self._size(value)
        self._expanded += size
        if self._nodes + self._expanded > MAX_EXPANDED_NODES:
            self._refuse(event, f"the aliases expand to more than {MAX_EXPANDED_NODES:,} values; write fewer of them")
        if len(self._open) + height > MAX_DEPTH:
            self._refuse(event, f"with its aliases the nesting is deeper than {MAX_DEPTH} levels; flatten it")
        return value

    def _size(self, value: Any) -> tuple[int, int]:
        """Return how many values this is with its aliases written out, long texts counted in pieces, and its height."""
        if isinstance(value, str):
            return 1 + len(value) // 100, 0
        if not isinstance(value, YamlMap | YamlList):
            return 1, 0
        if id(value) not in self._sizes:
            items = [*value.keys(), *value.values()] if isinstance(value, YamlMap) else value
            inner = [self._size(item) for item in items]
            height = max((height for _, height in inner), default=0)
            self._sizes[id(value)] = 1 + sum(size for size, _ in inner), 1 + height
        return self._sizes[id(value)]

    def _bad_key(self, event: Any, key: Any) -> None:
        if key == "<<":
            self._report(event, "YAML 1.2 has no merge key '<<'; write the keys out here")
        elif isinstance(key, YamlMap):
            self._report(event, "a key must be text, not a mapping; text that begins with '{' needs quotes")
        elif isinstance(key, YamlList):
            self._report(event, "a key must be text, not a list; text that begins with '[' needs quotes")
        elif key is None:
            self._report(event, "a key must be text, and here it is empty; write a name before the ':'")
        else:
            written = _short(getattr(event, "value", str(key)))
            self._report(event, f"a key must be text, and {written} is not; write it in quotes: '{written}'")

    def _bad_tag(self, event: Any) -> None:
        tag = _short(event.tag.replace(_STANDARD_TAG, "!!"))
        self._report(event, f"the tag {tag} is not understood here; remove it and write plain data")

    def _report(self, event: Any, message: str) -> None:
        """Record a mistake and read on, so that all of them are reported at once."""
        line, column = _mark(event.start_mark)
        self.problems.append(Problem(message, self._file, line, column))
        if len(self.problems) >= MAX_PROBLEMS:
            raise SpecError(self.problems)

    def _refuse(self, event: Any, message: str) -> NoReturn:
        self._report(event, message)
        raise SpecError(self.problems)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


_TAG_LINE = re.compile("(?:^|(?<=[\n\r]))%TAG")
_YAML_1_1_BREAKS = re.compile("[\x85\u2028\u2029]")

# Messages by a part of what the parsers (libyaml, and PyYAML's own) report; {start} is where the open block begins.
_MESSAGES = (
    (
        ("values are not allowed",),
        "a ': ' is where no key can begin; put the text in quotes if the colon belongs to it, "
        "else check the indentation of this line",
    ),
    (
        ("expected ':'",),
        "the text on line {start} has no ':' after it; write 'key: value', or indent the line if it continues a text",
    ),
    (("entries are not allowed",), "a list item '-' cannot begin here; put it on a line of its own, or quote the text"),
    (("keys are not allowed",), "a '?' cannot begin a key here; put the text in quotes"),
    (
        ("expected key", "expected <block end>", "expected '-' indicator"),
        "this does not fit the block that begins on line {start}; check the indentation, "
        "and put a text with quotes or brackets in quotes as a whole",
    ),
    (("',' or ']'",), "the '[' on line {start} is not closed before this; write ',' or ']', or put the text in quotes"),
    (("',' or '}'",), "the '{' on line {start} is not closed before this; write ',' or '}', or put the text in quotes"),
    (("node content",), "a value cannot begin like this; put the text in quotes"),
    (
        ("end of stream", "document indicator", "document separator"),
        "the quote that opens here has no end; close it",
    ),
    (
        ("unknown escape", "hexdecimal", "hexadecimal", "character escape"),
        r"an unknown escape in double quotes; write \\ for a backslash, or use single quotes",
    ),
    (("alphabetic", "directive"), "a text cannot begin with '&', '*' or '%'; put it in quotes"),
    (("tab character", "cannot start any token"), "a tab is in the indentation; use spaces"),
    (("line break", "chomping"), "a text cannot begin on the line of its '|' or '>'; begin it on the next line"),
    (("indentation indicator",), "the number after '|' or '>' must be 1 to 9; leave it out"),
    (("tag", "URI", "'>'"), "a text cannot begin with '!'; put it in quotes"),
    (("<document start>",), "this does not fit what is above it; check the indentation"),
    (("incompatible YAML",), "files are read as YAML 1.2; remove the %YAML line"),
)


def decoded(text: str | bytes, file: str, max_bytes: int) -> tuple[bytes, str]:
    """Return a file as UTF-8 bytes and as text, without byte order mark; raise SpecError if it is not text."""
    if len(text) > max_bytes:
        raise SpecError(Problem(f"the file is larger than {max_bytes:,} bytes; split it", file, 1, 1))
    try:
        if isinstance(text, bytes):
            raw = text.removeprefix(b"\xef\xbb\xbf")
            text = raw.decode()
        else:
            text = text.removeprefix("\ufeff")
            raw = text.encode()
    except UnicodeError as error:
        raise SpecError(_not_text(error, file)) from None
    if not text.isascii() and (found := _YAML_1_1_BREAKS.search(text)):
        raise SpecError(_character(found, "is a line break to some readers and not to others", text, file))
    # libyaml takes quadratic time over %TAG lines: minutes for a file within the size limit.
    if "%TAG" in text and (found := _TAG_LINE.search(text)):
        raise SpecError(_problem("a %TAG line has no use here; remove it", text, found.start(), file))
    return raw, text


def explained(error: YAMLError, text: str, file: str) -> Problem:
    """Return a parser's error as a problem with its place and a next step."""
    if not isinstance(error, MarkedYAMLError):
        # Compiled only for a file with such a mistake: that takes 5 ms.
        found = re.search("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text)
        return (
            _character(found, "is not allowed", text, file) if found else Problem("this is not YAML text", file, 1, 1)
        )
    start, end = error.context_mark, error.problem_mark
    offset = end.index if end else 0
    message = _message(error.problem or "", text[offset : offset + 1])
    if "has no end" in message and start:
        offset = start.index
    offset = min(offset, len(text.rstrip()))
    return _problem(message.replace("{start}", str(start.line + 1 if start else 1)), text, offset, file)


def _message(problem: str, character: str) -> str:
    if "cannot start any token" in problem and character != "\t":
        return f"a text cannot begin with '{character}'; put it in quotes"
    if not character and any(part in problem for part in ("node content", "',' or ")):
        return "the file ends before this value is complete; close what '[' or '{' opened"
    for parts, message in _MESSAGES:
        if any(part in problem for part in parts):
            return message
    return "this is not YAML; check the indentation and the quotes"


def _character(found: re.Match[str], fact: str, text: str, file: str) -> Problem:
    code = ord(found[0])
    escape = f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    message = f'the invisible character U+{code:04X} {fact}; remove it, or write "{escape}" in double quotes'
    return _problem(message, text, found.start(), file)


def _not_text(error: UnicodeError, file: str) -> Problem:
    """Return the problem of bytes that are not UTF-8, or of a str that cannot be encoded as UTF-8."""
    if isinstance(error, UnicodeEncodeError):
        before = error.object[: error.start]
        return _problem("a lone surrogate is not a character; remove it", before, len(before), file)
    assert isinstance(error, UnicodeDecodeError)
    if error.object[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return Problem("the file is UTF-16; save it as UTF-8", file, 1, 1)
    before = error.object[: error.start].decode()
    fact = f"the byte 0x{error.object[error.start]:02X} at offset {error.start:,} is not UTF-8"
    return _problem(f"{fact}; save the file as UTF-8", before, len(before), file)


def _problem(message: str, text: str, offset: int, file: str) -> Problem:
    before = text[:offset].replace("\r\n", "\n").replace("\r", "\n")
    return Problem(message, file, before.count("\n") + 1, len(before) - before.rfind("\n"))
