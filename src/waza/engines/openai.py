"""The `openai` engine: a loop of model and tools, at OpenAI or any server with the same API.

Tools that the suite declares are offered to the model, and its calls of them are answered here.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Annotated, Any, NamedTuple, Self

from msgspec.structs import replace
from pydantic import Field, field_validator, model_validator

from waza.engines.base import Engine, Options, TrialFolder
from waza.errors import EngineError, Problem, SpecError
from waza.files.paths import SpecFolder
from waza.files.tree import open_regular
from waza.model import Task, Trace, Trial
from waza.options import ZeroMeans
from waza.process.run_program import run_process
from waza.skills import MARK, read_skill
from waza.traces.conversation import converse, recording
from waza.traces.live import Live
from waza.traces.openai_messages import OpenaiMessagesReader
from waza.untrusted.json_schema import Schema, compile_schema, parse_json

_SHOWN_CHARS = 500
_CONVERSATION = "conversation.json"
"""The conversation for a judge, in a file next to the agent's home."""
_Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class TokenPrices(Options):
    """What a million tokens cost, in US dollars."""

    input: _Price
    """Input tokens."""
    output: _Price
    """Output tokens."""


class _TrialTools(NamedTuple):
    """A trial, its folder and the tools its model may call."""

    trial: Trial
    trial_folder: TrialFolder
    tools: Sequence[DeclaredTool | ServedTool]


class OpenaiEngine(Engine):
    """Let a model call tools that the suite declares, until it answers: a minimal agent.

    ```yaml
    config:
      executor: openai
      model: gpt-5-mini
      tools:
        - name: weather
          description: The weather in a city.
          parameters: {type: object, properties: {city: {type: string}}, required: [city]}
          answer: "Sunny, 21 degrees"
    ```

    `OPENAI_API_KEY` is sent to OpenAI only; for another server name its variable in `api_key_env`, or leave it out
    where no key is needed.
    """

    needs_key = True
    mocks = ("command_mocks", "mcp_mocks")
    continues = True

    base_url: str | None = None
    """A server with OpenAI's chat completions API; OpenAI's own, or `OPENAI_BASE_URL`, if left out."""
    api_key_env: str | None = None
    """The variable that holds the key for `base_url`."""
    system: str = ""
    """The system message."""
    inject_skill_body: bool = False
    """Add the text of the suite's SKILL.md to the system message: this agent cannot load skills."""
    tools: list[DeclaredTool] = []
    """Tools that the model may call."""
    environment: dict[str, str] = {}
    """Variables for tools that are commands; a task's own `environment` is added."""
    max_turns: Annotated[int, Field(ge=1)] = 50
    """Model calls per prompt; a trial that needs more has timed out."""
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    """Sampling temperature; the model's default if left out."""
    prices: TokenPrices | None = None
    """What a million tokens cost; without it the cost is not recorded."""

    @field_validator("tools")
    @classmethod
    def _names_are_distinct(cls, tools: list[DeclaredTool]) -> list[DeclaredTool]:
        names = [tool.name for tool in tools]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two tools are called '{twice}'")
        return tools

    def costs_unreported(self) -> str:
        """Return a message where the suite gives no prices."""
        return "" if self.prices else "give the engine `prices`; without them the cost of its tokens is unknown"

    def ready(self, tasks: Sequence[Task] = ()) -> None:
        """Raise SpecError for a key that is not set and a command that is missing."""
        problems = []
        named = self.api_key_env or ("" if self.base_url else "OPENAI_API_KEY")
        if named and not os.environ.get(named):
            fact = f"'{named}' is not set in the environment"
            problems.append(Problem(fact, path="config.api_key_env", severity="warning"))
        if self.inject_skill_body and self.skill_folder is None:
            problems.append(Problem("there is no skill to inject", path="config.inject_skill_body"))
        for tool in self.tools:
            try:
                if tool.command and "/" in tool.command[0]:
                    self.folder.find(tool.command[0])
            except ValueError as error:
                problems.append(Problem(f"tool '{tool.name}': {error}", path="config.tools"))
        if problems:
            raise SpecError(problems)

    async def run(self, trial: Trial, trial_folder: TrialFolder) -> Trace:
        """Call the model and its tools in a loop, for each prompt in one conversation."""
        if not trial.model:
            raise EngineError("no model is named; set config.model or --model", is_started=False)
        body = self._skill_body() if not trial.task.until_skill else ""
        system = "\n\n".join(text for text in (self.system, body) if text)
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        session = str(uuid.uuid4())
        tools: list[DeclaredTool | ServedTool] = [*self.tools, *await served_tools(trial_folder)]

        async def play(prompt: str, before: Sequence[Trace], left_s: float) -> Trace:
            trace = await self._turn(prompt, messages, _TrialTools(trial, trial_folder, tools), left_s)
            return replace(trace, input=prompt, session_id=session)

        trace = await converse(trial, trial_folder, play)
        _store_conversation(trial_folder, [session, messages])
        skills = [self.skill] if body else []
        return replace(trace, engine="openai", model=trace.model or trial.model, available_skills=skills)

    def _skill_body(self) -> str:
        if not self.inject_skill_body or self.skill_folder is None:
            return ""
        try:
            return read_skill(self.skill_folder / MARK).body.strip()
        except ValueError as error:
            raise EngineError(f"the skill cannot be read: {error}", is_started=False) from None

    async def continue_session(
        self, trial: Trial, before: Trace, original: TrialFolder, trial_folder: TrialFolder
    ) -> Trace:
        """Send one more prompt to a conversation, with only the tools of the trial folder."""
        try:
            with open_regular(original.home.parent / _CONVERSATION) as file:
                session, messages = json.load(file)
        except (OSError, ValueError, TypeError) as error:
            raise EngineError(f"the conversation cannot be read: {error}") from None
        if session != before.session_id:
            raise EngineError("the stored conversation is not the one in the trace")
        context = _TrialTools(trial, trial_folder, await served_tools(trial_folder))
        trace = await self._turn(trial.task.prompt, messages, context, trial.task.timeout_s)
        return replace(trace, session_id=session)

    async def _turn(self, prompt: str, messages: list[dict[str, Any]], context: _TrialTools, left_s: float) -> Trace:
        live = Live(OpenaiMessagesReader(), 0, left_s)
        recording(lambda: replace(trace := live.trace(), usage=self._priced(trace)))
        started = time.monotonic()
        status, error = "success", None
        _add_message(messages, live, {"role": "user", "content": prompt})
        try:
            async with asyncio.timeout(max(left_s, 0.001)):
                if not await self._loop(messages, live, context):
                    status, error = (
                        "timeout",
                        f"the model called tools {self.max_turns} times without an answer (max_turns)",
                    )
        except TimeoutError:
            status, error = "timeout", "it was ended at its time limit"
        except EngineError as fault:
            status, error = "error", str(fault)
        trace = live.trace()
        took = (time.monotonic() - started) * 1000
        return replace(trace, status=status, error=error, usage=self._priced(trace), duration_ms=took)

    async def _loop(self, messages: list[dict[str, Any]], live: Live, context: _TrialTools) -> bool:
        """Call the model until it calls no tool; return whether it did within `max_turns`."""
        async with self._client() as client:
            for _ in range(self.max_turns):
                reply = await self._ask(client, messages, context)
                live.feed({"usage": reply.get("usage"), "model": reply.get("model")})
                message = _message(reply)
                _add_message(messages, live, message)
                calls = message.get("tool_calls") or []
                if not calls:
                    return True
                for call in calls:
                    answer = await self._call(call["function"], context)
                    result = {"role": "tool", "tool_call_id": call["id"], "content": answer.text}
                    _add_message(messages, live, result, is_error=answer.is_error)
        return False

    async def _ask(self, client: Any, messages: list[dict[str, Any]], context: _TrialTools) -> dict[str, Any]:
        import openai  # takes half a second to load; only a run with this engine needs it

        extra: dict[str, Any] = {"tools": [tool.declared() for tool in context.tools]} if context.tools else {}
        extra |= {} if self.temperature is None else {"temperature": self.temperature}
        try:
            reply = await client.chat.completions.create(model=context.trial.model, messages=messages, **extra)
            answer: dict[str, Any] = reply.model_dump()
        except openai.APIStatusError as error:
            fact = f"the model's server answered {error.status_code}: {str(error)[:_SHOWN_CHARS]}"
            raise EngineError(fact) from None
        except Exception as error:  # noqa: BLE001  any error of the SDK or of a hostile server means that the agent could not run
            raise EngineError(
                f"the model could not be called: {type(error).__name__}: {error}"[:_SHOWN_CHARS]
            ) from None
        return answer

    async def _call(self, function: dict[str, Any], context: _TrialTools) -> ToolReply:
        tool = next((tool for tool in context.tools if tool.name == function["name"]), None)
        if tool is None:
            return ToolReply(f"there is no tool '{function['name']}'", is_error=True)
        variables = self.environment | context.trial.task.environment
        variables["WAZA_WORKSPACE_DIR"] = str(context.trial_folder.workspace)
        return await tool.call(function["arguments"], context.trial_folder, self.folder, variables)

    def _client(self) -> Any:
        import openai  # slow to load, as above

        named = self.api_key_env or ("" if self.base_url else "OPENAI_API_KEY")
        return openai.AsyncOpenAI(api_key=os.environ.get(named) or "no-key-needed", base_url=self.base_url)

    def _priced(self, trace: Trace) -> Any:
        usage = trace.usage
        if usage is None or self.prices is None or usage.input_tokens is None or usage.output_tokens is None:
            return usage
        cost = (usage.input_tokens * self.prices.input + usage.output_tokens * self.prices.output) / 1e6
        return replace(usage, cost_usd=cost)


def _store_conversation(trial_folder: TrialFolder, conversation: list[Any]) -> None:
    """Store a conversation for a judge; a file that a tool of the agent put there first is not overwritten."""
    with suppress(OSError), (trial_folder.home.parent / _CONVERSATION).open("x", encoding="utf-8") as file:
        json.dump(conversation, file)


def _add_message(
    messages: list[dict[str, Any]], live: Live, message: dict[str, Any], *, is_error: bool = False
) -> None:
    """Add a message to the conversation and to the trace."""
    messages.append(message)
    live.feed(message | ({"is_error": True} if is_error else {}))


def _message(reply: dict[str, Any]) -> dict[str, Any]:
    """Return the model's message as it is sent back; raise EngineError when the reply has none."""
    try:
        received = reply["choices"][0]["message"]
        message: dict[str, Any] = {"role": "assistant", "content": received.get("content")}
        calls = [
            {"id": str(call["id"]), "type": "function", "function": {key: str(call["function"][key]) for key in _CALL}}
            for call in received.get("tool_calls") or []
        ]
    except (KeyError, IndexError, TypeError, AttributeError):
        raise EngineError("the model's reply cannot be read: it has no message") from None
    return message | ({"tool_calls": calls} if calls else {})


_CALL = ("name", "arguments")


_BRACES = re.compile(r"\{(\w+)\}")
_REPLY_CHARS = 50_000
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
        text = finished.stdout.text[:_REPLY_CHARS]
        if finished.ok:
            return ToolReply(text)
        reason = finished.trouble or f"exit code {finished.exit_code}"
        return ToolReply(f"{reason}\n{text}{finished.stderr.text[:_REPLY_CHARS]}", is_error=True)


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
