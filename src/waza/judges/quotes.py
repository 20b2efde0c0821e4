"""Quotes that a judge gives as evidence: whether they occur in what it was shown, and where.

A quote is compared word by word: white space, typographic quotation marks and dashes make no difference, and `…`
replaces words. Case, spelling and order count: what is not in the material is not evidence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from waza.judges.fencing import Data, excerpt, harmless
from waza.model import JSON
from waza.untrusted.text import clipped

MOST_QUOTES = 20
MOST_CHARACTERS = 1_000
"""How much of a quote is compared and stored."""
_OMISSION = re.compile(r"\s*(?:\[?(?:…|\.{3,})\]?)\s*")
_PLAIN = str.maketrans("“”„«»‘’‚‐‑‒–—\u00a0", '"""""\'\'\'----- ')  # one character for one, so places stay


class Quote(Struct, frozen=True):
    """Words that a judge takes from the material, and the title it found them under."""

    quote: str = ""
    place: str = ""


Evidence = list[Quote | str] | Quote | str | None
"""What a judge may give as evidence: quotes with their places; bare texts are accepted."""


def quotes_of(evidence: Evidence) -> tuple[Quote, ...]:
    """Return the quotes in a call's argument; blank ones are left out."""
    given = evidence if isinstance(evidence, list) else [] if evidence is None else [evidence]
    quotes = [Quote(one) if isinstance(one, str) else one for one in given[:MOST_QUOTES]]
    return tuple(one for one in quotes if one.quote.strip())


def checked_quotes(quotes: Iterable[Quote], parts: Sequence[str | Data]) -> list[JSON]:
    """Return each quote with its place in the parts that were shown: title and line, and whether it occurs at all."""
    shown = {part.title: [*_texts(part)] for part in parts if isinstance(part, Data)}
    return [_checked(one, shown) for one in quotes]


def absent_quotes(checked: Iterable[JSON]) -> str:
    """Return how many quotes are not in the material, as a sentence; empty where all are."""
    entries = list(checked)
    absent = sum(not one["found"] for one in entries)
    return f"{absent} of {len(entries)} quotes of the judge not in the material" if absent else ""


def _texts(part: Data) -> Iterator[str]:
    """Yield the pieces of a part as the judge saw them, and as they were."""
    for piece in excerpt(part):
        yield from dict.fromkeys((piece, harmless(piece)))


def _checked(quote: Quote, shown: dict[str, list[str]]) -> JSON:
    words, named = quote.quote.strip()[:MOST_CHARACTERS], quote.place.strip().lstrip("# ").lower()
    # The title that the judge named comes first: the same words may be in several parts.
    for title in sorted(shown, key=lambda one: one.lower() != named):
        for text in shown[title]:
            if line := _line_of(words, text):
                return {"quote": words, "place": title, "line": line, "found": True}
    return {"quote": words, "place": clipped(quote.place.strip(), 100), "found": False}


def _line_of(words: str, text: str) -> int:
    """Return the line in which the words begin, from 1; 0 where they do not occur."""
    plain = text.translate(_PLAIN)
    joined = " ".join(plain.split())
    for candidate in dict.fromkeys((words, words.strip("\"'“”„«»‘’`"))):
        fragments = [" ".join(part.split()) for part in _OMISSION.split(candidate.translate(_PLAIN))]
        if any(fragments) and (start := _start_of(fragments, joined)) is not None:
            return _line_of_word(joined.count(" ", 0, start), plain)
    return 0


def _start_of(fragments: Iterable[str], text: str) -> int | None:
    """Return where the first fragment begins; None where they do not all occur in this order."""
    start, end = None, 0
    for fragment in filter(None, fragments):
        place = text.find(fragment, end)
        if place < 0:
            return None
        start, end = (place if start is None else start), place + len(fragment)
    return start


def _line_of_word(number: int, text: str) -> int:
    """Return the line of a word, which is counted from 0."""
    passed = 0
    for line, words in enumerate(text.split("\n"), 1):
        passed += len(words.split())
        if passed > number:
            return line
    return 1
