"""Whether the model that answered is the one that was asked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

_RELEASE = re.compile(
    r"(?:[-@:_](?:\d{4}-\d{2}-\d{2}|\d{2}-\d{2}|\d{3,8}|v\d+(?::\d+)?|latest|preview|exp|default))*", re.ASCII
)
"""What vendors put behind a model's name to say which release of it answered; `-mini` is another model."""


def is_same_model(asked: str, answered: str | None, accepted: Sequence[str] = ()) -> bool:
    """Say whether `answered` is `asked` or a release of it; a server that does not say who answered is believed."""
    if not answered or not asked:
        return True
    if any(fnmatchcase(answered, glob) for glob in accepted):
        return True
    want, got = _plain(asked), _plain(answered)
    return got.startswith(want) and _RELEASE.fullmatch(got[len(want) :]) is not None


def _plain(name: str) -> str:
    """Return a model's name without its vendor and without the word for "the newest release"."""
    return name.strip().lower().rsplit("/", 1)[-1].removesuffix("-latest").removesuffix(":latest")
