"""The user's key, and the chain it makes of a journal's records.

Each record ends in a field `chain`: the journal's mark, the record's place, the signature of the record before it and
its own, a keyed hash of all that and of the record. Whoever has no key cannot write a record that fits, nor move,
repeat or replace one; what was removed in the middle leaves a gap. What a chain cannot show: that its last records were
removed, and anything done by a program that can read the key. It is a file of the user, so an agent that is not
isolated can read it.

A journal that was signed with another key, or before there were signatures, is readable and "unverified". When such a
run is continued, the first record signed here names a hash of all that was there, so it cannot be changed later on.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from hmac import compare_digest
from pathlib import Path

from msgspec import Struct

from waza.errors import StoreError
from waza.files.trust import config_folder

KEY_FILE = "signing.key"
_KEY_BYTES = 32
_SIGNATURE_BYTES = 12
_START = "0" * 2 * _SIGNATURE_BYTES
"""What the first record of a journal names as the signature before it."""
_FIELD = re.compile(rb',"chain":"([0-9a-f]{16})([0-9a-f]{8})([0-9a-f]{24})([0-9a-f]{24})"\}')
_FIELD_BYTES = 84
_OWN_BYTES = 2 * _SIGNATURE_BYTES + 2
"""How long the end of a record is that its signature does not cover: the signature, a quote and a brace."""
_JOURNALS = b"waza journal"
HEADER = b'{"kind":"header"'
"""How the record begins that whoever opens a journal writes first."""
_WAIT_S = 2.0

_WITHOUT_SIGNATURES = (
    "unverified: it was written before records were signed, so it cannot be determined whether it was changed"
)
_OTHER_KEY = (
    "unverified: it is not signed with your key (copied from elsewhere, or the key is new), "
    "so it cannot be determined whether it was changed"
)
RUN_CHANGED = "run.json was changed after the run wrote it"


def word_of(integrity: str) -> str:
    """Return the first word of a message on a run's integrity; empty where there is none."""
    return integrity.partition(":")[0]


_keys: dict[Path, bytes] = {}
"""Keys that were read, by their files: a process keeps the key it started with."""


def read_key() -> bytes | None:
    """Return the user's key; None where there is none yet or it cannot be used."""
    try:
        return _read_key(config_folder() / KEY_FILE)
    except (StoreError, OSError):
        return None


def make_key() -> bytes:
    """Return the user's key, made if there is none yet; of several processes that make it, one wins.

    Raises StoreError when there is none that can be used.
    """
    file = config_folder() / KEY_FILE
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            return _read_key(file)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = file.with_name(f".{KEY_FILE}.{secrets.token_hex(8)}")
        try:
            _write_new(temporary, secrets.token_bytes(_KEY_BYTES))
            # A link never replaces what is there, and the file has its whole content when it gets its name.
            with suppress(FileExistsError):
                _link(temporary, file)
        finally:
            temporary.unlink(missing_ok=True)
        return _read_key(file)
    except OSError as error:
        raise StoreError(f"{file} cannot be used: {(error.strerror or str(error)).lower()}") from None


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: whoever reads it half written waits
        _write_new(target, source.read_bytes())


def _write_new(file: Path, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(file, flags, 0o600), "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())


def _read_key(file: Path) -> bytes:
    """Return the key in a file. Raises OSError, and StoreError for a file that others could read or have written."""
    if (known := _keys.get(file)) is not None:
        return known
    until = time.monotonic() + _WAIT_S
    while True:
        flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(file, flags), "rb") as opened:
            found = os.fstat(opened.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise StoreError(f"{file} is not a regular file; remove it")
            if sys.platform != "win32" and (found.st_uid not in (os.getuid(), 0) or found.st_mode & 0o077):
                raise StoreError(f"{file} can be read or written by others; remove it and a new one is made")
            key = opened.read(_KEY_BYTES + 1)
        if len(key) == _KEY_BYTES:
            return _keys.setdefault(file, key)
        if time.monotonic() >= until:
            raise StoreError(f"{file} is not a key; remove it and a new one is created")
        time.sleep(0.01)


def keyed_hash(key: bytes, purpose: bytes, content: bytes) -> str:
    """Return a keyed hash of some bytes as hex; equal bytes have another one for each purpose."""
    hashed = _keyed(key, purpose).copy()
    hashed.update(content)
    return hashed.hexdigest()


@cache
def _keyed(key: bytes, purpose: bytes) -> blake2b:
    """Return a hash that has taken in its key, to be copied: that costs a third of a new one."""
    return blake2b(key=key, digest_size=_SIGNATURE_BYTES, person=purpose)


class Signature(Struct, frozen=True):
    """The field `chain` of a record."""

    journal: str
    """The mark of the journal it was written to."""
    place: int
    before: str
    own: str

    @classmethod
    def of(cls, payload: bytes) -> Signature | None:
        """Return the signature of a record; None where it has none."""
        found = _FIELD.fullmatch(payload, max(0, len(payload) - _FIELD_BYTES))
        if found is None:
            return None
        journal, place, before, own = (group.decode() for group in found.groups())
        return cls(journal, int(place, 16), before, own)

    def fits(self, payload: bytes, key: bytes) -> bool:
        """Return whether a record was signed with this key."""
        return compare_digest(self.own, keyed_hash(key, _JOURNALS, payload[:-_OWN_BYTES]))


def is_signed(payload: bytes, key: bytes) -> bool:
    """Return whether a record has a signature that was made with this key."""
    signature = Signature.of(payload)
    return signature is not None and signature.fits(payload, key)


def unsigned(payload: bytes) -> bytes:
    """Return a record without its signature."""
    return payload if Signature.of(payload) is None else payload[:-_FIELD_BYTES] + b"}"


class Chain(Struct):
    """How far a journal's records have been followed, and what did not fit; it can be stored and continued."""

    journal: str = ""
    """The mark of the journal; empty until a record has it."""
    place: int = 0
    """The place of the next record."""
    last: str = _START
    """What the next record signed here names: the signature before it, or a hash of all records that are not ours."""
    last_named: str = ""
    """The signature that the last record has, where it was not made with our key."""
    is_ours: bool = False
    """Whether a record was signed with our key: from then on others do not count."""
    unsigned: int = 0
    """Records that count though their signature is not ours."""
    foreign: int = 0
    misplaced: int = 0
    missing: int = 0
    replaced: int = 0
    refuses_unsigned: bool = False
    """Whether records before the first one of ours are foreign: it does not name them."""

    def begin(self, payloads: Iterable[bytes], key: bytes | None) -> None:
        """Search ahead, where the first record is not ours, for the first one that is: it names what was before it."""
        ahead = Chain()
        for payload in payloads if key else ():
            signature = Signature.of(payload)
            if signature and signature.fits(payload, key or b""):
                self.refuses_unsigned = bool(ahead.unsigned) and not ahead._is_next(signature)
                return
            ahead.accept(payload, None)

    def accept(self, payload: bytes, key: bytes | None) -> bool:
        """Return whether a record counts, and follow it; what does not fit is noted."""
        if self.is_ours and key is not None and payload[-_FIELD_BYTES:-_OWN_BYTES] == self._next_field():
            own = keyed_hash(key, _JOURNALS, payload[:-_OWN_BYTES])
            if compare_digest(payload[-_OWN_BYTES:], f'{own}"}}'.encode()):  # the fast path of nearly every record
                self.place, self.last = self.place + 1, own
                return True
        signature = Signature.of(payload)
        if signature is not None and key is not None and signature.fits(payload, key):
            return self._accept_ours(signature)
        if self.is_ours or self.refuses_unsigned or not self._follows(signature):
            self.foreign += 1
            return False
        if signature is not None:
            if self.journal and signature.place < self.place:
                self.misplaced += 1
                return False
            if signature.place > self.place:
                self.missing += signature.place - self.place
            elif self.place and signature.before not in (self.last, self.last_named):
                self.replaced += 1
            self.journal = signature.journal
        self.place = signature.place + 1 if signature else self.place + 1
        self.last_named = signature.own if signature else ""
        self.last = blake2b(self.last.encode() + payload, digest_size=_SIGNATURE_BYTES).hexdigest()
        self.unsigned += 1
        return True

    def _follows(self, signature: Signature | None) -> bool:
        """Return whether a foreign record may follow here: once one is signed, all are, for the same journal."""
        return not self.journal or (signature is not None and signature.journal == self.journal)

    def _accept_ours(self, signature: Signature) -> bool:
        if self.journal and signature.journal != self.journal:
            self.foreign += 1
            return False
        if self.is_ours and signature.place < self.place:
            self.misplaced += 1
            return False
        if signature.place > self.place:
            self.missing += signature.place - self.place
        elif not self._is_next(signature):
            self.replaced += 1
        self.journal, self.place, self.last = signature.journal, signature.place + 1, signature.own
        self.is_ours = True
        return True

    def _is_next(self, signature: Signature) -> bool:
        return (signature.place, signature.before) == (self.place, self.last)

    def sign(self, body: bytes, key: bytes) -> bytes:
        """Return a record with its signature as the next of the chain, and follow it."""
        self.journal = self.journal or secrets.token_hex(8)
        content = body[:-1] + self._next_field()
        own = keyed_hash(key, _JOURNALS, content)
        self.place, self.last, self.is_ours = self.place + 1, own, True
        return content + f'{own}"}}'.encode()

    def _next_field(self) -> bytes:
        """Return how the signature of the next record begins."""
        return f',"chain":"{self.journal}{self.place:08x}{self.last}'.encode()

    @property
    def is_broken(self) -> bool:
        """Whether anything did not fit."""
        return bool(self.foreign or self.misplaced or self.missing or self.replaced)

    @property
    def is_whole(self) -> bool:
        """Whether every record that was written is there, as far as the chain can show it."""
        return not self.missing and not self.replaced

    def faults(self) -> list[str]:
        """Return the faults as messages."""
        counts = {
            "that this run did not write {were} ignored": self.foreign,
            "out of order or repeated {were} ignored": self.misplaced,
            "{are} missing or damaged": self.missing,
            "{are} not the one that was written there": self.replaced,
        }
        return [
            f"{count} record{'s' * (count != 1)} "
            + words.format(were="was" if count == 1 else "were", are="is" if count == 1 else "are")
            for words, count in counts.items()
            if count
        ]

    def integrity(self, *, is_run_changed: bool = False) -> str:
        """Return a message on what readers cannot rely on; empty where all records are ours."""
        facts = [*self.faults(), *([RUN_CHANGED] if is_run_changed else [])]
        if facts:
            return f"altered: {'; '.join(facts)}"
        if self.unsigned:
            return _OTHER_KEY if self.journal else _WITHOUT_SIGNATURES
        return ""
