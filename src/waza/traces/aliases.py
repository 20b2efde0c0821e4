"""Names of the same tool in different agent programs: aliases, exit codes and skill use derived from them.

Each program's names are on its reader (`tools`); `docs/guide/traces.md` shows the table. `dialect_of(trace)` is None
unless `trace.engine` has a reader with tools: names are then exact. A name that the trace's own program does not have
(an MCP tool, a custom one) is never an alias of anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import Any, Protocol

from waza.model import JSON, SkillInvocation, ToolEvent, Trace
from waza.traces import READERS
from waza.untrusted.patterns import fits_name, name_glob
from waza.untrusted.text import fold_case

_AUTHORS_NAMES: dict[str, tuple[str, ...]] = {
    "shell": ("execute", "execute_command", "run_command", "runCommand", "run_in_terminal", "run_terminal_cmd"),
    "read": ("readFile", "fileRead"),
    "write": ("writeFile", "fileWrite", "create_file"),
    "edit": ("str_replace", "edit_file"),
    "list": ("list_dir",),
    "glob": ("find_files",),
    "grep": ("ripgrep",),
    "fetch": ("fetch",),
}
"""Names that authors use for tools and that no program has."""

ARGUMENTS: tuple[tuple[str, ...], ...] = (
    ("command", "cmd"),
    ("path", "file_path", "filePath", "absolute_path", "filepath"),
    ("content", "file_text"),
    ("old_string", "old_str", "oldString", "oldText"),
    ("new_string", "new_str", "newString", "newText"),
)
"""Names of the same argument."""

_SKILL_ARGUMENTS = ("skill", "name")
_PROGRAMS = {"claude-agent-sdk": "claude-code", "copilot-sdk": "copilot", "copilot-cli": "copilot"}
"""Other names of the same agent program."""
_EDITOR_COMMANDS = {"view": "read", "create": "write", "str_replace": "edit", "insert": "edit", "undo_edit": "edit"}
_CHANGES = {"add": "write", "update": "edit", "delete": "edit"}
_MCP_PREFIXES = ("mcp__", "mcp:", "mcp_")
_HEAD_CHARS = 4_000
_TAIL_CHARS = 200
_HEAD = re.compile(
    r"\A(?:Exit code:? (-?\d{1,9})\b"
    r"|<returncode>(-?\d{1,9})</returncode>"
    r"|Command: [\s\S]*?\nExit Code: (-?\d{1,9})\n"
    r"|[\s\S]{0,300}?\bProcess exited with code (-?\d{1,9})\b)"
)
_TAIL = re.compile(
    r"(?:\[exit(?: code)?:? (-?\d{1,9})\]|Command exited with code (-?\d{1,9})|exit code (-?\d{1,9})[>.]\]?)\s*\Z"
)
_WORD = re.compile(r"(>\s*['\"]?)?([^\s'\"<>|;&()]+)")
_FOLDER = re.compile(r"(?:Base directory for this skill: |Resources loaded from `)([^`\n]+)")


_MOST_KNOWN = 4_096


class Dialect:
    """How one agent program names its tools and their arguments."""

    def __init__(self, program: str) -> None:
        self._kinds = _kinds_of(program)
        self._known: dict[tuple[str, str], bool] = {}
        """Declared and recorded names that were compared before: traces of one suite have the same few."""

    def same(self, declared: str, event: ToolEvent) -> bool:
        """Return whether a declared name is the tool of a call: the same name, or another program's for it.

        A glob only matches this program's own names, ignoring case: `create_*` is about a family of tools, and must not
        match the tool for writing files because one program calls that `create_file`.
        """
        recorded = event.tool_name
        if declared == recorded:
            return True
        if self._kinds.get(recorded) == "patch":
            return self._is_same(declared, event)
        key = (declared, recorded)
        if key not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = self._is_same(declared, event)
        return self._known[key]

    def _is_same(self, declared: str, event: ToolEvent) -> bool:
        recorded = event.tool_name
        if name_glob(declared) is not None:
            return self._covers(declared, recorded)
        if recorded in self._kinds:
            return not _meant_by(declared).isdisjoint(self.kinds(event))
        marked = _is_mcp(declared) or _is_mcp(recorded)
        return marked and _mcp_name(declared) == _mcp_name(recorded)

    def _covers(self, glob: str, recorded: str) -> bool:
        """Return whether a glob matches a tool's name, those of MCP tools in any program's spelling."""
        if fits_name(glob, recorded):
            return True
        if recorded in self._kinds:
            return fits_name(fold_case(glob), fold_case(recorded))
        bare = _mcp_name(glob)
        # `mcp__*` is every MCP tool; a name without the prefix may be any tool, so the glob must name a server.
        marked = _is_mcp(recorded) or (_is_mcp(glob) and bare[0] not in "*?")
        return marked and fits_name(bare, _mcp_name(recorded))

    def is_several(self, name: str) -> bool:
        """Return whether what a tool is depends on the arguments of a call: a patch may create or edit files."""
        return self._kinds.get(name) == "patch"

    def kinds(self, event: ToolEvent) -> frozenset[str]:
        """Return the kinds of a call: `shell`, `read`, …; those of a patch depend on what it does to files."""
        kind = self._kinds.get(event.tool_name)
        if kind is None:
            return frozenset()
        return frozenset({kind} | (_patch_kinds(event.args) if kind == "patch" else set()))

    def args(self, event: ToolEvent, wanted: Iterable[str]) -> JSON:
        """Return a call's arguments, those in `wanted` also under the names that other programs use."""
        args = event.args
        if not isinstance(args, dict) or event.tool_name not in self._kinds:
            return args
        known = {**_changed_path(args), **args}
        groups = [*ARGUMENTS, _SKILL_ARGUMENTS] if self._kinds[event.tool_name] == "skill" else ARGUMENTS
        more = {
            name: known[other]
            for name in wanted
            if name not in known
            for group in groups
            if name in group
            for other in group
            if other in known
        }
        return {**args, **{name: known[name] for name in wanted if name in known}, **more}

    def as_written(self, declared: Iterable[str], events: Iterable[ToolEvent]) -> list[str]:
        """Return the name of each call: the declared alias for it, else the recorded name."""
        words = list(dict.fromkeys(declared))
        return [
            event.tool_name
            if event.tool_name in words
            else next((word for word in words if self.same(word, event)), event.tool_name)
            for event in events
        ]

    def used(self, declared: Iterable[str], events: Iterable[ToolEvent]) -> dict[str, None]:
        """Return the recorded names, and the declared aliases for one of those calls."""
        calls = list(events)
        used = dict.fromkeys([event.tool_name for event in calls])
        missing = [word for word in declared if word not in used]
        kinds = self._examples(calls) if missing else []
        return used | dict.fromkeys(word for word in missing if any(self.same(word, event) for event in kinds))

    def _examples(self, calls: list[ToolEvent]) -> list[ToolEvent]:
        """Return one call of each tool; all calls where what a tool is depends on its arguments."""
        first: dict[str, ToolEvent] = {}
        for event in calls:
            if event.tool_name not in first:
                first[event.tool_name] = event
        if any(self._kinds.get(name) == "patch" for name in first):
            return calls
        return list(first.values())

    def seen_as(self, declared: Iterable[str], events: Iterable[ToolEvent]) -> dict[str, list[str]]:
        """Return for each declared name the other names in the recording; names without any are omitted."""
        calls = self._examples(list(events))
        names = {
            word: list(dict.fromkeys(event.tool_name for event in calls if self.same(word, event)))
            for word in dict.fromkeys(declared)
        }
        return {word: recorded for word, recorded in names.items() if recorded and recorded != [word]}


def dialect_of(trace: Trace) -> Dialect | None:
    """Return how the agent of a trace names its tools; None when it is not a known agent program."""
    return None if trace.engine is None else dialect(trace.engine)


@lru_cache(maxsize=64)
def dialect(engine: str) -> Dialect | None:
    """Return how an engine's agent names its tools; None when it is not a known agent program."""
    program = _PROGRAMS.get(engine, engine)
    return Dialect(program) if _kinds_of(program) else None


def skill_tools(engine: str | None) -> tuple[str, ...]:
    """Return the names of an agent program's skill tool; empty where it has none, or is not known."""
    reader = _reader_of(_PROGRAMS.get(engine, engine)) if engine else None
    return tuple(reader.tools.get("skill", ())) if reader else ()


def means_shell(name: str) -> bool:
    """Return whether a name is a shell's in any program."""
    return "shell" in _meant_by(name)


@cache
def tool_names() -> dict[str, dict[str, tuple[str, ...]]]:
    """Return for each tool its names by agent program; under "" those that only authors use."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for reader in (READERS.load(name) for name in READERS.names()):
        for kind, names in reader.tools.items():
            found.setdefault(kind, {})[str(reader.engine)] = names
    for kind, names in _AUTHORS_NAMES.items():
        found.setdefault(kind, {})[""] = names
    return found


@cache
def _reader_of(program: str) -> Any:
    """Return the class that reads an agent program's recordings, None without one; no other reader is loaded."""
    reader = READERS.load(program) if READERS.knows(program) else None
    return reader if reader is not None and reader.engine == program else None


@cache
def _kinds_of(program: str) -> dict[str, str]:
    reader = _reader_of(program)
    return {name: kind for kind, names in reader.tools.items() for name in names} if reader else {}


@lru_cache(maxsize=1024)
def _meant_by(declared: str) -> frozenset[str]:
    """Return the kinds of tool with this name in any program, ignoring case."""
    folded = fold_case(declared)
    return frozenset(
        kind
        for kind, column in tool_names().items()
        if any(folded == fold_case(name) for names in column.values() for name in names)
    )


def _patch_kinds(args: JSON) -> set[str]:
    match args:
        case {"command": str(command)} if command in _EDITOR_COMMANDS:
            return {_EDITOR_COMMANDS[command]}
        case {"changes": [*changes]}:
            kinds = {str(change.get("kind")) for change in changes if isinstance(change, dict)}
            return {_CHANGES[kind] for kind in kinds if kind in _CHANGES}
        case _:
            return {"write", "edit"}


def _changed_path(args: dict[str, Any]) -> dict[str, Any]:
    match args:
        case {"changes": [{"path": str(path)}]}:
            return {"path": path}
        case _:
            return {}


def _is_mcp(name: str) -> bool:
    return name.startswith(_MCP_PREFIXES)


def _mcp_name(name: str) -> str:
    """Return server and tool of an MCP tool's name in a spelling that all programs share."""
    bare = next((name.removeprefix(prefix) for prefix in _MCP_PREFIXES if name.startswith(prefix)), name)
    return "_".join(part for part in bare.replace("-", "_").replace("/", "_").split("_") if part)


def exit_code_in(result: JSON, tool: str) -> int | None:
    """Return the exit code that is only in the text of a shell tool's result; None if there is none."""
    if not isinstance(result, str) or not means_shell(tool):
        return None
    match = _TAIL.search(result[-_TAIL_CHARS:]) or _HEAD.match(result[:_HEAD_CHARS])
    return next((int(group) for group in match.groups() if group is not None), None) if match else None


class _NamedCall(Protocol):
    name: str
    args: JSON
    result: JSON
    success: bool
    skill_folder: str | None


def invocations(engine: str | None, calls: Iterable[_NamedCall]) -> list[SkillInvocation] | None:
    """Return the skills used, in order; None when this agent's use of skills is not observable.

    A call of a skill tool is a use. A program without one has its model read a SKILL.md file (`reads_skill_files`).
    """
    reader = _reader_of(engine) if engine else None
    if reader is None:
        return None
    if names := reader.tools.get("skill"):
        return [used for call in calls if call.name in names and call.success and (used := _by_tool(call))]
    if reader.reads_skill_files:
        can_read = {name for kind in ("shell", "read") for name in reader.tools.get(kind, ())}
        read = {used.path: used for call in calls if call.success and call.name in can_read for used in _by_file(call)}
        return list(read.values())
    return None


def skill_folder(text: JSON) -> str | None:
    """Return the folder of a skill that its text names, if it does."""
    match = _FOLDER.search(text) if isinstance(text, str) else None
    return match.group(1) if match else None


def _by_tool(call: _NamedCall) -> SkillInvocation | None:
    args: dict[str, Any] = call.args if isinstance(call.args, dict) else {}
    name = next((args[key] for key in ("skill", "name", "command") if isinstance(args.get(key), str)), None)
    return SkillInvocation(name=name, path=call.skill_folder or skill_folder(call.result)) if name else None


def _by_file(call: _NamedCall) -> Iterator[SkillInvocation]:
    """Yield the SKILL.md files a command or a read names; one that is written to does not count."""
    args: dict[str, Any] = call.args if isinstance(call.args, dict) else {}
    for text in (args.get(key) for key in ("command", "path", "file_path")):
        for redirect, word in _WORD.findall(text) if isinstance(text, str) else ():
            parts = word.split("/")
            if not redirect and len(parts) > 1 and parts[-1] == "SKILL.md" and parts[-2]:
                yield SkillInvocation(name=parts[-2], path=word)
