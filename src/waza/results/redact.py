"""Keep secrets out of everything that is stored or shown: their values, however they are written, become a tag.

A value is found as it is, and as JSON, URL, hex (both cases), base64 and base64url text (at any alignment), also when
a stream cuts it in pieces. Base64 that is wrapped into lines in the middle of a value is not found. Graders see the
original; the journal, reports, logs and the screen get what has passed through here.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus, unquote

import re2
from msgspec import Struct
from msgspec.structs import fields, replace

from waza.model import Result
from waza.results.plain import MAX_DEPTH, encode

SHORTEST = 8
"""Shorter values are not looked for: they would be found everywhere."""
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
"""So many bytes of each form are looked for first, in linear time; the rest only where they are found."""

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
                warnings.append(f"{name} is too short or too common a word to be kept out of results; choose another")
        for password in _URL_PASSWORD.findall(value):
            if _is_worth_hiding(password):
                found[f"{name}.password"] = unquote(password)
    return found, warnings


def _is_worth_hiding(value: str) -> bool:
    return len(value) >= SHORTEST and len(set(value)) > 3 and value.lower() not in _COMMON


class Redactor:
    """Replaces every form of some secrets by `[REDACTED:NAME#ab12]`; the four digits tell equal values apart."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._tags: dict[str, str] = {}
        for name, value in sorted(secrets.items()):
            digest = hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest()[:4]
            for form in forms_of(value):
                self._tags.setdefault(form, f"[REDACTED:{name}#{digest}]")
        needles = sorted(self._tags, key=lambda form: (-len(form), form))
        self.longest = len(needles[0]) if needles else 0
        self._exact = re.compile("|".join(map(re.escape, needles)))
        starts = {_bytes(form)[:_DETECTED] for needle in needles for form in (needle, _as_json(needle))}
        self._detector = re2.compile(b"|".join(map(re2.escape, sorted(starts))))

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
        if not self._tags or not self._detector.search(content):
            return content
        return self.text(content.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def stream(self) -> Stream:
        """Return a redactor for text that arrives in pieces."""
        return Stream(self)

    def tree(self, value: T) -> T:
        """Return JSON data or a record without secrets, keys and numbers too; the same object where there are none."""
        if not self._tags or (isinstance(value, Struct) and self._is_clean(value)):
            return value
        result: T = self._walk(value, 0)
        return result

    def spans(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield start, end and tag of each place where a form begins, the longest one there, overlapping ones too."""
        if not self._tags or not self._detector.search(_bytes(text)):
            return
        at = 0
        while match := self._exact.search(text, at):
            yield match.start(), match.end(), self._tags[match.group()]
            at = match.start() + 1

    def _is_clean(self, record: Struct) -> bool:
        if isinstance(record, Result) and record.trace.files is not None:
            record = replace(record, trace=replace(record.trace, files=None))
        return not self._detector.search(encode(record))

    def _walk(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, int) and not isinstance(value, bool) and depth:
            return self.text(str(value)) if any(self.spans(str(value))) else value
        if depth > MAX_DEPTH:
            return "[nested too deeply to be kept]"
        if isinstance(value, Struct):
            old = {info.name: getattr(value, info.name) for info in fields(value)}
            return replace(value, **{name: self._walk(item, 0) for name, item in old.items()})
        if isinstance(value, dict):
            return self._walk_dict(value, depth)
        if isinstance(value, (list, tuple)):
            return [self._walk(item, depth + 1) for item in value]
        return value

    def _walk_dict(self, value: dict[Any, Any], depth: int) -> dict[Any, Any]:
        out: dict[Any, Any] = {}
        for key, item in value.items():
            new = self.text(key) if isinstance(key, str) else key
            while new in out:
                new += "'"
            out[new] = self._walk(item, depth + 1)
        return out


class Stream:
    """Redacts text that arrives in pieces; what may be the start of a secret is held back until more is known."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""
        self._covered = 0
        """How much of what is held belongs to a secret whose tag was given out already."""

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
    """Return every way a secret may be written that is long enough to be looked for."""
    texts = {value, value.strip(), *_long_lines(value)}
    forms: set[str] = set()
    for text in texts:
        raw = _bytes(text)
        forms |= {text, raw.hex(), raw.hex().upper()}
        forms |= {*_url_forms(raw), *_base64_forms(raw)}
        for ascii_only in (True, False):
            once = _as_json(text, ascii_only)
            forms |= {once, _as_json(once, ascii_only)}
    return {form for form in forms if len(form) >= SHORTEST}


def _long_lines(value: str) -> Iterator[str]:
    """Yield the lines of a key file: each is a secret of its own, its frame is not."""
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
    """Yield the characters that depend on the value alone, wherever in a longer text it stands."""
    for before in range(3):
        padded = b"\0" * before + raw
        first = (0, 2, 3)[before]
        last = len(padded) * 8 // 6
        yield base64.b64encode(padded).decode()[first:last]
        yield base64.urlsafe_b64encode(padded).decode()[first:last]


def _as_json(text: str, ascii_only: bool = False) -> str:
    return json.dumps(text, ensure_ascii=ascii_only)[1:-1]


def _bytes(text: str) -> bytes:
    """Return the text as UTF-8; halves of surrogate pairs, from a lossy decoding, as the bytes they stand for."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
