"""evaldeck's judged graders by name: its arguments over waza's judges. The verdict is a tool call, never text."""

from __future__ import annotations

import os
from typing import Any

from pydantic import ValidationError

from waza.errors import ArgumentError
from waza.evaldeck.graders.base import BaseGrader, as_result
from waza.evaldeck.results import GradeResult
from waza.evaldeck.trace import as_waza
from waza.files.paths import SpecFolder
from waza.graders.base import GRADERS, Grader
from waza.suites.evaldeck_cases import DEFAULT_MODEL, judged
from waza.suites.judges import chosen_judge
from waza.suites.positions import Position, problems_of

_KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}


class LLMGrader(BaseGrader):
    """A judge decides whether the agent did well; with `threshold`, it gives a score from 1 to 5.

    The judge sees the task and the answer whatever the prompt says, `{trace}` shows it the tool calls. Its key comes
    from the environment alone. `judge` is a judge of waza's to ask instead.
    """

    name = "llm"

    def __init__(
        self,
        prompt: str | None = None,
        model: str = DEFAULT_MODEL,
        provider: str | None = None,
        api_key: str | None = None,
        threshold: float | None = None,
        temperature: float = 0.0,
        task: str | None = None,
        *,
        judge: Any = None,
    ) -> None:
        self.prompt = prompt
        self.model = model
        self.provider = provider or ("anthropic" if model.startswith("claude") else "openai")
        self.threshold = threshold
        self.temperature = temperature
        self.task = task
        self.judge = judge
        if self.provider not in _KEYS:
            raise ValueError(f"provider is {self.provider!r}; openai and anthropic are known, or hand over judge=")
        if api_key is not None and os.environ.get(_KEYS[self.provider]) != api_key:
            raise ValueError(f"a key is never an argument; set {_KEYS[self.provider]} in the environment")
        self._made(None)

    def criteria(self) -> dict[str, Any]:
        """Return the criteria for the judge."""
        return {"prompt": self.prompt} if self.prompt is not None else {}

    def grade(self, trace: Any, test_case: Any = None) -> GradeResult:
        """Return the judge's verdict; no verdict is an ERROR."""
        return as_result(self.name, self._made(test_case).grade(as_waza(trace), judge=self._judge()))

    async def grade_async(self, trace: Any, test_case: Any = None) -> GradeResult:
        """Return the judge's verdict without blocking the event loop."""
        return as_result(self.name, await self._made(test_case).agrade(as_waza(trace), judge=self._judge()))

    def _made(self, test_case: Any) -> Grader:
        names = {"task": self.task} if self.task else {}
        if test_case is not None:
            names |= {"test_case_name": test_case.name, "reference": test_case.reference_output or ""}
            names["expected"] = test_case.expected.model_dump_json(exclude_none=True, exclude={"graders"})
        options = judged(self.criteria() | {"threshold": self.threshold}, names)
        cls = GRADERS.load(options.pop("type"))
        try:
            return cls(**options)  # type: ignore[no-any-return]
        except ValidationError as error:
            place = Position(path=(type(self).__name__,))
            raise ArgumentError(problems_of(error, cls, options, lambda path: place.at(*path))) from None

    def _judge(self) -> Any:
        if self.judge is None:
            settings: dict[str, Any] = {"type": self.provider, "model": self.model}
            if self.provider == "openai" and self.temperature:
                settings["temperature"] = self.temperature
            self.judge = chosen_judge(settings, Position(), SpecFolder())
        return self.judge


class LLMRubricGrader(LLMGrader):
    """A judge gives one score from 1 to 5 for several criteria together, which passes from `pass_threshold` on."""

    name = "llm_rubric"

    def __init__(self, rubric: dict[str, str], pass_threshold: float = 0.7, **more: Any) -> None:
        if unknown := {"prompt", "threshold"} & set(more):
            raise TypeError(f"LLMRubricGrader takes no {' or '.join(sorted(unknown))}: the rubric has the criteria")
        self.rubric = rubric
        self.pass_threshold = pass_threshold
        super().__init__(**more)

    def criteria(self) -> dict[str, Any]:
        """Return the criteria with their threshold."""
        return {"rubric": self.rubric, "pass_threshold": self.pass_threshold}
