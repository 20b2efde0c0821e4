"""Trigger tests against a baseline: whether the agent's answers to the same prompts became worse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from waza.model import Run
from waza.results.stats.needs import Gate
from waza.results.stats.paired import sign_flip
from waza.results.stats.power import ALPHA
from waza.results.stats.resampling import bootstrap_mean
from waza.results.tasks import TOLERANCE
from waza.results.trigger_answers import WEIGHTS, Answer, answers_of, unanswered
from waza.results.triggers import summarize_triggers

NAME = "trigger accuracy against the baseline"
Asked = tuple[str, str, bool]
"""By what a prompt is known in both runs: its skill, its words, and what should come of it; its number may change."""


class Shares(NamedTuple):
    """The answers to one prompt."""

    id: str
    weight: float
    right: float | None
    """The share of right ones among those that are decided; None where none is."""
    low: float
    """Their share if all others were wrong."""
    high: float
    """Their share if all others were right."""


def trigger_gate(before: Run, after: Run, drop: float) -> Gate | None:
    """Return whether the accuracy over the prompts of both runs fell by more than `drop`; None without trigger tests.

    Missed only where the exact test over prompts shows it, and never by what nobody can tell.
    """
    now, then = summarize_triggers(after), summarize_triggers(before)
    if now is None:
        return None
    if then is None:
        return Gate(name=NAME, status="passed", reason="not compared: the baseline has no trigger tests")
    undecided = Gate(name=NAME, status="error", needed=0.0 - drop)
    if invalid := [*then.reasons, *now.reasons]:
        return replace(undecided, reason=f"INVALID: {invalid[0]}")
    old, new = _shares(before), _shares(after)
    both = [(old[asked], new[asked]) for asked in new if asked in old]
    told = [
        (new.id, new.weight, new.right - old.right)
        for old, new in both
        if old.right is not None and new.right is not None
    ]
    if not told:
        return replace(undecided, reason="no prompt was decided in both runs")
    worst = _mean((new.weight, new.low - old.high) for old, new in both)
    is_open = any(part.low < part.high for pair in both for part in pair)
    return _compared(told, worst if is_open else 0.0, undecided, drop)


def _compared(told: Sequence[tuple[str, float, float]], worst: float, gate: Gate, drop: float) -> Gate:
    """Return the gate by how much each prompt changed; `worst` is the change if all undecided were against the run."""
    value, scale = (
        _mean((weight, change) for _, weight, change in told),
        len(told) / sum(weight for _, weight, _ in told),
    )
    changes = [weight * scale * change for _, weight, change in told]
    interval = bootstrap_mean(changes)
    gate = replace(gate, value=value, low=interval.lower, high=interval.upper) if interval else gate
    fell = [identity for identity, _, change in told if change < -TOLERANCE]
    if value < -drop - TOLERANCE:
        if sign_flip([change + drop for change in changes]) < ALPHA:
            return replace(gate, status="failed", reason="it fell, and chance alone would hardly do that", tasks=fell)
        return replace(gate, reason="it fell, but chance alone might do that", tasks=fell)
    if worst < -drop - TOLERANCE:
        return replace(gate, reason="the undecided ones could decide it either way")
    return replace(gate, status="passed")


def _mean(weighted: Iterable[tuple[float, float]]) -> float:
    parts = list(weighted)
    return sum(weight * change for weight, change in parts) / sum(weight for weight, _ in parts)


def _shares(run: Run) -> dict[Asked, Shares]:
    """Return the answers to each prompt, without the controls."""
    found: dict[Asked, list[Answer]] = {}
    for answer in [*answers_of(run), *unanswered(run)]:
        if not answer.prompt.control:
            asked = (answer.prompt.skill, answer.prompt.prompt, answer.prompt.should_trigger)
            found.setdefault(asked, []).append(answer)
    return {asked: _told(answers) for asked, answers in found.items()}


def _told(answers: Sequence[Answer]) -> Shares:
    right, known = sum(a.is_right for a in answers), sum(a.did_trigger is not None for a in answers)
    prompt, total = answers[0].prompt, len(answers)
    share = right / known if known else None
    return Shares(prompt.id, WEIGHTS[prompt.confidence], share, right / total, (right + total - known) / total)
