"""A sequence of names against the one expected: what was matched, missing, extra and out of order, and its F1."""

from __future__ import annotations

from collections.abc import Sequence

from waza.graders._align import Need, Order, align, certificate
from waza.model import JSON, Check


class SequenceChecks(list[Check]):
    """One check per expected name, with what they were made from."""

    __slots__ = ("actual", "alignment")

    def __init__(self, checks: list[Check], actual: list[str], alignment: dict[str, JSON]) -> None:
        super().__init__(checks)
        self.actual = actual
        self.alignment = alignment


def f1_of(expected: Sequence[str], actual: Sequence[str]) -> tuple[float, float, float]:
    """Return precision, recall and F1 of the names as multisets; the order plays no part."""
    left: dict[str, int] = {}
    for name in expected:
        left[name] = left.get(name, 0) + 1
    hits = 0
    for name in actual:
        if left.get(name):
            left[name] -= 1
            hits += 1
    if not hits:
        return 0.0, 0.0, 0.0
    precision, recall = hits / len(actual), hits / len(expected)
    return precision, recall, 2 * precision * recall / (precision + recall)


def sequence_checks(order: Order, expected: Sequence[str], actual: list[str], noun: str) -> SequenceChecks:
    """Return one check per expected name, one more for extra ones where the order is exact."""
    places = _places(order, expected, actual)
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
        checks, alignment, extra = _explained(order, expected, actual, noun)
    if order == "exact":
        surplus = list(dict.fromkeys(actual[place] for place in extra))
        failure = f"{noun} not expected: {', '.join(surplus)}" if surplus else ""
        checks.append(Check(not extra, f"there is no other {noun}", failure, actual=surplus or None))
    return SequenceChecks(checks, actual, alignment)


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
    order: Order, expected: Sequence[str], actual: list[str], noun: str
) -> tuple[list[Check], dict[str, JSON], list[int]]:
    """Return the checks, the alignment and the names left over where not all can be satisfied."""
    needs = [Need()] * len(expected)
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
