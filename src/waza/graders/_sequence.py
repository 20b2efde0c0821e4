"""A sequence of names against the one expected: what was matched, missing, extra and out of order, and its F1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from waza.graders._align import AlignedChecks, Need, Order, align, certificate
from waza.model import JSON, Check


def f1_of(expected: Sequence[str], actual: Sequence[str]) -> tuple[float, float, float]:
    """Return precision, recall and F1 of the names as multisets; the order plays no part."""
    hits = (Counter(expected) & Counter(actual)).total()
    if not hits:
        return 0.0, 0.0, 0.0
    precision, recall = hits / len(actual), hits / len(expected)
    return precision, recall, 2 * precision * recall / (precision + recall)


def sequence_checks(order: Order, expected: Sequence[str], actual: Sequence[str], noun: str) -> AlignedChecks:
    """Return one check per expected name, one more for extra ones where the order is exact."""
    places: dict[str, list[int]] = {}
    for place, name in enumerate(actual):
        places.setdefault(name, []).append(place)
    needs = [Need()] * len(expected)
    fits = [places.get(name, []) for name in expected]
    alignment = align(order, needs, fits, len(actual))
    misplaced = alignment.misplaced(needs, fits)
    where = "" if order == "any" else " in order"
    checks: list[Check] = []
    entries: list[JSON] = []
    for index, name in enumerate(expected):
        claim = f"{noun} {name} is there{where}"
        if taken := alignment.taken[index]:
            checks.append(Check(True, claim))
            entries.append({"expected": name, "status": "matched", "calls": taken})
        elif index in misplaced:
            checks.append(Check(False, claim, f"{noun} out of order: {name}", name, {"call": misplaced[index]}))
            entries.append({"expected": name, "status": "out_of_order", "calls": [], "found": misplaced[index]})
        else:
            checks.append(Check(False, claim, f"{noun} missing: {name}", name))
            entries.append({"expected": name, "status": "missing", "calls": []})
    extra = alignment.extra
    if order == "exact":
        surplus = list(dict.fromkeys(actual[place] for place in extra))
        failure = f"{noun} not expected: {', '.join(surplus)}" if surplus else ""
        checks.append(Check(not extra, f"there is no other {noun}", failure, actual=surplus or None))
    return AlignedChecks(checks, certificate(order, entries, extra, misplaced))
