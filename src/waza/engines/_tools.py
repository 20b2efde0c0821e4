"""Tools that a suite declares for the `openai` engine: their declarations for the model, and how calls are answered."""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import Annotated, Any, NamedTuple, Self

from pydantic import Field, field_validator, model_validator

from waza.files.paths import SpecFolder
from waza.files.trial_folder import TrialFolder
from waza.options import Options, ZeroMeans
from waza.process.run_program import run_process
from waza.untrusted.json_schema import Schema, compile_schema, parse_json

_BRACES = re.compile(r"\{(\w+)\}")
_SHOWN_CHARS = 50_000
_NAME_CHARS = 64
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


class ToolReply(NamedTuple):
    """What a tool returned."""

    text: str
    is_error: bool = False


class DeclaredTool(Options):
    """A tool of the model: its declaration, and a fixed answer or a command that computes one."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    """How the model calls it."""
    description: str = ""
    """Its description for the model."""
    parameters: dict[str, Any] = {"type": "object", "properties": {}}
    """JSON Schema of its arguments; a call that does not fit is answered with what is wrong."""
    answer: str | None = None
    """What every call returns."""
    command: Annotated[list[str], Field(min_length=1)] | None = None
    """A program, run in the working folder without a shell: `{argument}` is filled in, all arguments come as JSON on
    standard input, standard output is the answer. A program with a slash is looked up next to the eval file."""
    timeout_seconds: Annotated[float, Field(gt=0, le=1e6), ZeroMeans(60)] = 60
    """How long the command may take; 0 means the default."""

    @field_validator("parameters", mode="before")
    @classmethod
    def _is_json(cls, parameters: Any) -> Any:
        """Return what YAML read as JSON data, which the schema compiler needs."""
        try:
            return json.loads(json.dumps(parameters))
        except (TypeError, ValueError) as error:
            raise ValueError(f"not a JSON Schema: {error}") from None

    @model_validator(mode="after")
    def _is_clear(self) -> Self:
        if (self.answer is None) == (self.command is None):
            raise ValueError("a tool has either `answer` or `command`")
        compile_schema(self.parameters)
        return self

    @cached_property
    def schema_of_arguments(self) -> Schema:
        """The schema of its arguments, ready to check them."""
        return compile_schema(self.parameters)

    def declared(self) -> dict[str, Any]:
        """Return the tool as OpenAI's chat completions declare it."""
        declaration = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": declaration}

    async def call(
        self, arguments: str, trial_folder: TrialFolder, folder: SpecFolder, variables: dict[str, str]
    ) -> ToolReply:
        """Return the answer to a call; an error of the call or the command is an answer too."""
        try:
            given = parse_json(arguments or "{}")
        except ValueError as error:
            return ToolReply(f"the arguments are not JSON: {error}", is_error=True)
        if problems := self.schema_of_arguments.problems(given):
            return ToolReply("the arguments do not fit: " + "; ".join(problems), is_error=True)
        if self.command is None:
            return ToolReply(self.answer or "")
        return await self._run(self.command, given, trial_folder, folder, variables)

    async def _run(
        self, command: list[str], given: Any, trial_folder: TrialFolder, folder: SpecFolder, variables: dict[str, str]
    ) -> ToolReply:
        try:
            program = str(folder.find(command[0])) if "/" in command[0] else command[0]
            finished = await run_process(
                [program, *(_filled(word, given) for word in command[1:])],
                cwd=trial_folder.workdir,
                env=trial_folder.environment(variables),
                stdin=json.dumps(given).encode(),
                timeout_s=self.timeout_seconds,
            )
        except ValueError as error:
            return ToolReply(str(error), is_error=True)
        text = finished.stdout.text[:_SHOWN_CHARS]
        if finished.ok:
            return ToolReply(text)
        reason = finished.trouble or f"exit code {finished.exit_code}"
        return ToolReply(f"{reason}\n{text}{finished.stderr.text[:_SHOWN_CHARS]}", is_error=True)


class ServedTool(NamedTuple):
    """A tool of a mocked MCP server."""

    server: str
    tool: dict[str, Any]

    @property
    def name(self) -> str:
        """How the model calls it."""
        return _NOT_IN_NAMES.sub("_", f"mcp__{self.server}__{self.tool['name']}")[:_NAME_CHARS]

    def declared(self) -> dict[str, Any]:
        """Return the tool as OpenAI's chat completions declare it."""
        declaration = {
            "name": self.name,
            "description": self.tool["description"],
            "parameters": self.tool["inputSchema"],
        }
        return {"type": "function", "function": declaration}

    async def call(
        self, arguments: str, trial_folder: TrialFolder, folder: SpecFolder, variables: dict[str, str]
    ) -> ToolReply:
        """Return the server's answer to a call."""
        try:
            given = parse_json(arguments or "{}")
        except ValueError as error:
            return ToolReply(f"the arguments are not JSON: {error}", is_error=True)
        if not isinstance(given, dict) or trial_folder.mock_programs.ask is None:
            return ToolReply("the arguments are not a JSON object", is_error=True)
        reply = await trial_folder.mock_programs.ask({"server": self.server, "tool": self.tool["name"], "args": given})
        return ToolReply(reply["text"], reply["is_error"])


async def served_tools(trial_folder: TrialFolder) -> list[ServedTool]:
    """Return the tools of a trial folder's MCP servers."""
    if trial_folder.mock_programs.ask is None:
        return []
    listed = [
        (server, await trial_folder.mock_programs.ask({"server": server}))
        for server in trial_folder.mock_programs.servers
    ]
    return [ServedTool(server, tool) for server, answer in listed for tool in answer["tools"]]


def _filled(word: str, given: Any) -> str:
    """Return a word of a command with arguments filled in; placeholders in the values themselves are not."""

    def value(match: re.Match[str]) -> str:
        if not isinstance(given, dict) or match[1] not in given:
            return match[0]
        argument = given[match[1]]
        return argument if isinstance(argument, str) else json.dumps(argument)

    return _BRACES.sub(value, word)
