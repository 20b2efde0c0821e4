"""Tests for a skill from its own words: prompts that should trigger it, prompts that should not, and first tasks.

Offline they are the phrases after `USE FOR:` and `DO NOT USE FOR:`; where a model is asked, it sees the SKILL.md as
data and answers by a tool call. Nothing is written here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from msgspec import Struct, field

from waza.errors import decoding_fact
from waza.judges.asking import Question, answer, wait_for_judge
from waza.judges.base import Call, Judge, Tool
from waza.judges.fencing import Data
from waza.judges.verdict_tools import Kind, NoVerdict
from waza.model import JSON
from waza.skills import use_for_phrases
from waza.suites.skills import SkillFile, not_for_phrases
from waza.untrusted.text import fold_case

MOST = 8
"""How many prompts of each kind are suggested, where nothing else is asked for."""
MOST_TASKS = 3
_LONGEST = 500
_SLUG = re.compile(r"[^a-z0-9]+")


class SuggestedPrompt(Struct, frozen=True, kw_only=True):
    """A prompt for `trigger_tests.yaml`."""

    prompt: str
    reason: str = ""
    phrasing: Literal["", "explicit", "keyword", "generic", "indirect"] = ""


class SuggestedTask(Struct, frozen=True, kw_only=True):
    """A first task: what is asked, and what its answer must contain, if anything is known of it."""

    prompt: str
    should_trigger: bool = True
    output_contains: list[str] = field(default_factory=list)


class Suggestions(Struct, frozen=True, kw_only=True):
    """Tests for one skill."""

    should_trigger: list[SuggestedPrompt]
    should_not_trigger: list[SuggestedPrompt]
    tasks: list[SuggestedTask]


def from_phrases(name: str, description: str, count: int = MOST) -> Suggestions:
    """Return what the phrases of a description give; empty lists where it has none.

    What the skill is not for gives no task: an agent that does nothing would pass it. The trigger tests ask that.
    """
    phrases, others = use_for_phrases(description), not_for_phrases(description)
    asked = [
        SuggestedPrompt(prompt=_sentence(phrase), reason=f"USE FOR: {phrase}", phrasing="keyword") for phrase in phrases
    ]
    if phrases:
        named = f"Use {name}: {phrases[0]}"
        asked.insert(0, SuggestedPrompt(prompt=named, reason="names the skill", phrasing="explicit"))
    silent = [SuggestedPrompt(prompt=_sentence(phrase), reason=f"DO NOT USE FOR: {phrase}") for phrase in others]
    tasks = [SuggestedTask(prompt=_sentence(phrase)) for phrase in phrases[:MOST_TASKS]]
    return Suggestions(should_trigger=asked[:count], should_not_trigger=silent[:count], tasks=tasks)


_PROMPT = {"type": "string", "description": "What a user would write, as they would write it."}
_REASON = {"type": "string", "description": "Why, in a few words."}
_RUNGS = ["explicit", "keyword", "generic", "indirect"]


def _entries(**more: JSON) -> dict[str, JSON]:
    properties = {"prompt": _PROMPT} | more
    inner = {"type": "object", "properties": properties, "required": ["prompt"], "additionalProperties": False}
    return {"type": "array", "items": inner}


SUGGEST = Tool(
    "suggest_tests",
    "Suggest tests for the skill. Call it exactly once.",
    {
        "type": "object",
        "properties": {
            "should_trigger": _entries(reason=_REASON, phrasing={"type": "string", "enum": _RUNGS}),
            "should_not_trigger": _entries(reason=_REASON),
            "tasks": _entries(
                should_trigger={"type": "boolean"}, output_contains={"type": "array", "items": {"type": "string"}}
            ),
        },
        "required": ["should_trigger", "should_not_trigger", "tasks"],
        "additionalProperties": False,
    },
)
_ASKED = """\
Below is the SKILL.md of a skill that an agent may choose to use. Suggest tests for it by calling suggest_tests:
- should_trigger: {count} prompts of users for which the agent should use the skill. Go from `explicit` (names the
  skill) over `keyword` (words of its description) and `generic` (other words) to `indirect` (only the situation).
- should_not_trigger: {count} prompts that come close and are for something else; mind what it says it is not for.
- tasks: up to {tasks} tasks with words that a right answer must contain, only where the skill makes them certain."""


def from_model(skill: SkillFile, judge: Judge, count: int = MOST) -> Suggestions:
    """Return what a model suggests; raise JudgeError where it gives no usable answer."""
    words = [f"{key}: {skill.text(key)}" for key in ("name", "description")]
    asked: list[str | Data] = [
        _ASKED.format(count=count, tasks=MOST_TASKS),
        Data("SKILL.md", "\n".join([*words, "", skill.body])),
    ]
    suggestions = wait_for_judge(answer(judge, Question(asked), Kind((SUGGEST,), _read))).verdict
    return Suggestions(
        should_trigger=_distinct(suggestions.should_trigger)[:count],
        should_not_trigger=_distinct(suggestions.should_not_trigger)[:count],
        tasks=suggestions.tasks[:MOST_TASKS],
    )


def _read(calls: Sequence[Call]) -> Suggestions:
    if len(calls) != 1 or calls[0].name != SUGGEST.name:
        raise NoVerdict(f"the model did not call {SUGGEST.name} once")
    try:
        suggestions = msgspec.convert(calls[0].arguments, Suggestions)
    except msgspec.ValidationError as error:
        fact = decoding_fact(error, calls[0].arguments)
        raise NoVerdict(f"{SUGGEST.name} was called with wrong arguments: {fact}") from None
    prompts = [entry.prompt for entry in (*suggestions.should_trigger, *suggestions.should_not_trigger)]
    prompts += [task.prompt for task in suggestions.tasks]
    if not suggestions.should_trigger or not all(prompt.strip() and len(prompt) <= _LONGEST for prompt in prompts):
        raise NoVerdict("a prompt is empty or too long, or there is none")
    return suggestions


def _distinct(prompts: Iterable[SuggestedPrompt]) -> list[SuggestedPrompt]:
    return list({fold_case(prompt.prompt.strip()): prompt for prompt in prompts}.values())


def _sentence(phrase: str) -> str:
    return phrase[:1].upper() + phrase[1:]


def slug(text: str, taken: Iterable[str] = ()) -> str:
    """Return a short name for a file from any text: letters, digits and hyphens, and none of those taken."""
    base = "-".join(_SLUG.sub(" ", text.lower()).split()[:6])[:60].strip("-") or "task"
    names, number = base, 1
    while names in taken:
        number += 1
        names = f"{base}-{number}"
    return names
