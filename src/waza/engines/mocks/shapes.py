"""The shapes of `mcp_mocks` and `command_mocks`, and when an answer matches a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from waza.graders.base import Bound, InnerPath, PatternField, Text
from waza.graders.matchers import ArgMatcher, parse_path, values_at
from waza.model import JSON
from waza.options import Options
from waza.untrusted.json_schema import Schema, compile_schema
from waza.untrusted.patterns import Pattern, PatternTimeout

_ServerName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
_ProgramName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")]
_ARGUMENT_KEYS = ("args", "args_regex", "args_prefix")


class MockAnswer(Options):
    """Keys of every answer: the state it depends on and the state it sets, which all mocks of a trial share."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    when: dict[Text, ArgMatcher] = {}
    """State that must have been `set` for this answer to match: matchers by key, as for arguments of tool calls."""
    set: dict[Text, Any] = {}
    """State that this answer sets, by key."""


class McpAnswer(MockAnswer):
    """One answer of a mocked tool; all its conditions must be met, and an answer without any matches every call."""

    match: dict[str, Any] | None = None
    """The arguments, all of them and no others."""
    match_schema: Annotated[dict[str, Any], Field(min_length=1)] | None = None
    """A JSON Schema for the arguments."""
    match_regex: Annotated[dict[Text, PatternField], Field(min_length=1)] | None = None
    """By argument: a pattern that matches somewhere in it."""
    args: Annotated[dict[Text, ArgMatcher], Field(min_length=1)] | None = None
    """By argument, or path into one: matchers, as in `tool_calls`."""
    returns: Any = Field(default=None, alias="return")
    """What the tool returns: a text as it is, anything else as JSON."""
    error: Text | None = None
    """The error the tool fails with, instead of `return`."""

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        if ("returns" in self.model_fields_set) == (self.error is not None):
            raise ValueError("an answer has either `return` or `error`")
        return self

    @field_validator("match_schema")
    @classmethod
    def _compiles(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        return _compiled(schema)

    @cached_property
    def _whole(self) -> list[ArgMatcher]:
        matchers = [] if self.match is None else [ArgMatcher(equals=self.match)]
        return matchers + ([] if self.match_schema is None else [ArgMatcher(json_schema=self.match_schema)])

    @cached_property
    def _parts(self) -> dict[str, ArgMatcher]:
        return {key: ArgMatcher(regex=pattern) for key, pattern in (self.match_regex or {}).items()}

    def fits(self, args: dict[str, JSON], state: Mapping[str, JSON]) -> bool:
        """Return whether this is the answer to a call."""
        return (
            all(matcher.failing(args) == [] for matcher in self._whole)
            and all_match(self._parts, args)
            and all_match(self.args or {}, args)
            and all_match(self.when, state)
        )


class MockTool(Options):
    """A tool of a mocked MCP server."""

    description: str = ""
    """Its description for the agent."""
    input_schema: dict[str, Any] = {"type": "object"}
    """JSON Schema of its arguments; a call that does not match it fails with the reason."""
    responses: Annotated[list[McpAnswer], Field(min_length=1)]
    """Its answers; the first that matches is given."""
    expect_calls: Bound | None = None
    """How often it must be called in a trial, exactly; checked when the trial is graded."""

    @field_validator("input_schema")
    @classmethod
    def _compiles(cls, schema: dict[str, Any]) -> dict[str, Any]:
        if schema.get("type") != "object":
            raise ValueError("the arguments of a tool are an object: `type: object`")
        return _compiled(schema) or {}

    @cached_property
    def schema_of_arguments(self) -> Schema:
        """The schema of its arguments, ready to check them."""
        return compile_schema(self.input_schema)


class McpMock(Options):
    """A mocked MCP server."""

    name: _ServerName
    """The server's name."""
    fixtures: Text | None = None
    """A folder of JSON files next to the eval file: each is one tool, named after the file, or a mapping of `tools`."""
    tools: dict[Text, MockTool] = {}
    """Its tools by name; they win over those of `fixtures`."""


class CommandAnswer(MockAnswer):
    """One answer of a mocked program."""

    args: list[str] | None = None
    """The arguments, all of them and no others."""
    args_regex: list[PatternField] | None = None
    """A pattern for each argument, which must match all of it."""
    args_prefix: Annotated[list[str], Field(min_length=1)] | None = None
    """The first arguments; any may follow."""
    environment: dict[str, str] = {}
    """Variables that must have these values."""
    workdir: InnerPath | None = None
    """The folder in the workspace it must be started in."""
    stdout: Any = None
    """What it prints: a text as it is, anything else as JSON."""
    fixture: Text | None = None
    """A file next to the eval file with what it prints, instead of `stdout`."""
    stderr: str = ""
    """What it prints on standard error."""
    exit_code: Annotated[int, Field(ge=0, le=255)] = 0
    """Its exit code."""

    @model_validator(mode="after")
    def _is_clear(self) -> Self:
        if sum(getattr(self, key) is not None for key in _ARGUMENT_KEYS) != 1:
            raise ValueError(f"an answer has exactly one of: {', '.join(_ARGUMENT_KEYS)}")
        if self.fixture is not None and self.stdout is not None:
            raise ValueError("an answer has either `stdout` or `fixture`")
        return self

    @cached_property
    def _patterns(self) -> list[Pattern]:
        return [Pattern(f"^(?:{pattern.source})$") for pattern in self.args_regex or []]

    def fits(
        self, args: Sequence[str], started_in: Path, variables: Mapping[str, str], state: Mapping[str, JSON]
    ) -> bool:
        """Return whether this is the answer to a call; `started_in` is relative to the workspace."""
        return (
            self._fits_args(list(args))
            and all(variables.get(name) == value for name, value in self.environment.items())
            and (self.workdir is None or started_in == Path(self.workdir))
            and all_match(self.when, state)
        )

    def _fits_args(self, args: list[str]) -> bool:
        if self.args is not None:
            return args == self.args
        if self.args_prefix is not None:
            return args[: len(self.args_prefix)] == self.args_prefix
        if len(args) != len(self._patterns):
            return False
        try:
            return all(pattern.search(word) for pattern, word in zip(self._patterns, args, strict=True))
        except PatternTimeout:
            return False


class CommandMock(Options):
    """A mocked program."""

    name: _ProgramName
    """The program's name, as it is called on PATH."""
    expect_calls: Bound | None = None
    """How often it must be called in a trial, exactly; checked when the trial is graded."""
    responses: Annotated[list[CommandAnswer], Field(min_length=1)]
    """Its answers; the first that matches is given."""


class Mocks(Options):
    """The mocks of one task, with the content of their files."""

    servers: list[McpMock] = []
    """Mocked MCP servers."""
    commands: list[CommandMock] = []
    """Mocked programs."""


def all_match(matchers: Mapping[str, ArgMatcher], values: Mapping[str, JSON]) -> bool:
    """Return whether every matcher accepts the value at its key or path; one that cannot decide does not."""
    given = dict(values)
    return all(
        matcher.difference(key, values_at(given, key, parse_path(key))) is None for key, matcher in matchers.items()
    )


def _compiled(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    if schema is not None:
        compile_schema(schema)
    return schema
