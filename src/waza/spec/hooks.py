"""Commands around a run: what is started and where, found out when the suite is loaded."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from waza.errors import Problem
from waza.sandbox.folders import SpecFolder
from waza.spec.places import Place
from waza.spec.shapes import HookShape, HooksShape


def where_and_what(hook: HookShape, folder: SpecFolder) -> tuple[Path, list[str]]:
    """Return the folder a hook runs in and its words; raise ValueError when either makes no sense."""
    try:
        words = shlex.split(hook.command)
    except ValueError as error:
        raise ValueError(f"the command cannot be split into words: {str(error).lower()}") from None
    if not words:
        raise ValueError("the command is empty")
    where = folder.find(hook.working_directory) if hook.working_directory else folder.base
    if not where.is_dir():
        raise ValueError(f"'{hook.working_directory}' is not a folder")
    if "/" in words[0] and not Path(words[0]).is_absolute() and not (where / words[0]).exists():
        words[0] = str(folder.find(words[0]))
    return where, words


def check_hooks(hooks: HooksShape, place: Place, folder: SpecFolder) -> Iterator[Problem]:
    """Yield what is wrong with the commands."""
    for when in type(hooks).model_fields:
        for index, hook in enumerate(getattr(hooks, when)):
            try:
                where_and_what(hook, folder)
            except ValueError as error:
                yield place.at("hooks", when, index, "command").problem(str(error))
