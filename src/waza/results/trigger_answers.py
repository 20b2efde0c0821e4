"""What each trial of a trigger test came to: the prompts as a run stores them, and the answers to them.

`run.triggers` holds a Result for each prompt and trial, `run.spec["triggers"]` what each prompt was for:

    {"prompts": [TriggerPrompt, …], "skills": [name, …], "catalogue": bool,
     "heuristic": {prompt id: {skill: relevance}}, "threshold": 0.6, "tasks": [Task, …]}
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from waza.model import Result, Run, Trace

WEIGHTS = {"high": 1.0, "": 1.0, "medium": 0.5}
"""What an answer counts, by the confidence of its prompt."""
_NOT_SCRIPTED = "mock.yaml has no rule (`triggers`) and no script that says which skills are used"


class TriggerPrompt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A prompt of `trigger_tests.yaml`, or a control beside it."""

    id: str
    """The task id of its results, such as `trigger:should-1`."""
    prompt: str
    skill: str = ""
    """The skill it is about; empty for a control that no skill has anything to do with."""
    should_trigger: bool = True
    confidence: str = "high"
    """`high` counts 1, `medium` counts 0.5."""
    phrasing: str = ""
    """A rung of the wording ladder, where the author says which."""
    reason: str = ""
    control: Literal["", "explicit", "unrelated"] = ""
    """`explicit` names the skill outright, `unrelated` has nothing to do with it; neither counts in any number."""

    @property
    def short_id(self) -> str:
        """What it is called beside other prompts: `should-1`, or `csv-report:should-1` in a catalogue."""
        return self.id.removeprefix("trigger:")


class Answer(Struct, frozen=True, kw_only=True):
    """What one trial of one prompt came to."""

    prompt: TriggerPrompt
    trial: int
    did_trigger: bool | None
    """Whether the skill was used (of an `unrelated` control: any tested skill); None when nobody can tell."""
    skills: list[str] | None = None
    """Every skill that was used, in order; None when that was not recorded."""
    error: str = ""
    timed_out: bool = False
    by_reading: bool = False
    """Whether use was told from a SKILL.md that was read: the agent has no tool that loads skills."""

    @property
    def is_right(self) -> bool:
        """Whether the agent did what it should."""
        return self.did_trigger is self.prompt.should_trigger


def prompts_of(run: Run) -> dict[str, TriggerPrompt]:
    """Return the prompts of a run's trigger tests by id, controls among them; none where it has no such tests."""
    listed = (run.spec.get("triggers") or {}).get("prompts") or []
    return {prompt.id: prompt for prompt in msgspec.convert(listed, list[TriggerPrompt])}


def answers_of(run: Run) -> list[Answer]:
    """Return what each trial of each prompt came to, controls among them, in the order of the prompts."""
    prompts = prompts_of(run)
    tested = {prompt.skill for prompt in prompts.values() if prompt.skill}
    return [answer_to(result, prompts[result.task_id], tested) for result in run.triggers if result.task_id in prompts]


def unanswered(run: Run) -> list[Answer]:
    """Return an answer that cannot be determined for each trial of each prompt that was planned and not asked.

    They are no errors: an agent that was not asked has not failed to answer.
    """
    trials = int((run.spec.get("config") or {}).get("trials_per_task") or 1)
    done = {(result.task_id, result.trial) for result in run.triggers}
    return [
        Answer(prompt=prompt, trial=number, did_trigger=None, error="not asked")
        for prompt in prompts_of(run).values()
        for number in range(1, trials + 1)
        if (prompt.id, number) not in done
    ]


def answer_to(result: Result, prompt: TriggerPrompt, tested: set[str]) -> Answer:
    """Return what one trial of a prompt came to; `tested` are the skills a prompt that names none is not to use."""
    used = result.trace.skill_invocations
    names = None if used is None else [invocation.name for invocation in used]
    wanted = {prompt.skill} if prompt.skill else tested
    has_used = names is not None and not wanted.isdisjoint(names)
    error = "" if has_used else _error(result, prompt.skill)
    return Answer(
        prompt=prompt,
        trial=result.trial,
        did_trigger=None if error else has_used,
        skills=names,
        error=error,
        timed_out=result.trace.status == "timeout",
        by_reading=any((invocation.path or "").endswith("SKILL.md") for invocation in used or ()),
    )


def ended_early(trace: Trace) -> str:
    """Return that an agent ran out of time or crashed before it used any skill; nothing where it did not."""
    if trace.status not in ("timeout", "failure") or trace.skill_invocations:
        return ""
    what = "ran out of time" if trace.status == "timeout" else "failed"
    return f"the agent {what} before any skill was used" + (f": {trace.error}" if trace.error else "")


def _error(result: Result, skill: str) -> str:
    """Return why it cannot be determined that the skill was not used; nothing where it is sure.

    An agent that ran out of time or crashed before it used any skill has not decided against one: its silence is no
    answer, whatever the trial's status is by `on_agent_crash`.
    """
    trace = result.trace
    if early := ended_early(trace):
        return early
    has_ended_late = trace.status in ("timeout", "failure")  # after it used another skill, which is an answer
    if trace.status == "error" or (result.status == "error" and result.reason and not has_ended_late):
        return trace.error or result.reason or "the agent could not run"
    if trace.skill_invocations is None:
        return _NOT_SCRIPTED if trace.engine == "mock" else "skill use was not recorded: this engine cannot observe it"
    if skill and trace.available_skills is not None and skill not in trace.available_skills:
        return f"the agent did not have the skill '{skill}': it is not in its session's list of skills"
    return ""
