"""What readers of a stored run take for granted about its spec; a file that says otherwise is refused when it is read.

`run.spec` stays plain data: keys that no reader looks at may hold anything. What the numbers make of the rest stands at
the head of `summary.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from waza.model import JSON
from waza.results.trigger_answers import TriggerPrompt

MOST_TRIALS = 1_000_000
"""More trials a task than that nobody runs: a file that says so is damaged, and would be counted forever."""
_Share = Annotated[float, Meta(ge=0, le=1)]


class _Config(Struct, frozen=True):
    trials_per_task: Annotated[int, Meta(ge=0, le=MOST_TRIALS)] | None = None
    timeout_seconds: float | None = None
    pass_rule: Literal["all", "any"] | _Share = "all"
    min_pass_rate: _Share | None = None
    max_failures: Annotated[int, Meta(ge=0)] | None = None
    group_by: str | None = None


class _Task(Struct, frozen=True):
    id: str
    name: str | None = None
    tags: list[str] | None = None


class _Grader(Struct, frozen=True):
    name: str | None = None
    type: str = ""


class _Metric(Struct, frozen=True):
    name: str
    threshold: float | None = None
    weight: Annotated[float, Meta(ge=0, le=1e15)] | None = None
    grader: str | None = None
    tag: str | None = None


class _Prompt(TriggerPrompt, frozen=True):
    confidence: Literal["high", "medium"] = "high"


class _Triggers(Struct, frozen=True):
    prompts: list[_Prompt] | None = None
    tasks: list[_Task] | None = None
    skills: list[str] | None = None
    threshold: float | None = None
    heuristic: dict[str, dict[str, float]] | None = None


class _NotSelected(Struct, frozen=True):
    tasks: list[_Task] | None = None
    trigger_tests: bool = False


class _Spec(Struct, frozen=True):
    file: str = ""
    config: _Config | None = None
    tasks: list[_Task] | None = None
    graders: dict[str, list[_Grader]] | None = None
    metrics: list[_Metric] | None = None
    triggers: _Triggers | None = None
    fingerprints: dict[str, str] | None = None
    places: dict[str, dict[str, JSON] | None] | None = None
    judge: dict[str, JSON] | None = None
    judged: dict[str, list[str]] | None = None
    judge_cards: list[JSON] | None = None
    baseline: dict[str, JSON] | None = None
    given: dict[str, JSON] | None = None
    auto_trials: dict[str, JSON] | None = None
    not_selected: _NotSelected | None = None


class _Run(Struct, frozen=True):
    spec: _Spec


def refuse_odd(spec: dict[str, JSON]) -> None:
    """Raise msgspec.ValidationError when a part of a stored spec has another shape than readers expect."""
    msgspec.convert({"spec": spec}, _Run)
