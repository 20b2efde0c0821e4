"""What a program printed, in bounded memory: the head and the tail, and how much lies between.

Bytes are decoded once, at the end; nothing a program prints can make that fail.
"""

from __future__ import annotations

from msgspec import Struct


class Captured(Struct, frozen=True):
    """One stream of a program that has ended."""

    head: str = ""
    """The beginning; everything, when nothing was left out."""
    tail: str = ""
    """The end, when something between was left out."""
    total_bytes: int = 0
    """How much was printed."""
    omitted_bytes: int = 0
    """How much of it was not kept."""
    lossy: bool = False
    """Whether bytes that are not UTF-8 were replaced."""

    @property
    def text(self) -> str:
        """Head and tail as one text, with a line between them that says how much was left out."""
        if not self.omitted_bytes:
            return self.head
        return f"{self.head}\n… {self.omitted_bytes} bytes omitted …\n{self.tail}"


class Capture:
    """Collects a stream chunk by chunk and keeps at most `limit` bytes of it, or all of it for None."""

    __slots__ = ("_head", "_head_limit", "_tail", "_tail_limit", "total")

    def __init__(self, limit: int | None) -> None:
        self._head_limit = None if limit is None else limit - limit // 2
        self._tail_limit = 0 if limit is None else limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, chunk: bytes) -> None:
        """Take the next piece of the stream."""
        self.total += len(chunk)
        if self._head_limit is None:
            self._head += chunk
            return
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        self._tail += chunk
        surplus = len(self._tail) - self._tail_limit
        if surplus > 0:
            del self._tail[:surplus]

    def finish(self) -> Captured:
        """Return what was kept, as text."""
        if self.total == len(self._head) + len(self._tail):
            text, lossy = _decode(self._head + self._tail)
            return Captured(text, "", self.total, 0, lossy)
        _trim_end(self._head)
        _trim_start(self._tail)
        head, head_lossy = _decode(self._head)
        tail, tail_lossy = _decode(self._tail)
        omitted = self.total - len(self._head) - len(self._tail)
        return Captured(head, tail, self.total, omitted, head_lossy or tail_lossy)


def _decode(raw: bytearray) -> tuple[str, bool]:
    try:
        return raw.decode(), False
    except UnicodeDecodeError:
        return raw.decode(errors="replace"), True


def _trim_end(raw: bytearray) -> None:
    """Drop a character that the cut split, so that the cut itself loses nothing."""
    for back in range(1, min(4, len(raw) + 1)):
        byte = raw[-back]
        if byte >= 0xC0:
            width = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            if width > back:
                del raw[-back:]
            return
        if byte < 0x80:
            return


def _trim_start(raw: bytearray) -> None:
    width = 0
    while width < min(3, len(raw)) and 0x80 <= raw[width] < 0xC0:
        width += 1
    del raw[:width]
