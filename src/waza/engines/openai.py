"""The `openai` engine: a plain loop of model and tools, at OpenAI or any server that speaks the same."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Sequence
from typing import Annotated, Any

from msgspec.structs import replace
from pydantic import Field, field_validator

from waza.engines._base import Engine, Options, Room
from waza.engines._tools import Answer, Tool
from waza.engines._turns import converse
from waza.errors import EngineError, Problem, SpecError
from waza.model import Task, Trace, Trial
from waza.traces._live import Live
from waza.traces.openai_messages import OpenaiMessagesReader

_SHOWN_CHARS = 500
_Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Prices(Options):
    """What a million tokens cost, in US dollars."""

    input: _Price
    """Tokens sent."""
    output: _Price
    """Tokens made."""


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
    mocks = ("command_mocks",)

    base_url: str | None = None
    """A server that speaks OpenAI's chat completions; OpenAI's own, or `OPENAI_BASE_URL`, if left out."""
    api_key_env: str | None = None
    """The variable that holds the key for `base_url`."""
    system: str = ""
    """What the model is told before the prompt."""
    tools: list[Tool] = []
    """What the model may call."""
    environment: dict[str, str] = {}
    """Variables for tools that are commands; a task's own `environment` is added."""
    max_turns: Annotated[int, Field(ge=1)] = 50
    """How often the model is asked for one prompt; then the trial is out of time."""
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    """How much chance there is in answers; the model's default if left out."""
    prices: Prices | None = None
    """What a million tokens cost; without it the cost is not known."""

    @field_validator("tools")
    @classmethod
    def _names_are_distinct(cls, tools: list[Tool]) -> list[Tool]:
        names = [tool.name for tool in tools]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two tools are called '{twice}'")
        return tools

    def ready(self, tasks: Sequence[Task] = ()) -> None:
        """Refuse a key that is not set and a command that is not there."""
        problems = []
        named = self.api_key_env or ("" if self.base_url else "OPENAI_API_KEY")
        if named and not os.environ.get(named):
            problems.append(Problem(f"'{named}' is not set in the environment", path="config.api_key_env"))
        for tool in self.tools:
            try:
                if tool.command and "/" in tool.command[0]:
                    self.folder.find(tool.command[0])
            except ValueError as error:
                problems.append(Problem(f"tool '{tool.name}': {error}", path="config.tools"))
        if problems:
            raise SpecError(problems)

    async def run(self, trial: Trial, room: Room) -> Trace:
        """Ask the model, call its tools, and so on, for each prompt in one conversation."""
        if not trial.model:
            raise EngineError("no model is named; set config.model or --model")
        messages: list[dict[str, Any]] = [{"role": "system", "content": self.system}] if self.system else []
        session = str(uuid.uuid4())

        async def play(prompt: str, before: Sequence[Trace], left_s: float) -> Trace:
            return replace(await self._turn(prompt, messages, trial, room, left_s), input=prompt, session_id=session)

        trace = await converse(trial, room, play)
        return replace(trace, engine="openai", model=trace.model or trial.model)

    async def _turn(
        self, prompt: str, messages: list[dict[str, Any]], trial: Trial, room: Room, left_s: float
    ) -> Trace:
        live = Live(OpenaiMessagesReader(), 0, left_s)
        started = time.monotonic()
        status, error = "success", None
        _say(messages, live, {"role": "user", "content": prompt})
        try:
            async with asyncio.timeout(max(left_s, 0.001)):
                if not await self._loop(messages, live, trial, room):
                    status, error = "timeout", f"the model was asked {self.max_turns} times without an end (max_turns)"
        except TimeoutError:
            status, error = "timeout", "it was ended at its time limit"
        except EngineError as fault:
            status, error = "error", str(fault)
        trace = live.trace()
        took = (time.monotonic() - started) * 1000
        return replace(trace, status=status, error=error, usage=self._priced(trace), duration_ms=took)

    async def _loop(self, messages: list[dict[str, Any]], live: Live, trial: Trial, room: Room) -> bool:
        """Ask until the model calls no tool; say whether it came to that."""
        async with self._client() as client:
            for _ in range(self.max_turns):
                reply = await self._ask(client, messages, trial.model)
                live.feed({"usage": reply.get("usage"), "model": reply.get("model")})
                message = _message(reply)
                _say(messages, live, message)
                calls = message.get("tool_calls") or []
                if not calls:
                    return True
                for call in calls:
                    answer = await self._call(call["function"], room, trial)
                    told = {"role": "tool", "tool_call_id": call["id"], "content": answer.text}
                    _say(messages, live, told, is_error=answer.is_error)
        return False

    async def _ask(self, client: Any, messages: list[dict[str, Any]], model: str) -> dict[str, Any]:
        import openai  # half a second: only a run with this engine pays for it

        extra: dict[str, Any] = {"tools": [tool.declared() for tool in self.tools]} if self.tools else {}
        extra |= {} if self.temperature is None else {"temperature": self.temperature}
        try:
            reply = await client.chat.completions.create(model=model, messages=messages, **extra)
            told: dict[str, Any] = reply.model_dump()
        except openai.APIStatusError as error:
            fact = f"the model's server answered {error.status_code}: {str(error)[:_SHOWN_CHARS]}"
            raise EngineError(fact) from None
        except Exception as error:  # noqa: BLE001  whatever the SDK or a hostile server does, the agent could not run
            raise EngineError(f"the model could not be asked: {type(error).__name__}: {error}"[:_SHOWN_CHARS]) from None
        return told

    async def _call(self, function: dict[str, Any], room: Room, trial: Trial) -> Answer:
        tool = next((tool for tool in self.tools if tool.name == function["name"]), None)
        if tool is None:
            return Answer(f"there is no tool '{function['name']}'", is_error=True)
        own = {"WAZA_WORKSPACE_DIR": str(room.workspace)}
        return await tool.call(
            function["arguments"], room, self.folder, self.environment | trial.task.environment | own
        )

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
