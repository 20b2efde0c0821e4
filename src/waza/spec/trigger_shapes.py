"""The shape of `trigger_tests.yaml`: keys and types; no files are read."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from waza.graders._fields import SkillName
from waza.options import Options, ZeroMeans
from waza.sandbox.patterns import name_glob


def _said(text: str) -> str:
    if not text.strip():
        raise ValueError("the prompt is empty")
    return text


_Seconds = Annotated[float, Field(gt=0, le=1e7, allow_inf_nan=False)]
Asked = Annotated[str, AfterValidator(_said)]


def _one_skill(name: str) -> str:
    if name_glob(name) is not None:
        raise ValueError(f"'{name}' is a glob; trigger tests are about one skill, by its exact name")
    return name


def _confidence(value: Any) -> Any:
    return value or "high" if isinstance(value, str) else value


class TriggerPromptShape(Options):
    """A prompt, and how sure its author is."""

    prompt: Asked
    """What the agent is asked."""
    reason: str = ""
    """Why, for readers."""
    confidence: Annotated[Literal["high", "medium"], BeforeValidator(_confidence)] = "high"
    """`high` counts 1; `medium`, for borderline prompts, counts 0.5."""
    phrasing: Literal["explicit", "keyword", "generic", "indirect"] | None = None
    """The rung of the wording ladder: names the skill, has its keywords, is general, or only hints at the need."""


class ControlsShape(Options):
    """The two prompts that show whether use of the skill can be seen at all; they count in no number."""

    explicit: Asked | None = None
    """Names the skill outright; a sentence of waza's own if left out. Unless it registers, the run is INVALID."""
    unrelated: Asked | None = None
    """Has nothing to do with the skill; a sum to work out if left out."""


class TriggerShape(Options):
    """The keys of `trigger_tests.yaml`."""

    skill: Annotated[SkillName, AfterValidator(_one_skill)]
    """The skill whose use is looked for, by its exact name."""
    should_trigger_prompts: list[TriggerPromptShape] = []
    """Prompts for which the agent should use the skill."""
    should_not_trigger_prompts: list[TriggerPromptShape] = []
    """Prompts for which it should not."""
    controls: ControlsShape = ControlsShape()
    """Other controls than waza's own."""
    stop_at: Literal["any_skill", "this_skill"] = "any_skill"
    """When a trial ends: at the first use of any skill, or only of this one (for agents that load others first)."""
    timeout_seconds: Annotated[_Seconds | None, ZeroMeans(None)] = None
    """How long the agent may work on one prompt; the suite's `timeout_seconds` if left out."""

    @model_validator(mode="after")
    def _has_prompts(self) -> Self:
        if not self.should_trigger_prompts and not self.should_not_trigger_prompts:
            raise ValueError("no prompt: give should_trigger_prompts or should_not_trigger_prompts")
        return self

    @model_validator(mode="after")
    def _does_not_contradict_itself(self) -> Self:
        wanted = {item.prompt.strip() for item in self.should_trigger_prompts}
        if both := next(
            (item.prompt for item in self.should_not_trigger_prompts if item.prompt.strip() in wanted), None
        ):
            raise ValueError(f"{both!r} stands in both lists: the skill cannot be right to be used and not to be")
        return self
