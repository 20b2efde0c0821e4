"""The entries of `tool_constraint`: a tool with patterns for what it was called with, and how names are folded."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from waza.graders._calls import CallMatcher
from waza.graders._fields import FoldingPattern, ToolName
from waza.graders._match import ArgMatcher, Difference, or_bare
from waza.model import JSON
from waza.sandbox.patterns import fits_name, name_glob
from waza.sandbox.texts import fold_case

_QUALIFIERS = {
    "command_pattern": ("command", "cmd"),
    "skill_pattern": ("skill",),
    "path_pattern": ("path", "file_path", "filePath"),
}
"""The arguments each pattern is held against: the first one that is given."""
_ALIASES = {
    "readfile": "read",
    "fileread": "read",
    "view": "read",
    "writefile": "write",
    "filewrite": "write",
    "edit": "write",
    "runcommand": "bash",
    "web_fetch": "fetch",
}
_FOREIGN = ("mcp:", "custom:")


class ToolRule(CallMatcher):
    """A tool, and what it is called with; a bare text is its exact name, or a glob."""

    command_pattern: FoldingPattern | None = None
    """A pattern that matches somewhere in the call's command, in any case."""
    skill_pattern: FoldingPattern | None = None
    """A pattern that matches somewhere in the call's skill, in any case."""
    path_pattern: FoldingPattern | None = None
    """A pattern that matches somewhere in the call's path, in any case."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @cached_property
    def label(self) -> str:
        """The tool, with its qualifiers, for people."""
        parts = [f"{key}: {getattr(self, key).source}" for key in _QUALIFIERS if getattr(self, key)]
        parts += [f"args: [{', '.join(sorted(self.args))}]"] if self.args else []
        return self.tool_text + (f" ({', '.join(parts)})" if parts else "")

    @cached_property
    def _qualifiers(self) -> dict[str, ArgMatcher]:
        return {key: ArgMatcher(regex=getattr(self, key)) for key in _QUALIFIERS if getattr(self, key)}

    @property
    def states_arguments(self) -> bool:
        """Whether it says anything about a call's arguments, by a pattern or by a matcher."""
        return bool(self.args or self._qualifiers)

    def differences(self, args: JSON) -> Iterator[Difference]:
        """Yield every qualifier and argument that is not as expected; what is not given reads as nothing."""
        given = args if isinstance(args, dict) else {}
        for key, matcher in self._qualifiers.items():
            argument = next((name for name in _QUALIFIERS[key] if name in given), _QUALIFIERS[key][0])
            difference = matcher.difference(argument, [given.get(argument)])
            if difference is not None:
                expected = {key: matcher.written()["regex"]}
                yield difference._replace(expected=expected) if argument in given else Difference(argument, expected)
        yield from super().differences(args)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the schema of the mapping, and of a bare name beside it."""
        return or_bare(handler.resolve_ref_schema(handler(core)), "string")


class AllowedTool(ToolRule):
    """A tool that may be called; a bare text or `tool` is its name, whatever an engine calls it."""

    tool: ToolName | None = None  # type: ignore[assignment]
    """The tool's name or a glob; `view`, `readFile` and `read` are the same tool, as are `edit` and `write`."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"tool": value} if isinstance(value, str) else value

    def tells(self, name: str) -> bool:
        """Say whether a tool's name is this one: `tool` after folding, `name` letter for letter; both may be globs."""
        if self.tool is None:
            return bool(super().tells(name))
        return self._canonical == canonical_name(name) or allows(str(self.tool), name)

    @cached_property
    def _canonical(self) -> str:
        return canonical_name(str(self.tool))


def canonical_name(name: str) -> str:
    """Return the name engines have in common for a tool; names of MCP and custom tools stay as they are."""
    folded = fold_case(name.strip())
    if folded.startswith(_FOREIGN):
        return folded
    bare = folded.removeprefix("builtin:")
    return _ALIASES.get(bare, bare)


def allows(declared: str, observed: str) -> bool:
    """Say whether a declared tool covers an observed one: `mcp:x` covers a bare `x`, never the reverse."""
    wanted = canonical_name(declared)
    if name_glob(wanted) is not None:
        return _glob_allows(declared, wanted, observed)
    if wanted == canonical_name(observed):
        return True
    prefix = next((prefix for prefix in _FOREIGN if wanted.startswith(prefix)), None)
    return prefix is not None and wanted.removeprefix(prefix) == fold_case(observed.strip())


def _glob_allows(declared: str, wanted: str, observed: str) -> bool:
    """Say whether a glob covers an observed tool under its own or its canonical name.

    `builtin:*` covers no MCP and no custom tool, and `mcp:*` no bare name: that would be every tool there is.
    """
    seen = fold_case(observed.strip())
    if seen.startswith(_FOREIGN) and fold_case(declared.strip()).startswith("builtin:"):
        return False
    if fits_name(wanted, canonical_name(observed)) or fits_name(wanted, seen.removeprefix("builtin:")):
        return True
    bare = next((wanted.removeprefix(prefix) for prefix in _FOREIGN if wanted.startswith(prefix)), "")
    return bool(bare) and bare[0] not in "*?" and fits_name(bare, seen)
