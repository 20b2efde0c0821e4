"""Judges: models that give verdicts, one file per provider; the file's name is the `type:` of `judge:` settings.

Files that start with `_` are helpers; `rubrics` is the rubric library. The names here are loaded when first used.
"""

from importlib import import_module
from typing import Any

_WHERE = {
    "Call": "waza.judges.base",
    "Judge": "waza.judges.base",
    "Message": "waza.judges.base",
    "Reply": "waza.judges.base",
    "Request": "waza.judges.base",
    "Tool": "waza.judges.base",
    "ScriptedJudge": "waza.judges.scripted",
}

__all__ = [*_WHERE]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'waza.judges' has no attribute '{name}'")
