"""The `scripted` judge: prepared replies, for tests and examples without a network."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import Field, PrivateAttr, model_validator

from waza.errors import JudgeError, SpecError
from waza.judges.base import Call, Judge, Reply, Request
from waza.model import JSON
from waza.options import Options
from waza.spending import NOTHING, spent
from waza.untrusted.yaml import read_yaml


class ScriptedCall(Options):
    """A tool call of a scripted reply."""

    name: str
    """The tool."""
    arguments: Any = {}
    """Its arguments."""


class ScriptedReply(Options):
    """One reply."""

    when: str = ""
    """Answer every request that contains this text; without it, a reply answers one request, in order."""
    tool_calls: list[ScriptedCall] = []
    """The tools the judge calls."""
    text: str = ""
    """The text of the reply."""
    error: str | None = None
    """Why the judge cannot answer."""
    model: str | None = None
    """The model that claims to have answered."""
    input_tokens: int | None = None
    """Input tokens."""
    output_tokens: int | None = None
    """Output tokens."""


class ScriptedJudge(Judge):
    """Give prepared replies.

    ```yaml
    judge:
      type: scripted
      replies:
        - when: refund
          tool_calls: [{name: set_waza_grade_pass, arguments: {reason: It says when the money comes.}}]
        - tool_calls: [{name: set_waza_grade_fail, arguments: {reason: It is rude.}}]
    ```
    """

    is_cacheable: ClassVar[bool] = False
    needs_model: ClassVar[bool] = False

    replies: list[ScriptedReply] = Field(default=[])
    """The replies."""
    replies_file: str = ""
    """A YAML file with a list of replies, from the eval file's folder."""

    _remaining: list[ScriptedReply] = PrivateAttr(default_factory=list)

    def __init__(self, replies: list[Any] | None = None, /, **settings: Any) -> None:
        super().__init__(**settings | ({} if replies is None else {"replies": replies}))

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # validation of data does not call it

    @model_validator(mode="after")
    def _reads_its_file(self) -> Self:
        self._remaining.extend(self._all())
        return self

    def _all(self) -> list[ScriptedReply]:
        return [*self.replies, *(_in_file(self) if self.replies_file else [])]

    def identity(self) -> dict[str, JSON]:
        """Return the settings with every reply, those in the file too."""
        return super().identity() | {"replies": [reply.model_dump(exclude_defaults=True) for reply in self._all()]}

    async def ask(self, request: Request) -> Reply:
        """Return the next reply: the first whose `when` is in the request, else the next in order."""
        text = request.messages[-1].content
        reply = next((one for one in self._remaining if one.when and one.when in text), None)
        if reply is None:
            reply = next((one for one in self._remaining if not one.when), None)
            if reply is None:
                raise JudgeError("the script has no reply left for this request")
            self._remaining.remove(reply)
        tokens = (reply.input_tokens, reply.output_tokens)
        if reply.error is not None:
            billed = tokens != (None, None)
            raise JudgeError(reply.error, spending=spent(self.cost(*tokens), *tokens) if billed else NOTHING)
        calls = tuple(Call(call.name, call.arguments) for call in reply.tool_calls)
        return Reply(calls, reply.text, reply.model, *tokens, self.cost(*tokens))

    def cost(self, input_tokens: int | None, output_tokens: int | None) -> float | None:
        """Return the price of the tokens; 0 without `prices`."""
        return 0.0 if self.prices is None else super().cost(input_tokens, output_tokens)


def _in_file(judge: ScriptedJudge) -> list[ScriptedReply]:
    """Return the replies in the judge's file; raise ValueError where it cannot be read."""
    path = judge.folder.find(judge.replies_file)
    try:
        data = read_yaml(path.read_bytes(), judge.replies_file)
    except SpecError as error:
        raise ValueError(str(error)) from None
    if not isinstance(data, list):
        raise ValueError(f"{judge.replies_file}: a list of replies is needed")
    return [ScriptedReply.model_validate(item) for item in data]
