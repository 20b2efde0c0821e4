"""A catalogue of skills: which prompts made the agent use which skill, observed and by the text of the skills alone.

`observed` counts trials: what the agent did. `heuristic` counts prompts: the result of the `trigger` grader from the
words of each SKILL.md. A row is a skill's should-trigger prompts, a column a skill that was used for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from waza.model import Run, StoredTriggers
from waza.runs.triggers import TriggerAnswer, TriggerPrompt, answers_of, prompts_of


class CatalogueRow(Struct, frozen=True, kw_only=True):
    """The results of the should-trigger prompts of one skill, by one method."""

    total: int
    """Trials (observed) or prompts (heuristic) that were decided."""
    used: dict[str, int]
    """By skill: in how many of them it was used; one trial may use several."""
    nothing: int
    """In how many no skill was used."""
    recall: float | None
    """The share in which the skill itself was used."""
    exclusivity: float | None
    """The share in which it was used and no other."""


class SkillRow(Struct, frozen=True, kw_only=True):
    """One skill: its row observed and by the heuristic."""

    skill: str
    prompts: int
    errors: int
    """Undecided trials, and those that were not run."""
    taken: int
    """Decided trials of other skills' should-trigger prompts in which this one was used."""
    observed: CatalogueRow
    heuristic: CatalogueRow | None
    """None where a SKILL.md could not be read."""


class ConfusedPair(Struct, frozen=True, kw_only=True):
    """A skill whose prompts made the agent use another one."""

    skill: str
    other: str
    observed: int
    total: int
    heuristic: int
    """Prompts of `skill` for which the heuristic expects `other`."""
    prompts: int


class PromptRow(Struct, frozen=True, kw_only=True):
    """One prompt against all skills."""

    id: str
    prompt: str
    skill: str
    should_trigger: bool
    phrasing: str
    total: int
    errors: int
    used: dict[str, int]
    nothing: int
    relevance: dict[str, float]
    """By skill: what the heuristic makes of the prompt, from 0 to 1."""


class Catalogue(Struct, frozen=True, kw_only=True):
    """The confusion matrix of a run with several skills; in `results.json` it is `trigger_catalogue`."""

    skills: list[str]
    threshold: float
    rows: list[SkillRow]
    pairs: list[ConfusedPair]
    """Those that were confused, the most often first; then those that only the heuristic would confuse."""
    prompts: list[PromptRow]


def catalogue_of(run: Run) -> Catalogue | None:
    """Return the confusion matrix of a run; None where its trigger tests are about a single skill."""
    about = run.suite.triggers or StoredTriggers()
    skills = [str(name) for name in about.skills]
    if len(skills) < 2:
        return None
    threshold, relevance = float(about.threshold) or 0.6, about.heuristic
    answers = answers_of(run)
    prompts = [prompt for prompt in prompts_of(run).values() if not prompt.control]
    tested = list(dict.fromkeys(prompt.skill for prompt in prompts))
    rows = [_skill_row(name, answers, prompts, relevance, threshold) for name in tested]
    return Catalogue(
        skills=skills,
        threshold=threshold,
        rows=rows,
        pairs=_pairs(rows, skills),
        prompts=[_prompt_row(p, [a for a in answers if a.prompt.id == p.id], relevance.get(p.id, {})) for p in prompts],
    )


def _skill_row(
    name: str,
    answers: Sequence[TriggerAnswer],
    prompts: Sequence[TriggerPrompt],
    relevance: dict[str, dict[str, float]],
    threshold: float,
) -> SkillRow:
    wanted = [a for a in answers if not a.prompt.control and a.prompt.should_trigger]
    own = [a for a in wanted if a.prompt.skill == name]
    should_trigger = [p for p in prompts if p.skill == name and p.should_trigger]
    expected = [
        {s for s, score in relevance[p.id].items() if score >= threshold} for p in should_trigger if p.id in relevance
    ]
    known = all(name in relevance.get(prompt.id, {}) for prompt in should_trigger)
    return SkillRow(
        skill=name,
        prompts=len(should_trigger),
        errors=sum(a.did_trigger is None for a in own),
        taken=sum(name in (a.skills or ()) for a in wanted if a.prompt.skill != name and a.did_trigger is not None),
        observed=_row(name, [set(a.skills or ()) for a in own if a.did_trigger is not None]),
        heuristic=_row(name, expected) if known else None,
    )


def _row(name: str, uses: Sequence[set[str]]) -> CatalogueRow:
    counted = Counter(skill for used in uses for skill in sorted(used))
    total = len(uses)
    return CatalogueRow(
        total=total,
        used=dict(counted),
        nothing=sum(not used for used in uses),
        recall=counted[name] / total if total else None,
        exclusivity=sum(used == {name} for used in uses) / total if total else None,
    )


def _pairs(rows: Sequence[SkillRow], skills: Sequence[str]) -> list[ConfusedPair]:
    found = [
        ConfusedPair(
            skill=row.skill,
            other=other,
            observed=row.observed.used.get(other, 0),
            total=row.observed.total,
            heuristic=row.heuristic.used.get(other, 0) if row.heuristic else 0,
            prompts=row.prompts,
        )
        for row in rows
        for other in dict.fromkeys([*skills, *row.observed.used])
        if other != row.skill
    ]
    confused = [pair for pair in found if pair.observed or pair.heuristic]
    return sorted(confused, key=lambda pair: (-pair.observed, -pair.heuristic, pair.skill, pair.other))


def _prompt_row(prompt: TriggerPrompt, answers: Sequence[TriggerAnswer], relevance: dict[str, float]) -> PromptRow:
    decided = [set(answer.skills or ()) for answer in answers if answer.did_trigger is not None]
    return PromptRow(
        id=prompt.id,
        prompt=prompt.prompt,
        skill=prompt.skill,
        should_trigger=prompt.should_trigger,
        phrasing=prompt.phrasing,
        total=len(decided),
        errors=len(answers) - len(decided),
        used=dict(Counter(skill for used in decided for skill in sorted(used))),
        nothing=sum(not used for used in decided),
        relevance=relevance,
    )
