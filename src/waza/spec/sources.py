"""What `inputs.context.source` of a task says: the text that answers must be grounded in, or the files it stands in."""

from __future__ import annotations

import re
from typing import Any

from waza.model import Task
from waza.sandbox.folders import SpecFolder

_FILE_NAME = re.compile(r"[^\s:*?\"<>|]{1,200}\.(txt|md|markdown|rst|json|jsonl|ya?ml|csv|tsv|html?|xml|log)", re.I)


def source_text(value: Any, folder: SpecFolder) -> str:
    """Return the source context: a text as it is, the content of the file or files it names, or nothing.

    Raises ValueError where a file is named that is not there or cannot be read.
    """
    if value is None:
        return ""
    if isinstance(value, list):
        return "\n\n".join(_content(entry, folder) for entry in value)
    text = value if isinstance(value, str) else str(value)
    return _content(text, folder) if _FILE_NAME.fullmatch(text.strip()) else text


def source_of(task: Task, folder: SpecFolder) -> str:
    """Return a task's source context; none where its file has gone since the suite was checked."""
    try:
        return source_text(task.context.get("source"), folder)
    except ValueError:
        return ""


def _content(name: Any, folder: SpecFolder) -> str:
    if not isinstance(name, str):
        raise ValueError("a list of sources names files")
    path = folder.find(name.strip())
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"'{name}' cannot be read as text: {error}") from None
