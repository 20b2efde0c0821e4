"""The base class of judges: typed settings, a request in, a reply out. `verdict_tools.py` reads verdicts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from msgspec import Struct
from msgspec.structs import force_setattr, replace
from pydantic import ConfigDict, Field, PrivateAttr, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from waza.errors import JudgeError
from waza.files.paths import SpecFolder
from waza.judges.rate_limits import Breaker, pace_for, retry
from waza.model import JSON
from waza.options import Options
from waza.plugins import Folder
from waza.spending import NOTHING, Spending, bill, is_amount, spent

JUDGES = Folder("judges", "Judge")
WRAPPER = ("folder", "cache")
"""Fields of every judge that are not keys of `judge:`."""

Effort = Literal["low", "medium", "high", "xhigh", "max"]
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


def judge_type_of(settings: Mapping[str, Any]) -> Any:
    """Return the `type` in a judge's settings, or the one that its model suggests."""
    return settings.get("type") or ("anthropic" if str(settings.get("model", "")).startswith("claude") else "openai")


class Tool(Struct, frozen=True):
    """A tool the judge may call: its verdict is such a call."""

    name: str
    description: str
    parameters: dict[str, JSON]
    """The JSON Schema of its arguments."""


class Call(Struct, frozen=True):
    """A tool call of a judge, not validated yet."""

    name: str
    arguments: JSON
    """An object; the raw text where it was not JSON."""


class Message(Struct, frozen=True):
    """One message to a judge."""

    role: Literal["system", "user"]
    content: str


class Request(Struct, frozen=True):
    """A request to a judge."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    model: str = ""
    """The model to ask; the judge's own if empty."""
    reasoning_effort: Effort | None = None
    criteria: int = 0
    """How many criteria need a verdict each; 0 where none are declared."""


class Reply(Struct, frozen=True):
    """A judge's reply."""

    tool_calls: tuple[Call, ...] = ()
    text: str = ""
    model: str | None = None
    """The model that answered, by its own account."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    earlier: Spending = NOTHING
    """Cost of earlier requests for the same reply, which failed and were retried."""
    unsupported: tuple[str, ...] = ()
    """Default parameters that were left out, because the model refuses them."""

    @property
    def spending(self) -> Spending:
        """Cost of this reply and of the requests before it."""
        return self.earlier + spent(self.cost_usd, self.input_tokens, self.output_tokens)

    def __post_init__(self) -> None:
        for name in ("input_tokens", "output_tokens", "cost_usd"):
            value = getattr(self, name)
            if value is not None and not is_amount(value):
                force_setattr(self, name, None)


class Timeouts(Options):
    """How long a judge may take for one request."""

    connect_seconds: Seconds = 10
    """Until the connection is established."""
    first_byte_seconds: Seconds = 120
    """Until the first chunk of the answer."""
    idle_seconds: Seconds = 60
    """Between two chunks of the answer."""
    total_seconds: Seconds = 300
    """For the whole answer."""


class JudgePrices(Options):
    """Dollars per million tokens."""

    input: Price
    """For input tokens."""
    output: Price
    """For output tokens."""


class Judge(Options):
    """A model that gives verdicts."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    is_cacheable: ClassVar[bool] = True
    """Whether its verdicts may be taken from the cache."""
    needs_model: ClassVar[bool] = True
    """Whether it cannot be asked without a model's name."""
    pacing: ClassVar[frozenset[str]] = frozenset(
        ("api_key_env", "timeouts", "retries", "max_wait_seconds", "requests_per_minute", "concurrent", "prices")
    )
    """Settings that change when it answers and at what price, but not the answer."""

    model: str = ""
    """The model that judges, where a grader names none."""
    base_url: str = ""
    """Where the model is served; the vendor's own address if left out."""
    api_key_env: str = ""
    """The environment variable that holds the key; the key itself is never in a file."""
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = 0.0
    """Sampling temperature. The default is not sent to models that refuse it; `null` never sends one."""
    max_tokens: Annotated[int, Field(ge=16)] | None = None
    """The longest answer, in tokens."""
    reasoning_effort: Effort | None = None
    """How hard the judge's model thinks, where a grader sets none."""
    accept_models: list[Annotated[str, Field(min_length=1)]] = []
    """Globs of model names that count as the requested one, such as the model behind a deployment's name."""
    timeouts: Timeouts = Timeouts.model_construct()
    """How long one request may take."""
    retries: Annotated[int, Field(ge=0, le=20)] = 4
    """How often a request is retried after 408, 409, 429, 5xx, a lost connection or a time limit."""
    max_wait_seconds: Seconds = 60
    """The longest wait before a retry, whatever `Retry-After` says."""
    requests_per_minute: Annotated[int, Field(ge=0)] = 0
    """How many requests are started in a minute; 0 means no limit."""
    concurrent: Annotated[int, Field(ge=1, le=1000)] = 8
    """How many requests run at once."""
    prices: JudgePrices | None = None
    """What tokens cost; without it the cost of a verdict is not recorded."""
    folder: SkipJsonSchema[SpecFolder] = Field(default_factory=SpecFolder, exclude=True)
    """Where relative paths of these settings start."""
    cache: SkipJsonSchema[Path | None] = Field(default=None, exclude=True)
    """The folder of cached verdicts; None means no cache."""

    _breakers: dict[tuple[str, ...], Breaker] = PrivateAttr(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _no_key_in_a_file(cls, data: Any) -> Any:
        if isinstance(data, dict) and (key := next((k for k in data if k in ("api_key", "key", "token")), None)):
            raise ValueError(
                f"'{key}': a key is never in a file; put it into an environment variable and name that in api_key_env"
            )
        return data

    @field_validator("api_key_env")
    @classmethod
    def _names_a_variable(cls, name: str) -> str:
        if name and not _ENVIRONMENT_NAME.fullmatch(name):
            raise ValueError("this is not the name of an environment variable; the key itself is never in a file")
        return name

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        if url and not re.match(r"https?://[^/\s@]+(/|$)", url):
            raise ValueError("an address such as https://host/v1 is needed, without a user or password in it")
        return url

    @classmethod
    def type_name(cls) -> str:
        """Return the `type:`, which is the class's name in snake case without `Judge`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__.removesuffix("Judge")).lower()

    @property
    def endpoint(self) -> str:
        """The server, as a key for rate limits and the cache."""
        return f"{self.type_name()} {self.base_url}"

    @property
    def address(self) -> str:
        """The server's address, for messages; empty where there is none."""
        return self.endpoint.partition(" ")[2]

    @property
    def key_variable(self) -> str:
        """The environment variable that holds its key; empty where no key is sent."""
        return self.api_key_env

    def for_run(self, cache: Path | None, of: Judge | None = None) -> Self:
        """Return the judge with another cache and without what failed before; `of` is the judge of the same run."""
        judge = self.model_copy(update={"cache": cache})
        judge._breakers = {} if of is None else of._breakers
        return judge

    def identity(self) -> dict[str, JSON]:
        """Return everything in the settings that may change an answer."""
        own = self.model_dump(mode="json", exclude={*self.pacing, *WRAPPER, "base_url"})
        return own | {"endpoint": self.endpoint}

    def ready(self) -> None:
        """Raise SpecError for problems that show before the first request."""

    async def ask(self, request: Request) -> Reply:
        """Return the model's reply; raise JudgeError when there is none, after all retries."""
        try:
            reply = await self._ask(request)
        except JudgeError as error:
            bill(error.spending)
            raise
        bill(reply.spending)
        return reply

    async def _ask(self, request: Request) -> Reply:
        requested = request.model or self.model
        reply, earlier = await retry(
            lambda: self.attempt(request),
            pace_for(self.endpoint, self.requests_per_minute, self.concurrent),
            retries=self.retries,
            max_wait_s=self.max_wait_seconds,
            breaker=self._breakers.setdefault((self.endpoint, self.api_key_env, requested), Breaker()),
        )
        if not is_same_model(requested, reply.model, self.accept_models):
            raise JudgeError(
                f"asked {self.address} for model '{requested}' but '{(reply.model or '')[:80]}' answered; "
                "if that is the same one, name it in accept_models",
                spending=earlier + reply.spending,
            )
        return replace(reply, earlier=earlier + reply.earlier)

    def advice(self) -> str:
        """Return the setting that may help where the model answers without a verdict; empty if there is none."""
        return ""

    async def attempt(self, request: Request) -> Reply:
        """Ask once. Raises JudgeError, `is_transient` where a retry may help."""
        raise NotImplementedError(f"{type(self).__name__} cannot be asked")

    def cost(self, input_tokens: int | None, output_tokens: int | None) -> float | None:
        """Return the price of these tokens; None where it is not known."""
        if self.prices is None or input_tokens is None or output_tokens is None:
            return None
        if not is_amount(input_tokens) or not is_amount(output_tokens):
            return None
        return (input_tokens * self.prices.input + output_tokens * self.prices.output) / 1e6


_RELEASE = re.compile(
    r"(?:[-@:_](?:\d{4}-\d{2}-\d{2}|\d{2}-\d{2}|\d{3,8}|v\d+(?::\d+)?|latest|preview|exp|default))*", re.ASCII
)
"""Suffixes that vendors add to a model's name for a release of it; `-mini` is another model."""


def is_same_model(requested: str, answered: str | None, accepted: Sequence[str] = ()) -> bool:
    """Return whether `answered` is `requested` or a release of it; True where the server names no model."""
    if not answered or not requested:
        return True
    if any(fnmatchcase(answered, glob) for glob in accepted):
        return True
    want, got = _base_name(requested), _base_name(answered)
    return got.startswith(want) and _RELEASE.fullmatch(got[len(want) :]) is not None


def _base_name(name: str) -> str:
    """Return a model's name without its vendor and without `latest`."""
    return name.strip().lower().rsplit("/", 1)[-1].removesuffix("-latest").removesuffix(":latest")
