"""The user's own folders: configuration and cache, both outside every project."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

from waza.errors import StoreError


@cache
def config_folder() -> Path:
    """Return the folder of the user's configuration of waza.

    It is decided once in a process: a library that reads a project's `.env` later (litellm does) cannot change it. A
    relative XDG_CONFIG_HOME is ignored, as its specification requires; it would lead into the project.
    """
    named = os.environ.get("APPDATA" if sys.platform == "win32" else "XDG_CONFIG_HOME", "")
    if named and Path(named).is_absolute():
        return Path(named) / "waza"
    try:
        return Path.home() / ".config" / "waza"
    except RuntimeError:
        raise StoreError("you have no home folder, so there is no configuration; set XDG_CONFIG_HOME") from None


def cache_folder() -> Path:
    """Return the folder of waza's cache for the user; never one inside a project.

    Raises StoreError where the user has no home folder.
    """
    named = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or ""
    if named and Path(named).is_absolute():
        return Path(named) / "waza"
    try:
        return Path.home() / ".cache" / "waza"
    except RuntimeError:
        raise StoreError("you have no home folder, so there is no cache; set XDG_CACHE_HOME") from None
