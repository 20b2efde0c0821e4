"""What readers of a stored run take for granted about its spec; a file that says otherwise is refused when it is read.

`run.spec` stays plain data: keys that no reader looks at may hold anything. What the numbers make of the rest stands at
the head of `summary.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from waza.compact import CompactDict, CompactList, CompactView
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


_SHAPES: dict[str, Any] = {
    "tasks": list[_Task],
    "graders": dict[str, list[_Grader]],
    "fingerprints": dict[str, str],
    "places": dict[str, dict[str, JSON] | None],
}
"""The parts of a spec that have an entry for each task."""
_ENTRIES = {name: msgspec.json.Decoder(shape.__args__[-1]) for name, shape in _SHAPES.items()}
_ANY = msgspec.json.Decoder()
_REMEMBERED = 64
"""So many different entries are remembered: most tasks have the suite's graders and no others."""


def spec_from(parts: dict[str, msgspec.Raw]) -> dict[str, JSON]:
    """Return a stored spec from its parts as they are in the file, those with an entry for each task compact.

    Raises msgspec.ValidationError when a part has another shape than readers expect.
    """
    spec: dict[str, JSON] = {}
    known: CompactDict[JSON] | None = None
    for key, raw in parts.items():
        start = bytes(memoryview(raw)[:1])
        if key == "tasks" and start == b"[":
            entries = _list_decoder.decode(raw)
            spec[key] = CompactList(map(_entry_reader(key), entries))
        elif key in _SHAPES and start == b"{":
            read, by_id = _entry_reader(key), _dict_decoder.decode(raw)
            spec[key] = known = CompactDict(((task_id, read(entry)) for task_id, entry in by_id.items()), known)
        else:
            spec[key] = _ANY.decode(raw)
    small = {key: value for key, value in spec.items() if not isinstance(value, CompactList | CompactDict)}
    msgspec.convert({"spec": small}, _Run)
    return spec


_list_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_dict_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _entry_reader(key: str) -> Callable[[msgspec.Raw], JSON]:
    """Return what makes an entry of a part; equal ones in a row are the same object."""
    check, remembered = _ENTRIES[key].decode, dict[bytes, JSON]()

    def read(raw: msgspec.Raw) -> JSON:
        text = bytes(raw)
        if text not in remembered:
            if len(remembered) == _REMEMBERED:
                remembered.clear()
            check(text)
            remembered[text] = _ANY.decode(text)
        return remembered[text]

    return read


def expanded(spec: dict[str, JSON]) -> dict[str, JSON]:
    """Return a spec made of lists and dicts alone, for callers who may write it as they like."""
    return {key: _expanded(value) for key, value in spec.items()}


def _expanded(value: JSON) -> JSON:
    if isinstance(value, CompactList | CompactView):
        return list(value)
    return dict(value.pairs()) if isinstance(value, CompactDict) else value


def refuse_odd(spec: dict[str, JSON]) -> None:
    """Raise msgspec.ValidationError when a part of a stored spec has another shape than readers expect."""
    msgspec.convert({"spec": spec}, _Run)
