"""Bytes that are no YAML text, and YAML that does not parse: each told in a sentence with its place and a next step."""

from __future__ import annotations

import re

from yaml import MarkedYAMLError, YAMLError

from waza.errors import Problem, SpecError

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TAG_LINE = re.compile("(?:^|(?<=[\n\r]))%TAG")
_YAML_1_1_BREAKS = re.compile("[\x85\u2028\u2029]")

# What the parsers (libyaml, and PyYAML's own) say, by a part of it; {start} is where the unfinished thing begins.
_SENTENCES = (
    (
        ("values are not allowed",),
        "a ': ' stands where no key can begin; put the text in quotes if the colon belongs to it, "
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
        "and put a text that holds quotes or brackets in quotes as a whole",
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
        r"an escape that does not exist stands in double quotes; write \\ for a backslash, or use single quotes",
    ),
    (("alphabetic", "directive"), "a text cannot begin with '&', '*' or '%'; put it in quotes"),
    (("tab character", "cannot start any token"), "a tab stands in the indentation; use spaces"),
    (("line break", "chomping"), "a text cannot begin on the line of its '|' or '>'; begin it on the next line"),
    (("indentation indicator",), "the number after '|' or '>' must be 1 to 9; leave it out"),
    (("tag", "URI", "'>'"), "a text cannot begin with '!'; put it in quotes"),
    (("<document start>",), "this does not fit what stands above it; check the indentation"),
    (("incompatible YAML",), "files are read as YAML 1.2; remove the %YAML line"),
)


def decoded(text: str | bytes, file: str, max_bytes: int) -> tuple[bytes, str]:
    """Return a file as UTF-8 bytes and as text, without byte order mark; raise SpecError where it is no text."""
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
        raise SpecError(_no_text(error, file)) from None
    if not text.isascii() and (found := _YAML_1_1_BREAKS.search(text)):
        raise SpecError(_character(found, "is a line break to some readers and not to others", text, file))
    # libyaml takes quadratic time over %TAG lines: minutes for a file within the size limit.
    if "%TAG" in text and (found := _TAG_LINE.search(text)):
        raise SpecError(_problem("a %TAG line has no use here; remove it", text, found.start(), file))
    return raw, text


def explained(error: YAMLError, text: str, file: str) -> Problem:
    """Return a parser's complaint as a sentence a person can act on."""
    if not isinstance(error, MarkedYAMLError):
        found = _UNPRINTABLE.search(text)
        return _character(found, "is not allowed", text, file) if found else Problem("this is no YAML text", file, 1, 1)
    start, end = error.context_mark, error.problem_mark
    offset = end.index if end else 0
    message = _sentence(error.problem or "", text[offset : offset + 1])
    if "has no end" in message and start:
        offset = start.index
    offset = min(offset, len(text.rstrip()))
    return _problem(message.replace("{start}", str(start.line + 1 if start else 1)), text, offset, file)


def _sentence(problem: str, character: str) -> str:
    if "cannot start any token" in problem and character != "\t":
        return f"a text cannot begin with '{character}'; put it in quotes"
    if not character and any(part in problem for part in ("node content", "',' or ")):
        return "the file ends before this value is complete; close what '[' or '{' opened"
    for parts, sentence in _SENTENCES:
        if any(part in problem for part in parts):
            return sentence
    return "this is not YAML; check the indentation and the quotes"


def _character(found: re.Match[str], fact: str, text: str, file: str) -> Problem:
    code = ord(found[0])
    escape = f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    message = f'the invisible character U+{code:04X} {fact}; remove it, or write "{escape}" in double quotes'
    return _problem(message, text, found.start(), file)


def _no_text(error: UnicodeError, file: str) -> Problem:
    """Return what is wrong with bytes that are not UTF-8, or a str that cannot be written as UTF-8."""
    if isinstance(error, UnicodeEncodeError):
        before = error.object[: error.start]
        return _problem("half of a surrogate pair is no character; remove it", before, len(before), file)
    assert isinstance(error, UnicodeDecodeError)
    if error.object[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return Problem("the file is UTF-16; save it as UTF-8", file, 1, 1)
    before = error.object[: error.start].decode()
    fact = f"the byte 0x{error.object[error.start]:02X} at offset {error.start:,} is not UTF-8"
    return _problem(f"{fact}; save the file as UTF-8", before, len(before), file)


def _problem(message: str, text: str, offset: int, file: str) -> Problem:
    before = text[:offset].replace("\r\n", "\n").replace("\r", "\n")
    return Problem(message, file, before.count("\n") + 1, len(before) - before.rfind("\n"))
