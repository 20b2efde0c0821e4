"""The `openai` engine: a plain loop of model and tools, at OpenAI or any server that speaks the same."""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

from msgspec.structs import replace
from pydantic import Field, field_validator

from waza.engines._tools import DeclaredTool, ServedTool, ToolReply, served_tools
from waza.engines.base import Engine, Options, TrialFolder
from waza.errors import EngineError, Problem, SpecError
from waza.files.tree import open_regular
from waza.model import Task, Trace, Trial
from waza.skills import MARK, read_skill
from waza.traces.conversation import converse, recording
from waza.traces.live import Live
from waza.traces.openai_messages import OpenaiMessagesReader

_SHOWN_CHARS = 500
_CONVERSATION = "conversation.json"
"""Where a judge finds the conversation, beside the agent's home."""
_Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class TokenPrices(Options):
    """What a million tokens cost, in US dollars."""

    input: _Price
    """Tokens sent."""
    output: _Price
    """Tokens made."""


class _Having(NamedTuple):
    """What the model works with in one trial."""

    trial: Trial
    trial_folder: TrialFolder
    tools: Sequence[DeclaredTool | ServedTool]


class OpenaiEngine(Engine):
    """Let a model call tools that the suite declares, until it answers: the smallest agent there is.

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

    `OPENAI_API_KEY` is sent to OpenAI alone; for another server name the variable in `api_key_env`, or none where it
    needs no key.
    """

    needs_key = True
    mocks = ("command_mocks", "mcp_mocks")
    continues = True

    base_url: str | None = None
    """A server that speaks OpenAI's chat completions; OpenAI's own, or `OPENAI_BASE_URL`, if left out."""
    api_key_env: str | None = None
    """The variable that holds the key for `base_url`."""
    system: str = ""
    """What the model is told before the prompt."""
    inject_skill_body: bool = False
    """Tell the model the text of the suite's SKILL.md too. There is no other way: this agent loads no skills."""
    tools: list[DeclaredTool] = []
    """What the model may call."""
    environment: dict[str, str] = {}
    """Variables for tools that are commands; a task's own `environment` is added."""
    max_turns: Annotated[int, Field(ge=1)] = 50
    """How often the model is asked for one prompt; then the trial is out of time."""
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    """How much chance there is in answers; the model's default if left out."""
    prices: TokenPrices | None = None
    """What a million tokens cost; without it the cost is not known."""

    @field_validator("tools")
    @classmethod
    def _names_are_distinct(cls, tools: list[DeclaredTool]) -> list[DeclaredTool]:
        names = [tool.name for tool in tools]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two tools are called '{twice}'")
        return tools

    def costs_unreported(self) -> str:
        """Return a sentence where nobody said what tokens cost."""
        return "" if self.prices else "give the engine `prices`, or nobody knows what its tokens cost"

    def ready(self, tasks: Sequence[Task] = ()) -> None:
        """Refuse a key that is not set and a command that is not there."""
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
        """Ask the model, call its tools, and so on, for each prompt in one conversation."""
        if not trial.model:
            raise EngineError("no model is named; set config.model or --model", is_started=False)
        body = self._skill_body() if not trial.task.until_skill else ""
        told = "\n\n".join(text for text in (self.system, body) if text)
        messages: list[dict[str, Any]] = [{"role": "system", "content": told}] if told else []
        session = str(uuid.uuid4())
        tools: list[DeclaredTool | ServedTool] = [*self.tools, *await served_tools(trial_folder)]

        async def play(prompt: str, before: Sequence[Trace], left_s: float) -> Trace:
            trace = await self._turn(prompt, messages, _Having(trial, trial_folder, tools), left_s)
            return replace(trace, input=prompt, session_id=session)

        trace = await converse(trial, trial_folder, play)
        _keep(trial_folder, [session, messages])
        skills = [self.skill] if body else []
        return replace(trace, engine="openai", model=trace.model or trial.model, available_skills=skills)

    def _skill_body(self) -> str:
        if not self.inject_skill_body or self.skill_folder is None:
            return ""
        try:
            return read_skill(self.skill_folder / MARK).body.strip()
        except ValueError as error:
            raise EngineError(f"the skill cannot be read: {error}", is_started=False) from None

    async def go_on(self, trial: Trial, before: Trace, left: TrialFolder, trial_folder: TrialFolder) -> Trace:
        """Put one more prompt to a conversation, with the tools of the room alone."""
        try:
            with open_regular(left.home.parent / _CONVERSATION) as file:
                session, messages = json.load(file)
        except (OSError, ValueError, TypeError) as error:
            raise EngineError(f"the conversation cannot be taken over: {error}") from None
        if session != before.session_id:
            raise EngineError("the conversation is another one than the trace tells of")
        having = _Having(trial, trial_folder, await served_tools(trial_folder))
        trace = await self._turn(trial.task.prompt, messages, having, trial.task.timeout_s)
        return replace(trace, session_id=session)

    async def _turn(self, prompt: str, messages: list[dict[str, Any]], having: _Having, left_s: float) -> Trace:
        live = Live(OpenaiMessagesReader(), 0, left_s)
        recording(lambda: replace(trace := live.trace(), usage=self._priced(trace)))
        started = time.monotonic()
        status, error = "success", None
        _say(messages, live, {"role": "user", "content": prompt})
        try:
            async with asyncio.timeout(max(left_s, 0.001)):
                if not await self._loop(messages, live, having):
                    status, error = "timeout", f"the model was asked {self.max_turns} times without an end (max_turns)"
        except TimeoutError:
            status, error = "timeout", "it was ended at its time limit"
        except EngineError as fault:
            status, error = "error", str(fault)
        trace = live.trace()
        took = (time.monotonic() - started) * 1000
        return replace(trace, status=status, error=error, usage=self._priced(trace), duration_ms=took)

    async def _loop(self, messages: list[dict[str, Any]], live: Live, having: _Having) -> bool:
        """Ask until the model calls no tool; say whether it came to that."""
        async with self._client() as client:
            for _ in range(self.max_turns):
                reply = await self._ask(client, messages, having)
                live.feed({"usage": reply.get("usage"), "model": reply.get("model")})
                message = _message(reply)
                _say(messages, live, message)
                calls = message.get("tool_calls") or []
                if not calls:
                    return True
                for call in calls:
                    answer = await self._call(call["function"], having)
                    told = {"role": "tool", "tool_call_id": call["id"], "content": answer.text}
                    _say(messages, live, told, is_error=answer.is_error)
        return False

    async def _ask(self, client: Any, messages: list[dict[str, Any]], having: _Having) -> dict[str, Any]:
        import openai  # half a second: only a run with this engine pays for it

        extra: dict[str, Any] = {"tools": [tool.declared() for tool in having.tools]} if having.tools else {}
        extra |= {} if self.temperature is None else {"temperature": self.temperature}
        try:
            reply = await client.chat.completions.create(model=having.trial.model, messages=messages, **extra)
            told: dict[str, Any] = reply.model_dump()
        except openai.APIStatusError as error:
            fact = f"the model's server answered {error.status_code}: {str(error)[:_SHOWN_CHARS]}"
            raise EngineError(fact) from None
        except Exception as error:  # noqa: BLE001  whatever the SDK or a hostile server does, the agent could not run
            raise EngineError(f"the model could not be asked: {type(error).__name__}: {error}"[:_SHOWN_CHARS]) from None
        return told

    async def _call(self, function: dict[str, Any], having: _Having) -> ToolReply:
        tool = next((tool for tool in having.tools if tool.name == function["name"]), None)
        if tool is None:
            return ToolReply(f"there is no tool '{function['name']}'", is_error=True)
        variables = self.environment | having.trial.task.environment
        variables["WAZA_WORKSPACE_DIR"] = str(having.trial_folder.workspace)
        return await tool.call(function["arguments"], having.trial_folder, self.folder, variables)

    def _client(self) -> Any:
        import openai

        named = self.api_key_env or ("" if self.base_url else "OPENAI_API_KEY")
        return openai.AsyncOpenAI(api_key=os.environ.get(named) or "no-key-needed", base_url=self.base_url)

    def _priced(self, trace: Trace) -> Any:
        usage = trace.usage
        if usage is None or self.prices is None or usage.input_tokens is None or usage.output_tokens is None:
            return usage
        cost = (usage.input_tokens * self.prices.input + usage.output_tokens * self.prices.output) / 1e6
        return replace(usage, cost_usd=cost)


def _keep(trial_folder: TrialFolder, conversation: list[Any]) -> None:
    """Keep a conversation for a judge; what a tool of the agent put in its place stays, and no judge can go on."""
    with suppress(OSError), (trial_folder.home.parent / _CONVERSATION).open("x", encoding="utf-8") as file:
        json.dump(conversation, file)


def _say(messages: list[dict[str, Any]], live: Live, message: dict[str, Any], *, is_error: bool = False) -> None:
    """Add a message to the conversation and to the trace."""
    messages.append(message)
    live.feed(message | ({"is_error": True} if is_error else {}))


def _message(reply: dict[str, Any]) -> dict[str, Any]:
    """Return the model's message as it is sent back; raise EngineError when the answer holds none."""
    try:
        told = reply["choices"][0]["message"]
        message: dict[str, Any] = {"role": "assistant", "content": told.get("content")}
        calls = [
            {"id": str(call["id"]), "type": "function", "function": {key: str(call["function"][key]) for key in _CALL}}
            for call in told.get("tool_calls") or []
        ]
    except (KeyError, IndexError, TypeError, AttributeError):
        raise EngineError("the model's answer cannot be read: it holds no message") from None
    return message | ({"tool_calls": calls} if calls else {})


_CALL = ("name", "arguments")
