"""`inputs.context.source` of a task: the text that answers must be grounded in, or the files that contain it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from waza.files.paths import SpecFolder
from waza.files.pinned import PinnedFiles
from waza.model import Task

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
    return _content(text, folder) if _names_file(text) else text


def source_of(task: Task, folder: SpecFolder, pinned: PinnedFiles | None = None) -> str:
    """Return a task's source context; none where its file has gone or changed since the run began."""
    try:
        if pinned and any(pinned.changed_below(path) for path in source_files(task, folder)):
            return ""
        return source_text(task.context.get("source"), folder)
    except ValueError:
        return ""


def source_files(task: Task, folder: SpecFolder) -> list[Path]:
    """Return the files that a task's source context is read from."""
    value = task.context.get("source")
    names = value if isinstance(value, list) else [value] if isinstance(value, str) and _names_file(value) else []
    return [folder.find(name.strip()) for name in names if isinstance(name, str)]


def _names_file(text: str) -> bool:
    return _FILE_NAME.fullmatch(text.strip()) is not None


def _content(name: Any, folder: SpecFolder) -> str:
    if not isinstance(name, str):
        raise ValueError("a list of sources names files")
    path = folder.find(name.strip())
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"'{name}' cannot be read as text: {error}") from None
