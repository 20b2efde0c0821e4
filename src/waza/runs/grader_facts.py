"""Facts about the grader types of a run, stored with it so that it can be read without the plug-ins that made it.

A fact is a class attribute of a grader (`waza.graders.base.Grader`); `spec["grader_facts"]` lists those that are true,
by grader type. Runs of older versions have no such entry: for them alone the types of that time are listed here, and
nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, get_args

from waza.model import StoredSuite

GRADER_FACTS = "grader_facts"
"""Where a stored spec has them."""
GraderFact = Literal["checks_behavior", "checks_skill_use", "asks_judge", "asks_people"]

_BEHAVIOR = (
    *("behavior", "tool_constraint", "tool_calls", "tool_called", "tool_not_called", "tool_order", "action_sequence"),
    *("max_duration_ms", "max_llm_calls", "max_steps", "max_tokens", "max_tool_calls", "max_turns"),
)
_OLDER_RUNS: dict[str, Sequence[str]] = {
    **dict.fromkeys(_BEHAVIOR, ("checks_behavior",)),
    **dict.fromkeys(("skill_invocation", "skill_triggered"), ("checks_behavior", "checks_skill_use")),
    **dict.fromkeys(("prompt", "llm", "llm_comparison"), ("asks_judge",)),
    "human": ("asks_people",),
}
FREE_JUDGES_OF_OLDER_RUNS = ("scripted",)
"""Judges that cost nothing, though older versions recorded no cost for them; today they report 0."""

FactsByType = Mapping[str, Sequence[str]]


def grader_facts(graders: Iterable[tuple[str, object]]) -> dict[str, list[str]]:
    """Return the facts of graders by their type, as a run stores them; `graders` are pairs of type and grader."""
    found: dict[str, dict[str, None]] = {}
    for kind, grader in graders:  # graders of one type may differ: a combination has the facts of its parts
        found.setdefault(kind, {}).update(dict.fromkeys(fact for fact in get_args(GraderFact) if getattr(grader, fact)))
    known = get_args(GraderFact)
    return {kind: sorted(facts, key=known.index) for kind, facts in sorted(found.items()) if facts}


def stored_grader_facts(suite: StoredSuite) -> FactsByType:
    """Return the facts that a run has stored, by grader type."""
    return suite.grader_facts if suite.grader_facts is not None else _OLDER_RUNS


def has_fact(facts: FactsByType, kind: str, fact: GraderFact) -> bool:
    """Return whether a fact is true of a grader type."""
    return fact in facts.get(kind, ())
