"""The `litellm` judge: models of vendors with their own APIs, through the litellm package (an extra)."""

from __future__ import annotations

import os
from functools import partial
from importlib.util import find_spec
from typing import Any

import msgspec

from waza.errors import JudgeError, SpecError
from waza.judges._sdk import (
    JudgeServer,
    ParametersRefused,
    ReplyDraft,
    charged,
    data_in,
    fault_of,
    read_arguments,
    refused_parameters,
    short,
    within,
    without_refused,
)
from waza.judges.base import Call, Judge, Reply, Request
from waza.judges.openai import count_usage

_NOT_INSTALLED = "judge: type litellm needs the litellm package; install it with: pip install 'waza[litellm]'"


class LitellmJudge(Judge):
    """Ask a model of any vendor that the litellm package knows; an extra: `pip install 'waza[litellm]'`.

    The model's name begins with its vendor. The key is taken from the variable litellm knows for the vendor, or from
    `api_key_env`.

    ```yaml
    judge:
      type: litellm
      model: gemini/gemini-2.5-flash
    ```
    """

    def ready(self) -> None:
        """Raise SpecError where the package or the key is missing."""
        if find_spec("litellm") is None:
            raise SpecError(_NOT_INSTALLED)
        if self.api_key_env and not os.environ.get(self.api_key_env):
            raise SpecError(f"judge: the environment variable {self.api_key_env} is not set")

    async def attempt(self, request: Request) -> Reply:
        """Return the reply to one request, which litellm does not stream; raise JudgeError when there is none."""
        defaults = set() if "temperature" in self.model_fields_set else {"temperature"}
        return await without_refused(
            self.endpoint, request.model or self.model, defaults, partial(self._attempt, request)
        )

    async def _attempt(self, request: Request, defaults: set[str]) -> Reply:
        if find_spec("litellm") is None:
            raise JudgeError(_NOT_INSTALLED)
        os.environ.setdefault(
            "LITELLM_LOCAL_MODEL_COST_MAP", "True"
        )  # otherwise its import fetches prices from the network
        import litellm  # type: ignore[import-not-found,unused-ignore]  # takes seconds, so only where needed
        import openai  # slow to load; litellm's errors are openai's

        litellm.suppress_debug_info = True  # it prints advice to standard output
        draft = ReplyDraft()
        try:
            async with within(self.timeouts.total_seconds, "did not answer"):
                answer = await litellm.acompletion(**self._arguments(request, defaults))
            received = answer.model_dump()
            count_usage(draft, received)
            return self._reply(received, draft)
        except Exception as error:  # noqa: BLE001  any error of the package or of a hostile server means that there is no verdict
            for reported in data_in(error):
                count_usage(draft, reported)
            if names := refused_parameters(error, defaults):
                raise ParametersRefused(names, draft) from None
            server = JudgeServer(self.base_url or "the vendor's address", self.api_key_env or "its vendor's variable")
            raise charged(fault_of(error, openai, server, draft), draft, self.cost) from None

    def _arguments(self, request: Request, defaults: set[str]) -> dict[str, Any]:
        is_sent = "temperature" in defaults or "temperature" in self.model_fields_set
        tools = [msgspec.to_builtins(tool) for tool in request.tools]
        arguments = {
            "model": request.model or self.model,
            "messages": [{"role": message.role, "content": message.content} for message in request.messages],
            "tools": [{"type": "function", "function": tool} for tool in tools],
            "tool_choice": "required",
            "num_retries": 0,
            "timeout": self.timeouts.total_seconds,
            "base_url": self.base_url or None,
            "api_key": os.environ.get(self.api_key_env) if self.api_key_env else None,
            "temperature": self.temperature if is_sent else None,
            "max_tokens": self.max_tokens,
            "reasoning_effort": request.reasoning_effort or self.reasoning_effort,
        }
        return {key: value for key, value in arguments.items() if value is not None}

    def _reply(self, answer: dict[str, Any], draft: ReplyDraft) -> Reply:
        """Return the reply in litellm's answer, which has the shape of a chat completion."""
        choices = answer.get("choices") or []
        if len(choices) != 1 or choices[0].get("finish_reason") in (None, "length", "content_filter"):
            raise JudgeError(f"the model did not finish one answer: {short(str(choices))}")
        message = choices[0].get("message") or {}
        functions = [call.get("function") or {} for call in message.get("tool_calls") or []]
        calls = tuple(Call(str(one.get("name")), read_arguments(str(one.get("arguments") or ""))) for one in functions)
        tokens = (draft.input_tokens, draft.output_tokens)
        return Reply(calls, str(message.get("content") or ""), answer.get("model"), *tokens, self.cost(*tokens))
