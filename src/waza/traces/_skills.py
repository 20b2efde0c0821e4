"""Which skills an agent used, from its tool calls.

Programs with a skill tool are taken at its word. Codex and pi have none: their model reads a SKILL.md file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from waza.model import JSON, SkillInvocation
from waza.traces._aliases import TOOLS

_HAVE_TOOL = {program for program in TOOLS["skill"] if program}
_READ_FILES = {"codex", "pi"}
_WORD = re.compile(r"(>\s*['\"]?)?([^\s'\"<>|;&()]+)")
_FOLDER = re.compile(r"(?:Base directory for this skill: |Resources loaded from `)([^`\n]+)")


class _Call(Protocol):
    name: str
    args: JSON
    result: JSON
    success: bool
    skill_folder: str | None


def invocations(engine: str | None, calls: Iterable[_Call]) -> list[SkillInvocation] | None:
    """Return the skills used, in order; None when this agent's use of skills cannot be seen."""
    if engine in _HAVE_TOOL:
        names = TOOLS["skill"][engine]
        return [found for call in calls if call.name in names and call.success and (found := _by_tool(call))]
    if engine in _READ_FILES:
        seen = {found.path: found for call in calls if call.success for found in _by_file(call)}
        return list(seen.values())
    return None


def skill_folder(text: JSON) -> str | None:
    """Return the folder of a skill that its text tells, if it does."""
    match = _FOLDER.search(text) if isinstance(text, str) else None
    return match.group(1) if match else None


def _by_tool(call: _Call) -> SkillInvocation | None:
    args: dict[str, Any] = call.args if isinstance(call.args, dict) else {}
    name = next((args[key] for key in ("skill", "name", "command") if isinstance(args.get(key), str)), None)
    return SkillInvocation(name=name, path=call.skill_folder or skill_folder(call.result)) if name else None


def _by_file(call: _Call) -> Iterator[SkillInvocation]:
    """Yield the SKILL.md files a command or a read names; one that is written to is not used."""
    args: dict[str, Any] = call.args if isinstance(call.args, dict) else {}
    named = [args.get(key) for key in ("command", "path", "file_path")] if call.name in _READERS else []
    for text in named:
        for written, word in _WORD.findall(text) if isinstance(text, str) else ():
            parts = word.split("/")
            if not written and len(parts) > 1 and parts[-1] == "SKILL.md" and parts[-2]:
                yield SkillInvocation(name=parts[-2], path=word)


_READERS = {name for kind in ("shell", "read") for program in _READ_FILES for name in TOOLS[kind].get(program, ())}
