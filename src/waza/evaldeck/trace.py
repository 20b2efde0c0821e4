"""evaldeck's trace: a mutable record of steps that is built while an agent runs."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Self
from uuid import uuid4

from pydantic import ConfigDict, Field, model_validator

from waza.model import ToolEvent, Usage, output_tokens
from waza.model import Trace as WazaTrace
from waza.spending import is_amount, sum_amounts
from waza.suites.positions import Checked


class StepType(StrEnum):
    """What a step is."""

    LLM_CALL = "llm_call"
    TOOL_CALL = "tool_call"
    REASONING = "reasoning"
    HUMAN_INPUT = "human_input"


class StepStatus(StrEnum):
    """The status of a step; `error`, which the documentation uses, is `failure`."""

    SUCCESS = "success"
    FAILURE = "failure"
    PENDING = "pending"

    @classmethod
    def _missing_(cls, value: object) -> StepStatus | None:
        return cls.FAILURE if value == "error" else None


class TraceStatus(StrEnum):
    """How the agent ended."""

    SUCCESS = "success"
    FAILURE = "failure"
    TIMEOUT = "timeout"
    ERROR = "error"


class Message(Checked):
    """One message of a conversation."""

    role: str
    content: str


class TokenUsage(Checked):
    """Tokens of one call of a model."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0

    @property
    def besides_prompt(self) -> Any:
        """The tokens that are not the prompt's."""
        return output_tokens(self.prompt_tokens, self.completion_tokens, self.total_tokens)

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if "total_tokens" not in self.model_fields_set:
            self.total_tokens = self.prompt_tokens + self.completion_tokens
        return self


class Step(Checked):
    """One thing the agent did. Unknown fields are preserved."""

    model_config = ConfigDict(extra="allow")

    id: str = Field(default_factory=lambda: uuid4().hex[:8])
    type: StepType
    timestamp: datetime = Field(default_factory=datetime.now)
    status: StepStatus = StepStatus.SUCCESS
    model: str | None = None
    input: str | None = None
    output: str | None = None
    tokens: TokenUsage | None = None
    tool_name: str | None = None
    tool_args: dict[str, Any] | None = None
    tool_result: Any = None
    reasoning_text: str | None = None
    parent_id: str | None = None
    error: str | None = None
    duration_ms: float | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)

    @property
    def token_usage(self) -> TokenUsage | None:
        """The documentation's name for `tokens`."""
        return self.tokens

    @classmethod
    def llm_call(
        cls,
        model: str,
        input: str,
        output: str,
        tokens: TokenUsage | None = None,
        *,
        token_usage: TokenUsage | None = None,
        **more: Any,
    ) -> Self:
        """Return a call of a model."""
        used = token_usage if tokens is None else tokens
        return cls(type=StepType.LLM_CALL, model=model, input=input, output=output, tokens=used, **more)

    @classmethod
    def tool_call(
        cls, tool_name: str, tool_args: dict[str, Any] | None = None, tool_result: Any = None, **more: Any
    ) -> Self:
        """Return a tool call."""
        args = {} if tool_args is None else tool_args
        return cls(type=StepType.TOOL_CALL, tool_name=tool_name, tool_args=args, tool_result=tool_result, **more)

    @classmethod
    def reasoning(cls, text: str, **more: Any) -> Self:
        """Return a reasoning step."""
        return cls(type=StepType.REASONING, reasoning_text=text, **more)


class Trace(Checked):
    """What an agent did: steps are added as they happen, `complete` closes it. Unknown fields are preserved."""

    model_config = ConfigDict(extra="allow")

    id: str = Field(default_factory=lambda: uuid4().hex[:8])
    input: str
    output: str | None = None
    status: TraceStatus = TraceStatus.SUCCESS
    steps: list[Step] = Field(default_factory=list)
    started_at: datetime = Field(default_factory=datetime.now)
    completed_at: datetime | None = None
    duration_ms: float | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    framework: str | None = None
    agent_name: str | None = None

    @property
    def tool_calls(self) -> list[Step]:
        """The steps that are tool calls."""
        return [step for step in self.steps if step.type == StepType.TOOL_CALL]

    @property
    def llm_calls(self) -> list[Step]:
        """The steps that are calls of a model."""
        return [step for step in self.steps if step.type == StepType.LLM_CALL]

    @property
    def tools_called(self) -> list[str]:
        """The names of the tools in the order of their calls, each as often as it was called."""
        return [step.tool_name for step in self.tool_calls if step.tool_name]

    @property
    def total_tokens(self) -> int:
        """The tokens of all calls of a model; 0 where they were not recorded, or one number cannot be true."""
        total = sum_amounts(step.tokens.total_tokens for step in self.llm_calls if step.tokens)
        return total if is_amount(total) else 0

    @property
    def step_count(self) -> int:
        """How many steps there are."""
        return len(self.steps)

    def add_step(self, step: Step) -> None:
        """Add a step at the end."""
        self.steps.append(step)

    def complete(self, output: str, status: TraceStatus | str = TraceStatus.SUCCESS) -> None:
        """Close the trace with its answer."""
        self.output = output
        self.status = TraceStatus(status)
        self.completed_at = datetime.now(self.started_at.tzinfo)
        self.duration_ms = (self.completed_at - self.started_at).total_seconds() * 1000

    def to_dict(self) -> dict[str, Any]:
        """Return the trace as JSON-ready data; `waza.Trace.from_json` reads it too."""
        return self.model_dump(mode="json", fallback=str)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return the trace that `to_dict` wrote."""
        return cls(**data)


def as_waza(trace: Trace | WazaTrace) -> WazaTrace:
    """Return the same trace in waza's form, which graders take, without a transcript."""
    if isinstance(trace, WazaTrace):
        return trace
    models = trace.llm_calls
    tokens = [step.tokens for step in models if step.tokens]
    is_whole = bool(tokens) and len(tokens) == len(models)
    return WazaTrace(
        input=trace.input,
        output=_text(trace.output),
        status=TraceStatus(trace.status).value,
        duration_ms=trace.duration_ms,
        steps=len(trace.steps),
        usage=Usage(
            llm_calls=len(models),
            input_tokens=sum_amounts(used.prompt_tokens for used in tokens) if is_whole else None,
            output_tokens=sum_amounts(used.besides_prompt for used in tokens) if is_whole else None,
        ),
        tool_events=[
            ToolEvent(
                tool_name=step.tool_name or "",
                args=step.tool_args or {},
                result=step.tool_result,
                success=step.status == StepStatus.SUCCESS,
                sequence=number,
            )
            for number, step in enumerate(trace.tool_calls, 1)
        ],
    )


def _text(output: Any) -> str:
    if output is None or isinstance(output, str):
        return output or ""
    raise TypeError(f"the trace's output is {type(output).__name__}; a text is needed")
