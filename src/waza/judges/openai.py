"""The `openai` judge: a model with OpenAI's chat completions API, at OpenAI or any compatible server.

Servers that do not force tool calls can give the verdict as JSON of a schema (`verdict_by: json_schema`). The schema
has a ticket that occurs nowhere else, so JSON that the judge merely repeats from the text it judges is not a verdict.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import msgspec
from msgspec import Struct
from pydantic import field_validator

from waza.errors import JudgeError, SpecError
from waza.judges._sdk import (
    JudgeServer,
    ParametersRefused,
    ReplyDraft,
    charged,
    chunks,
    complete_answer,
    data_in,
    fault_of,
    finished,
    key_in,
    part_of,
    refused_parameters,
    shaped,
    short,
    take,
    within,
    without_refused,
)
from waza.judges.base import Call, Judge, Reply, Request, Tool
from waza.judges.fencing import keyed_hash
from waza.judges.rate_limits import per_loop
from waza.model import JSON
from waza.untrusted.json import parse_json

HOME = "https://api.openai.com/v1"
_WHAT = "chat completion"
_FENCED = re.compile(r"```(?:json)?\s(.*?)\s*```", re.DOTALL | re.IGNORECASE)
_CRITERION = "criterion"
_EXTRA = 1
"""How many keys next to the expected ones are ignored, as with arguments of tool calls."""


class OpenaiJudge(Judge):
    """Ask a model at OpenAI, or at any server with OpenAI's chat completions API.

    Azure, OpenRouter, Ollama, vLLM and llama.cpp are such servers: name theirs in `base_url`. `OPENAI_API_KEY` is sent
    to OpenAI only; for another server name its variable in `api_key_env`, or leave it out if it needs no key.

    ```yaml
    judge:
      type: openai
      model: gpt-4o-mini
      prices: {input: 0.15, output: 0.60}
    ```
    """

    verdict_by: Literal["tool", "json_schema"] = "tool"
    """How the verdict is forced: as a tool call, or as JSON for servers that ignore `tool_choice`."""
    stream: bool = True
    """Stream the answer; `false` for servers that cannot stream."""
    seed: int | None = 0
    """The seed of sampling. The default is not sent to servers that refuse it; `null` never sends one."""
    query: dict[str, str] = {}
    """Query parameters of every request, such as an `api-version`."""

    @field_validator("query")
    @classmethod
    def _has_no_key(cls, query: dict[str, str]) -> dict[str, str]:
        if secret := next((name for name in query if re.search(r"key|token|secret|password|sig", name, re.I)), None):
            raise ValueError(f"'{secret}': a key is never in a file; name its variable in api_key_env")
        return query

    @property
    def endpoint(self) -> str:
        """The server's address."""
        return f"openai {self.base_url or os.environ.get('OPENAI_BASE_URL') or HOME}"

    @property
    def key_variable(self) -> str:
        """The environment variable that holds its key; the vendor's own is only for the vendor's address."""
        return self.api_key_env or ("" if self.base_url else "OPENAI_API_KEY")

    def ready(self) -> None:
        """Raise SpecError where no model is named or its key is not set."""
        self._key()

    def _key(self) -> str:
        return key_in(self.key_variable)

    def _client(self) -> Any:
        import openai  # takes half a second to load; only a run with this judge needs it

        return openai.AsyncOpenAI(
            api_key=self._key(),
            base_url=self.endpoint.removeprefix("openai "),
            max_retries=0,
            timeout=openai.Timeout(self.timeouts.total_seconds, connect=self.timeouts.connect_seconds),
            default_query=self.query or None,
        )

    def advice(self) -> str:
        """Return the setting for servers that do not force tool calls, where it is not in use."""
        return "if its server ignores tool_choice, set verdict_by: json_schema" if self.verdict_by == "tool" else ""

    async def attempt(self, request: Request) -> Reply:
        """Return the reply to one request; raise JudgeError when there is none."""
        defaults = {name for name in ("temperature", "seed") if name not in self.model_fields_set}
        return await without_refused(
            self.endpoint, request.model or self.model, defaults, partial(self._attempt, request)
        )

    async def _attempt(self, request: Request, defaults: set[str]) -> Reply:
        import openai  # slow to load, as above

        draft = ReplyDraft()
        try:
            client = per_loop(
                ("openai", self.endpoint, self._key(), repr(self.timeouts), repr(self.query)), self._client
            )
            ticket = ticket_of(request) if self.verdict_by == "json_schema" else ""
            arguments = self._arguments(request, ticket, defaults)
            async with within(self.timeouts.total_seconds, "did not finish its answer"):
                await (self._stream if self.stream else self._complete)(client, arguments, draft)
        except SpecError as error:
            raise JudgeError(str(error)) from None
        except Exception as error:  # noqa: BLE001  any error of the SDK or of a hostile server means that there is no verdict
            for reported in data_in(error):
                count_usage(draft, reported)
            if names := refused_parameters(error, defaults):
                raise ParametersRefused(names, draft) from None
            raise charged(fault_of(draft.fault or error, openai, self._server(), draft), draft, self.cost) from None
        calls = read_forced(draft.text, request, ticket) if ticket else draft.calls()
        tokens = (draft.input_tokens, draft.output_tokens)
        return Reply(calls, draft.text, draft.model, *tokens, self.cost(*tokens))

    def _server(self) -> JudgeServer:
        return JudgeServer(self.address, self.key_variable, self.stream, self.verdict_by == "tool")

    def _arguments(self, request: Request, ticket: str, defaults: set[str]) -> dict[str, Any]:
        """Return the arguments of the SDK's call; of the parameters with defaults those that were set or are given."""
        effort = request.reasoning_effort or self.reasoning_effort
        arguments: dict[str, Any] = {
            "model": request.model or self.model,
            "messages": [{"role": message.role, "content": message.content} for message in request.messages],
        }
        if ticket:
            schema = {"name": "verdict", "strict": True, "schema": forced_schema(request, ticket)}
            arguments["response_format"] = {"type": "json_schema", "json_schema": schema}
        else:
            tools = [msgspec.to_builtins(tool) for tool in request.tools]
            arguments |= {
                "tools": [{"type": "function", "function": tool} for tool in tools],
                "tool_choice": "required",
            }
        for name in ("temperature", "seed"):
            if (value := getattr(self, name)) is not None and (name in defaults or name in self.model_fields_set):
                arguments[name] = value
        if self.max_tokens is not None:
            arguments["max_completion_tokens" if not self.base_url else "max_tokens"] = self.max_tokens
        if effort is not None:
            arguments["reasoning_effort"] = effort
        return arguments

    async def _stream(self, client: Any, arguments: dict[str, Any], draft: ReplyDraft) -> None:
        opening = client.chat.completions.create(**arguments, stream=True, stream_options={"include_usage": True})
        async for chunk in chunks(opening, self.timeouts, draft):
            take(draft, chunk, _WHAT, partial(count_usage, draft), partial(_read_chunk, draft))
            if draft.is_endless:
                break
        finished(draft, _ENDED, is_streamed=True)

    async def _complete(self, client: Any, arguments: dict[str, Any], draft: ReplyDraft) -> None:
        opening = client.chat.completions.with_raw_response.create(**arguments)
        answer = await complete_answer(opening, draft)
        take(draft, answer, _WHAT, partial(count_usage, draft), partial(_read_whole, draft))
        finished(draft, _ENDED, is_streamed=False)


class _Function(Struct):
    name: str | None = None
    arguments: str | dict[str, JSON] | None = None


class _ToolCall(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Reply(Struct):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _DeltaChoice(Struct):
    index: int = 0
    delta: _Reply | None = None
    finish_reason: str | None = None


class _Chunk(Struct):
    model: str | None = None
    choices: list[_DeltaChoice] = []


class _MessageChoice(Struct):
    message: _Reply
    index: int = 0
    finish_reason: str | None = None


class _CompleteReply(Struct):
    choices: list[_MessageChoice]
    model: str | None = None


def count_usage(draft: ReplyDraft, tree: Any) -> None:
    """Take the token counts of a chat completion, of a chunk of one, or of an error."""
    usage = part_of(tree, "usage") or part_of(part_of(tree, "error"), "usage")
    choices = tree.get("choices") if isinstance(tree, dict) else None
    is_open = isinstance(choices, list) and any(isinstance(one, dict) and "delta" in one for one in choices)
    is_final = not is_open or any(isinstance(one, dict) and one.get("finish_reason") for one in choices or ())
    draft.count(usage.get("prompt_tokens"), usage.get("completion_tokens"), is_final=is_final)


def _read_chunk(draft: ReplyDraft, tree: Any) -> None:
    answer = shaped(tree, _Chunk, _WHAT)
    draft.model = answer.model or draft.model
    for choice in answer.choices:
        _add(draft, choice.index, choice.delta or _Reply(), choice.finish_reason)


def _read_whole(draft: ReplyDraft, tree: Any) -> None:
    answer = shaped(tree, _CompleteReply, _WHAT)
    draft.model = answer.model or draft.model
    for choice in answer.choices:
        _add(draft, choice.index, choice.message, choice.finish_reason)


def _add(draft: ReplyDraft, index: int, message: _Reply, finish_reason: str | None) -> None:
    if index != 0:
        raise JudgeError("the model gave several answers to one question")
    if message.refusal:
        raise JudgeError(f"the model refused to judge: {short(message.refusal)}")
    draft.write(message.content or "")
    for position, call in enumerate(message.tool_calls or ()):
        function = call.function or _Function()
        arguments = function.arguments
        text = msgspec.json.encode(arguments).decode() if isinstance(arguments, dict) else arguments or ""
        draft.call(draft.call_key(position if call.index is None else call.index, call.id), function.name or "", text)
    draft.ended = finish_reason or draft.ended


_ENDED = {
    "length": "ran out of tokens before its verdict; raise max_tokens",
    "content_filter": "was stopped by a filter",
}


def ticket_of(request: Request) -> str:
    """Return the ticket of a request: the same for equal requests, and in no text that is judged."""
    return keyed_hash("ticket", [message.content for message in request.messages])


def forced_schema(request: Request, ticket: str) -> dict[str, JSON]:
    """Return the schema of a reply with its ticket: one call of one of the tools, or one for each criterion."""
    call = _call_schema(request.tools)
    if request.criteria:
        properties: dict[str, JSON] = {f"{_CRITERION}_{number}": call for number in range(1, request.criteria + 1)}
    else:
        properties = call["properties"]
    return _closed({"type": "object", "properties": {"ticket": {"type": "string", "enum": [ticket]}, **properties}})


def _call_schema(tools: Sequence[Tool]) -> dict[str, JSON]:
    """Return the schema of one call; the criterion is in the reply's own keys."""
    shapes = [_closed(tool.parameters) for tool in tools]
    arguments = shapes[0] if all(shape == shapes[0] for shape in shapes) else {"anyOf": shapes}
    names = {"type": "string", "enum": [tool.name for tool in tools]}
    return _closed({"type": "object", "properties": {"arguments": arguments, "tool": names}})


def _closed(schema: dict[str, Any]) -> dict[str, JSON]:
    """Return an object's schema with every property required, as strict modes need it."""
    properties = {key: value for key, value in schema["properties"].items() if key != _CRITERION}
    return schema | {"properties": properties, "required": [*properties], "additionalProperties": False}


def read_forced(text: str, request: Request, ticket: str) -> tuple[Call, ...]:
    """Return the calls in a text, if all of it is JSON with the ticket; otherwise none."""
    try:
        verdict = parse_json(_inside(text))
    except ValueError:
        return ()
    if not isinstance(verdict, dict) or verdict.pop("ticket", None) != ticket:
        return ()
    if not request.criteria:
        call = _call(verdict)
        return (call,) if call else ()
    numbers = {f"{_CRITERION}_{number}": number for number in range(1, request.criteria + 1)}
    if not set(verdict) <= set(numbers):
        return ()
    calls = [_call(value, numbers[key]) for key, value in verdict.items()]
    return tuple(call for call in calls if call) if all(calls) else ()


def _inside(text: str) -> str:
    """Return a reply without a `<think>` part before the JSON and a code fence around it."""
    text = text.strip()
    if not text.startswith(("{", "```")) and "</think>" in text:
        text = text.split("</think>", 1)[1].strip()
    fenced = _FENCED.fullmatch(text)
    return fenced[1].strip() if fenced else text


def _call(item: Any, criterion: int = 0) -> Call | None:
    if not isinstance(item, dict) or not {"arguments", "tool"} <= set(item) or len(item) > 2 + _EXTRA:
        return None
    if not isinstance(item["tool"], str):
        return None
    arguments = item["arguments"]
    if criterion and isinstance(arguments, dict):
        arguments = arguments | {_CRITERION: criterion}
    return Call(item["tool"], arguments)
