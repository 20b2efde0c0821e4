"""A sequence of names against the one expected: what was matched, missing, extra and out of order, and its F1."""

from __future__ import annotations

from collections.abc import Sequence

from waza.graders._align import Fits, Need, Order, align, certificate
from waza.model import JSON, Check


class SequenceChecks(list[Check]):
    """One check per expected name, with what they were made from."""

    __slots__ = ("actual", "alignment", "fits")

    def __init__(
        self, checks: list[Check], actual: list[str], alignment: dict[str, JSON], fits: Fits | None = None
    ) -> None:
        super().__init__(checks)
        self.actual = actual
        self.alignment = alignment
        self.fits = fits


def f1_of(expected: Sequence[str], actual: Sequence[str], fits: Fits | None = None) -> tuple[float, float, float]:
    """Return precision, recall and F1 of the names as multisets; the order plays no part.

    `fits` says which names fit which expected one where globs are among those; each stands for one name.
    """
    hits = _equal(expected, actual) if fits is None else _assigned(fits, len(actual))
    if not hits:
        return 0.0, 0.0, 0.0
    precision, recall = hits / len(actual), hits / len(expected)
    return precision, recall, 2 * precision * recall / (precision + recall)


def _equal(expected: Sequence[str], actual: Sequence[str]) -> int:
    """Return how many names both have in common."""
    left: dict[str, int] = {}
    for name in expected:
        left[name] = left.get(name, 0) + 1
    hits = 0
    for name in actual:
        if left.get(name):
            left[name] -= 1
            hits += 1
    return hits


def _assigned(fits: Fits, names: int) -> int:
    """Return how many of the expected names get a name of their own, by the best assignment."""
    return sum(bool(taken) for taken in align("any", [Need()] * len(fits), fits, names).taken)


def sequence_checks(
    order: Order, expected: Sequence[str], actual: list[str], noun: str, fits: Fits | None = None
) -> SequenceChecks:
    """Return one check per expected name, one more for extra ones where the order is exact; `fits` as in `f1_of`."""
    places = _places(order, expected, actual) if fits is None else None
    if places is not None:
        entries: list[JSON] = [
            {"expected": name, "status": "matched", "calls": [place]}
            for name, place in zip(expected, places, strict=True)
        ]
        checks = [Check(True, _claim(noun, name, order)) for name in expected]
        used = set(places)
        extra = [place for place in range(len(actual)) if place not in used]
        alignment = certificate(order, entries, extra, {})
    else:
        checks, alignment, extra = _explained(order, expected, actual, noun, fits)
    if order == "exact":
        surplus = list(dict.fromkeys(actual[place] for place in extra))
        failure = f"{noun} not expected: {', '.join(surplus)}" if surplus else ""
        checks.append(Check(not extra, f"there is no other {noun}", failure, actual=surplus or None))
    return SequenceChecks(checks, actual, alignment, fits)


def _claim(noun: str, name: str, order: Order) -> str:
    return f"{noun} {name} is there" if order == "any" else f"{noun} {name} is there in order"


def _places(order: Order, expected: Sequence[str], actual: list[str]) -> list[int] | None:
    """Return where each name stands when each takes the first place left to it; None when that does not do."""
    places: list[int] = []
    last: dict[str, int] = {}
    after = -1
    for name in expected:
        try:
            after = actual.index(name, (last.get(name, -1) if order == "any" else after) + 1)
        except ValueError:
            return None
        places.append(after)
        last[name] = after
    return places


def _explained(
    order: Order, expected: Sequence[str], actual: list[str], noun: str, fits: Fits | None = None
) -> tuple[list[Check], dict[str, JSON], list[int]]:
    """Return the checks, the alignment and the names left over, by the best assignment."""
    needs = [Need()] * len(expected)
    if fits is None:
        fits = [[place for place, name in enumerate(actual) if name == wanted] for wanted in expected]
    alignment = align(order, needs, fits, len(actual))
    misplaced = alignment.misplaced(needs, fits)
    checks: list[Check] = []
    entries: list[JSON] = []
    for index, name in enumerate(expected):
        claim = _claim(noun, name, order)
        entry: dict[str, JSON] = {"expected": name, "status": "matched", "calls": alignment.taken[index]}
        if alignment.taken[index]:
            checks.append(Check(True, claim))
        elif index in misplaced:
            entry |= {"status": "out_of_order", "found": misplaced[index]}
            checks.append(Check(False, claim, f"{noun} out of order: {name}", name, {"call": misplaced[index]}))
        else:
            entry["status"] = "missing"
            checks.append(Check(False, claim, f"{noun} missing: {name}", name))
        entries.append(entry)
    return checks, certificate(order, entries, alignment.extra, misplaced), alignment.extra
