"""Keep secrets out of everything that is stored or shown: their values, however they are written, become a tag.

A value is found as it is, in any mixture of upper and lower case, and as JSON, URL, hex, base64 and base64url text (at
any alignment), each of UTF-8 and of UTF-16 in both byte orders, also when a stream cuts it in pieces. Base64 that is
wrapped into lines in the middle of a value is not found. Graders see the original; the journal, reports, logs and the
screen get what has passed through here.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus, unquote

import msgspec
import re2
from msgspec import Struct
from msgspec.structs import FieldInfo, fields, replace

from waza.compact import CompactDict, CompactList, CompactView
from waza.model import Result, Run, Trace
from waza.untrusted.json import MAX_ENCODED_DEPTH, encode

SHORTEST = 8
"""Shorter values are not redacted: they would be found everywhere."""
_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|AUTH|PRIVATE|COOKIE|CONNECTION_STRING|DSN|_PAT$|_PWD$",
    re.I,
)
_PLAIN_NAME = re.compile(r"AUTHOR|KEYBOARD|KEYMAP|MONKEY|_(SOCK|FILE|PATH|DIR)$", re.I)
_URL_PASSWORD = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")
_COMMON = frozenset(
    ("password", "changeme", "username", "disabled", "required", "optional", "undefined", "localhost", "anonymous")
) | frozenset(("production", "development", "interactive", "automatic", "internal", "external", "keychain", "standard"))
_DETECTED = 24
"""How many bytes of each form are searched first, in linear time; the rest only where they are found."""
_WINDOW = 4_096
"""How many characters are searched one by one where the first search has found something."""
_DETECTOR_BYTES = 1 << 28
"""What the automaton may take: a key file is a secret of many lines, each in many forms."""
_FOLD = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}

T = TypeVar("T")


def secrets_in(environment: Mapping[str, str], declared: Iterable[str] = ()) -> tuple[dict[str, str], list[str]]:
    """Return the secret values of an environment by name, and a warning for each declared one that is not protected.

    Secret are the `declared` names, names that look like it, and passwords inside URLs.
    """
    found: dict[str, str] = {}
    warnings: list[str] = []
    names = set(declared)
    for name, value in sorted(environment.items()):
        if name in names or (_SECRET_NAME.search(name) and not _PLAIN_NAME.search(name)):
            if _is_worth_hiding(value):
                found[name] = value
            elif name in names:
                warnings.append(f"{name} is too short or too common a word to be redacted from results; choose another")
        for password in _URL_PASSWORD.findall(value):
            if _is_worth_hiding(password):
                found[f"{name}.password"] = unquote(password)
    return found, warnings


def _is_worth_hiding(value: str) -> bool:
    return len(value) >= SHORTEST and len(set(value)) > 3 and value.lower() not in _COMMON


class Redactor:
    """Replaces every form of some secrets by `[REDACTED:NAME#ab12]`; the digits distinguish values of one name."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._tags: dict[str, str] = {}
        for name, value in sorted(secrets.items()):
            digest = hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest()[:4]
            for form in forms_of(value):
                self._tags.setdefault(_folded(form), f"[REDACTED:{name}#{digest}]")
        self._by_start: dict[str, list[str]] = {}
        for form in sorted(self._tags, key=lambda form: (-len(form), form)):
            self._by_start.setdefault(form[:SHORTEST], []).append(form)
        self.longest = max(map(len, self._tags), default=0)
        starts = {_bytes(form)[:_DETECTED].lower() for needle in self._tags for form in (needle, _as_json(needle))}
        options = re2.Options()
        options.max_mem = _DETECTOR_BYTES
        self._detector = re2.compile(b"|".join(map(re2.escape, sorted(starts))), options)

    def __bool__(self) -> bool:
        return bool(self._tags)

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        if not self._tags:
            return text
        stream = self.stream()
        return stream.feed(text) + stream.close()

    def raw(self, content: bytes) -> bytes:
        """Return bytes without secrets; what is not text stays as it is."""
        if not self._tags or not self._detector.search(content.lower()):
            return content
        return self.text(content.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def stream(self) -> Stream:
        """Return a redactor for text that arrives in pieces."""
        return Stream(self)

    def tree(self, value: T) -> T:
        """Return JSON data or a record without secrets, keys and numbers too; the same object where there are none."""
        if not self._tags:
            return value
        if isinstance(value, Run):
            spec = {self.text(key): self._part(part) for key, part in value.spec.items()}
            clean: T = replace(self._record(replace(value, spec={})), spec=spec)
            return clean
        tree: T = self._record(value) if isinstance(value, Struct) else self._walk(value, 0)
        return tree

    def _record(self, value: Any) -> Any:
        return value if self._is_clean(value) else self._walk(value, 0)

    def _part(self, value: Any) -> Any:
        """Return a part of a stored spec without secrets; one with an entry for each task is gone through by these."""
        if isinstance(value, CompactList | CompactView):
            return CompactList(map(self._part, value))
        if isinstance(value, CompactDict):
            return CompactDict(self._entries(value.pairs()))
        return value if self._is_clean(value) else self._walk(value, 0)

    def _entries(self, pairs: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        used: set[str] = set()
        for key, value in pairs:
            new = self.text(key)
            while new in used:
                new += "'"
            used.add(new)
            yield new, self._part(value)

    def spans(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield start, end and tag of each place where a form begins, the longest one there, overlapping ones too."""
        if not self._tags or not self._detector.search(_bytes(text).lower()):
            return
        text = _folded(text)
        for start in range(0, len(text), _WINDOW):
            if not self._detector.search(_bytes(text[start : start + _WINDOW + _DETECTED])):
                continue
            for at in range(start, min(start + _WINDOW, len(text) - SHORTEST + 1)):
                for form in self._by_start.get(text[at : at + SHORTEST], ()):
                    if text.startswith(form, at):
                        yield at, at + len(form), self._tags[form]
                        break

    def _is_clean(self, record: Any) -> bool:
        if isinstance(record, Result) and record.trace.files is not None:
            record = replace(record, trace=replace(record.trace, files=None))
        return not self._detector.search(encode(record).lower())

    def _walk(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float):
            return self._number(value)
        if depth > MAX_ENCODED_DEPTH:
            return "[nested too deeply to be stored]"
        if isinstance(value, Struct):
            infos = [info for info in fields(value) if not (isinstance(value, Trace) and info.name == "files")]
            return replace(value, **{info.name: self._field(info, getattr(value, info.name)) for info in infos})
        if isinstance(value, dict):
            return self._walk_dict(value, depth)
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self._walk(item, depth + 1) for item in value]
        return self._walk(_as_written(value), depth + 1)

    def _field(self, info: FieldInfo, value: Any) -> Any:
        """Return a field of a record; a number stays one where the record needs a number."""
        is_counted = isinstance(value, int | float) and info.type is not Any
        return value if is_counted else self._walk(value, 0)

    def _number(self, value: float) -> Any:
        """Return a number, or the tag where its digits are a secret."""
        digits = encode(value).decode()
        return self.text(digits) if any(self.spans(digits)) else value

    def _walk_dict(self, value: dict[Any, Any], depth: int) -> dict[Any, Any]:
        out: dict[Any, Any] = {}
        for key, item in value.items():
            new = self.text(key if isinstance(key, str) else next(iter(_as_written({key: None}))))
            while new in out:
                new += "'"
            out[new] = self._walk(item, depth + 1)
        return out


def _as_written(value: Any) -> Any:
    """Return the JSON that something else than JSON is written as: bytes, dates, keys that are no text."""
    return msgspec.json.decode(encode(value))


class Stream:
    """Redacts text that arrives in pieces; what may be the start of a secret is buffered until more arrives."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""
        self._covered = 0
        """How much of the buffer belongs to a secret whose tag was written already."""

    def feed(self, piece: str) -> str:
        """Return what is certain so far."""
        text = self._held + piece
        return self._give(text, max(0, len(text) - max(0, self._redactor.longest - 1)))

    def close(self) -> str:
        """Return the rest."""
        return self._give(self._held, len(self._held))

    def _give(self, text: str, limit: int) -> str:
        """Return the text up to `limit`; every form that begins before it is wholly known."""
        out: list[str] = []
        done = self._covered
        for start, end, tag in self._redactor.spans(text):
            if start >= limit:
                break
            if start >= done:
                out += [text[done:start], tag]
            done = max(done, end)
        out.append(text[done:limit])
        self._held = text[limit:]
        self._covered = max(0, done - limit)
        return "".join(out)


def forms_of(value: str) -> set[str]:
    """Return every way a secret may be written that is long enough to be redacted, up to the case of its letters."""
    texts = {value, value.strip(), *_long_lines(value)}
    forms: set[str] = set()
    for text in {case for one in texts for case in (one, one.upper(), one.lower())}:
        forms |= _written(text, _bytes(text))
        for order in ("utf-16-le", "utf-16-be"):
            raw = text.encode(order, "surrogatepass")
            for read in (raw.decode("utf-8", "surrogateescape"), raw.decode("utf-8", "replace"), raw.decode("latin-1")):
                forms |= _written(read.strip("\0"), raw)
    return {form for form in forms if len(form) >= SHORTEST}


def _written(text: str, raw: bytes) -> set[str]:
    """Return a text as it is and as JSON, and its bytes as hex, URL and base64."""
    forms = {text, raw.hex(), *_url_forms(raw), *_base64_forms(raw)}
    for ascii_only in (True, False):
        once = _as_json(text, ascii_only)
        forms |= {once, _as_json(once, ascii_only)}
    return forms


def _folded(text: str) -> str:
    """Return the text with the letters A to Z in lower case; every character stays in its place."""
    return text.lower() if text.isascii() else text.translate(_FOLD)


def _long_lines(value: str) -> Iterator[str]:
    """Yield the lines of a key file: each is a secret, the BEGIN and END lines are not."""
    for line in value.splitlines():
        if len(line) >= 2 * SHORTEST and not line.startswith("-----"):
            yield line.strip()


def _url_forms(raw: bytes) -> Iterator[str]:
    for safe in ("", "/", "!*'()", ";,/?:@&=+$!*'()#"):
        upper = quote(raw, safe=safe)
        yield upper
        yield re.sub("%[0-9A-F]{2}", lambda code: code[0].lower(), upper)
    yield quote_plus(raw)


def _base64_forms(raw: bytes) -> Iterator[str]:
    """Yield the characters that depend on the value alone, at any offset in a longer text."""
    for before in range(3):
        padded = b"\0" * before + raw
        first = (0, 2, 3)[before]
        last = len(padded) * 8 // 6
        yield base64.b64encode(padded).decode()[first:last]
        yield base64.urlsafe_b64encode(padded).decode()[first:last]


def _as_json(text: str, ascii_only: bool = False) -> str:
    return json.dumps(text, ensure_ascii=ascii_only)[1:-1]


def _bytes(text: str) -> bytes:
    """Return the text as UTF-8; halves of surrogate pairs, from a lossy decoding, as the bytes they encode."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
