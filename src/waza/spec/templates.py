"""`{{name}}` in prompts: plain replacement, no expressions, a missing name is a mistake."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NAME = re.compile(r"\{\{([A-Za-z_][A-Za-z0-9_]*)\}\}")


def names_in(text: str) -> set[str]:
    """Return the names a text wants filled in."""
    return set(_NAME.findall(text))


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return the text with every `{{name}}` that has a value replaced, once: values are not looked into."""
    return _NAME.sub(lambda found: values.get(found[1], found[0]), text)
