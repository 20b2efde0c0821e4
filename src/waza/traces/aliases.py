"""What agent programs call the same tool, and the same argument. `docs/guide/traces.md` shows these tables.

`dialect_of(trace)` is None unless `trace.engine` names an agent program in the tables: names are then exact. A name
that is not in the column of the trace's own program (an MCP tool, a custom one) is never an alias of anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import Any, Protocol

from waza.model import JSON, SkillInvocation, ToolEvent, Trace
from waza.untrusted.patterns import fits_name, name_glob
from waza.untrusted.text import fold_case

TOOLS: dict[str, dict[str, tuple[str, ...]]] = {
    "shell": {
        "claude-code": ("Bash",),
        "codex": ("command_execution", "shell", "local_shell", "shell_command", "exec_command"),
        "copilot": ("bash", "powershell"),
        "gemini": ("run_shell_command",),
        "mini-swe-agent": ("bash",),
        "opencode": ("bash",),
        "openhands": ("terminal", "execute_bash"),
        "pi": ("bash",),
        "qwen": ("run_shell_command",),
        "": ("execute", "execute_command", "run_command", "runCommand", "run_in_terminal", "run_terminal_cmd"),
    },
    "read": {
        "claude-code": ("Read",),
        "copilot": ("view",),
        "gemini": ("read_file",),
        "opencode": ("read",),
        "pi": ("read",),
        "qwen": ("read_file",),
        "": ("readFile", "fileRead"),
    },
    "write": {
        "claude-code": ("Write",),
        "copilot": ("create",),
        "gemini": ("write_file",),
        "opencode": ("write",),
        "pi": ("write",),
        "qwen": ("write_file",),
        "": ("writeFile", "fileWrite", "create_file"),
    },
    "edit": {
        "claude-code": ("Edit", "MultiEdit"),
        "copilot": ("edit",),
        "gemini": ("replace",),
        "opencode": ("edit",),
        "pi": ("edit",),
        "qwen": ("edit",),
        "": ("str_replace", "edit_file"),
    },
    "patch": {
        "codex": ("file_change", "apply_patch"),
        "copilot": ("apply_patch", "str_replace_editor"),
        "opencode": ("patch", "apply_patch"),
        "openhands": ("file_editor", "str_replace_editor"),
    },
    "list": {
        "claude-code": ("LS",),
        "gemini": ("list_directory",),
        "opencode": ("list",),
        "pi": ("ls",),
        "qwen": ("list_directory",),
        "": ("list_dir",),
    },
    "glob": {
        "claude-code": ("Glob",),
        "copilot": ("glob",),
        "gemini": ("glob",),
        "opencode": ("glob",),
        "pi": ("find",),
        "qwen": ("glob",),
        "": ("find_files",),
    },
    "grep": {
        "claude-code": ("Grep",),
        "copilot": ("grep", "rg"),
        "gemini": ("search_file_content", "grep_search"),
        "opencode": ("grep",),
        "pi": ("grep",),
        "qwen": ("grep_search", "search_file_content"),
        "": ("ripgrep",),
    },
    "fetch": {
        "claude-code": ("WebFetch",),
        "copilot": ("web_fetch",),
        "gemini": ("web_fetch",),
        "opencode": ("webfetch",),
        "qwen": ("web_fetch",),
        "": ("fetch",),
    },
    "web search": {
        "claude-code": ("WebSearch",),
        "codex": ("web_search",),
        "copilot": ("web_search",),
        "gemini": ("google_web_search",),
        "opencode": ("websearch",),
        "qwen": ("web_search",),
    },
    "to-do list": {
        "claude-code": ("TodoWrite",),
        "codex": ("todo_list", "update_plan"),
        "copilot": ("update_todo",),
        "gemini": ("write_todos",),
        "opencode": ("todowrite",),
        "openhands": ("task_tracker",),
        "qwen": ("todo_write",),
    },
    "sub-agent": {
        "claude-code": ("Agent", "Task"),
        "codex": ("spawn_agent",),
        "copilot": ("task",),
        "gemini": ("delegate_to_agent",),
        "opencode": ("task",),
        "qwen": ("agent", "task"),
    },
    "skill": {
        "claude-code": ("Skill",),
        "copilot": ("skill",),
        "gemini": ("activate_skill",),
        "opencode": ("skill",),
        "qwen": ("skill",),
    },
}
"""For each tool its names by agent program; under "" the names that authors use and none of these programs has."""

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
_MCP_MARKS = ("mcp__", "mcp:", "mcp_")


class Dialect:
    """How one agent program names its tools and their arguments."""

    def __init__(self, program: str) -> None:
        self._kinds = _kinds_of(program)

    def same(self, declared: str, event: ToolEvent) -> bool:
        """Say whether a declared name means the tool of a call: the same word, or another program's for the same.

        A glob covers names as this program spells them, its own tools' in any case: `create_*` is about a family of
        tools, and must not be fulfilled by the tool for writing files because one program calls that `create_file`.
        """
        seen = event.tool_name
        if declared == seen:
            return True
        if name_glob(declared) is not None:
            return self._covers(declared, seen)
        if seen in self._kinds:
            return not _meant_by(declared).isdisjoint(self.kinds(event))
        marked = _is_mcp(declared) or _is_mcp(seen)
        return marked and _mcp_name(declared) == _mcp_name(seen)

    def _covers(self, glob: str, seen: str) -> bool:
        """Say whether a glob covers a tool's name, MCP tools' in any program's spelling."""
        if fits_name(glob, seen):
            return True
        if seen in self._kinds:
            return fits_name(fold_case(glob), fold_case(seen))
        bare = _mcp_name(glob)
        # `mcp__*` is every MCP tool; a name without the mark may be any tool, so it takes a server's name to cover it.
        marked = _is_mcp(seen) or (_is_mcp(glob) and bare[0] not in "*?")
        return marked and fits_name(bare, _mcp_name(seen))

    def kinds(self, event: ToolEvent) -> frozenset[str]:
        """Return what a call is by the table: `shell`, `read`, …; a patch is what it does to files."""
        kind = self._kinds.get(event.tool_name)
        if kind is None:
            return frozenset()
        return frozenset({kind} | (_patch_kinds(event.args) if kind == "patch" else set()))

    def args(self, event: ToolEvent, wanted: Iterable[str]) -> JSON:
        """Return a call's arguments, with those that are wanted under a name that another program has for them."""
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
        """Return the name of each call: the declared one that means it, else the one that was seen."""
        words = list(dict.fromkeys(declared))
        return [
            event.tool_name
            if event.tool_name in words
            else next((word for word in words if self.same(word, event)), event.tool_name)
            for event in events
        ]

    def used(self, declared: Iterable[str], events: Iterable[ToolEvent]) -> dict[str, None]:
        """Return the names that were seen, and the declared ones that mean one of those calls."""
        calls = list(events)
        meant = [word for word in declared if any(self.same(word, event) for event in calls)]
        return dict.fromkeys([*(event.tool_name for event in calls), *meant])

    def seen_as(self, declared: Iterable[str], events: Iterable[ToolEvent]) -> dict[str, list[str]]:
        """Return for each declared name the other names its calls really had; names without any are left out."""
        calls = list(events)
        found = {
            word: list(dict.fromkeys(event.tool_name for event in calls if self.same(word, event)))
            for word in dict.fromkeys(declared)
        }
        return {word: names for word, names in found.items() if names and names != [word]}


def dialect_of(trace: Trace) -> Dialect | None:
    """Return how the agent of a trace names its tools; None when it is no agent program we know."""
    return None if trace.engine is None else dialect(trace.engine)


@lru_cache(maxsize=64)
def dialect(engine: str) -> Dialect | None:
    """Return how an engine's agent names its tools; None when it is no agent program we know."""
    program = _PROGRAMS.get(engine, engine)
    return Dialect(program) if program and _kinds_of(program) else None


def means_shell(name: str) -> bool:
    """Say whether a name is a shell's in any program."""
    return "shell" in _meant_by(name)


@cache
def _kinds_of(program: str) -> dict[str, str]:
    return {name: kind for kind, column in TOOLS.items() for name in column.get(program, ())}


@lru_cache(maxsize=1024)
def _meant_by(declared: str) -> frozenset[str]:
    """Return the tools a name stands for in any program, whatever its case."""
    folded = fold_case(declared)
    return frozenset(
        kind
        for kind, column in TOOLS.items()
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
    return name.startswith(_MCP_MARKS)


def _mcp_name(name: str) -> str:
    """Return server and tool of an MCP tool's name in the way all programs have in common."""
    bare = next((name.removeprefix(mark) for mark in _MCP_MARKS if name.startswith(mark)), name)
    return "_".join(part for part in bare.replace("-", "_").replace("/", "_").split("_") if part)


# The exit code of a shell command where a program tells it only in the text of the result.

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


def exit_code_in(result: JSON, tool: str) -> int | None:
    """Return the exit code that the result of a shell tool tells in its text, or None."""
    if not isinstance(result, str) or not means_shell(tool):
        return None
    match = _TAIL.search(result[-_TAIL_CHARS:]) or _HEAD.match(result[:_HEAD_CHARS])
    return next((int(group) for group in match.groups() if group is not None), None) if match else None


# Which skills an agent used, from its tool calls.
#
# Programs with a skill tool are taken at its word. Codex and pi have none: their model reads a SKILL.md file.

_HAVE_TOOL = {program for program in TOOLS["skill"] if program}
_READ_FILES = {"codex", "pi"}
_WORD = re.compile(r"(>\s*['\"]?)?([^\s'\"<>|;&()]+)")
_FOLDER = re.compile(r"(?:Base directory for this skill: |Resources loaded from `)([^`\n]+)")


class _NamedCall(Protocol):
    name: str
    args: JSON
    result: JSON
    success: bool
    skill_folder: str | None


def invocations(engine: str | None, calls: Iterable[_NamedCall]) -> list[SkillInvocation] | None:
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


def _by_tool(call: _NamedCall) -> SkillInvocation | None:
    args: dict[str, Any] = call.args if isinstance(call.args, dict) else {}
    name = next((args[key] for key in ("skill", "name", "command") if isinstance(args.get(key), str)), None)
    return SkillInvocation(name=name, path=call.skill_folder or skill_folder(call.result)) if name else None


def _by_file(call: _NamedCall) -> Iterator[SkillInvocation]:
    """Yield the SKILL.md files a command or a read names; one that is written to is not used."""
    args: dict[str, Any] = call.args if isinstance(call.args, dict) else {}
    named = [args.get(key) for key in ("command", "path", "file_path")] if call.name in _READERS else []
    for text in named:
        for written, word in _WORD.findall(text) if isinstance(text, str) else ():
            parts = word.split("/")
            if not written and len(parts) > 1 and parts[-1] == "SKILL.md" and parts[-2]:
                yield SkillInvocation(name=parts[-2], path=word)


_READERS = {name for kind in ("shell", "read") for program in _READ_FILES for name in TOOLS[kind].get(program, ())}
