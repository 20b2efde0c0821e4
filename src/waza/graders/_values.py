"""JSON values as matchers see them: when two are equal, how one reads as text, what stands at a path."""

from __future__ import annotations

from decimal import Decimal

import msgspec

from waza.model import JSON

Steps = tuple[str | int | None, ...]
"""A path into nested values: a key, an index, or None for any element."""


def same(one: JSON, other: JSON, *, tolerance: float | None = None) -> bool:
    """Say whether two JSON values are equal: numbers by value, true is not 1, the order of keys does not matter."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other or (tolerance is not None and _near(one, other, tolerance))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key], tolerance=tolerance) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(a, b, tolerance=tolerance) for a, b in zip(one, other, strict=True))
    return type(one) is type(other) and bool(one == other)


def _near(one: float, other: float, tolerance: float) -> bool:
    # In decimals, as people write them: 1.1 is within 0.1 of 1.
    try:
        return abs(Decimal(str(one)) - Decimal(str(other))) <= Decimal(str(tolerance))
    except (ArithmeticError, ValueError):  # infinite, or thousands of digits
        return False


def text_of(value: JSON) -> str:
    """Return what patterns are looked for in: a text as it is, null as nothing, anything else as compact JSON.

    Its keys are sorted, and `<`, `>` and `&` are escaped as the original does it.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    text = shown(value)
    for letter, escape in _ESCAPES:
        text = text.replace(letter, escape)
    return text


def shown(value: JSON) -> str:
    """Return a value for people: a text as it is, anything else as compact JSON with sorted keys."""
    return value if isinstance(value, str) else _JSON.encode(_WHOLE.decode(_JSON.encode(value))).decode()


def _whole(text: str) -> float:
    """Return a number without a fraction as an integer: 3.0 is written 3."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 1e21 else number


_JSON = msgspec.json.Encoder(order="deterministic")
_WHOLE = msgspec.json.Decoder(float_hook=_whole)
_ESCAPES = [(letter, f"\\u{ord(letter):04x}") for letter in "<>&\u2028\u2029"]


def parse_path(key: str) -> Steps | None:
    """Return the steps of a path such as `items[*].id`; None for a plain name (`filter[name]` is one)."""
    steps: list[str | int | None] = []
    for part in key.split("."):
        name, *indexes = part.split("[")
        if not name:
            return None
        steps.append(name)
        for index in indexes:
            inner = index.removesuffix("]")
            if inner == index or not (inner == "*" or inner.removeprefix("-").isdecimal()):
                return None
            steps.append(None if inner == "*" else int(inner))
    return tuple(steps) if len(steps) > 1 else None


def values_at(args: dict[str, JSON], key: str, steps: Steps | None) -> list[JSON]:
    """Return what stands at a key or path, several values where the path says any element; a literal key wins."""
    if key in args or steps is None:
        return [args[key]] if key in args else []
    found: list[JSON] = [args]
    for step in steps:
        found = [inner for value in found for inner in _step_into(value, step)]
    return found


def _step_into(value: JSON, step: str | int | None) -> list[JSON]:
    if isinstance(step, str):
        return [value[step]] if isinstance(value, dict) and step in value else []
    if not isinstance(value, list):
        return []
    if step is None:
        return value
    return [value[step]] if -len(value) <= step < len(value) else []
