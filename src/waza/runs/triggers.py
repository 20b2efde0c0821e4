"""Trigger tests: the prompts as a run stores them, the result of each trial, and their metrics.

`run.triggers` has a Result for each prompt and trial, `run.spec["triggers"]` what each prompt was for:

    {"prompts": [TriggerPrompt, …], "skills": [name, …], "catalogue": bool,
     "heuristic": {prompt id: {skill: relevance}}, "threshold": 0.6, "tasks": [Task, …]}
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from msgspec import Struct, field

from waza.model import Result, Run, StoredTriggers, Trace
from waza.runs.metrics import Metric
from waza.stats.intervals import exact_share
from waza.stats.scores import Interval

WEIGHTS = {"high": 1.0, "": 1.0, "medium": 0.5}
"""What an answer counts, by the confidence of its prompt."""
_NOT_SCRIPTED = "mock.yaml has no rule (`triggers`) and no script for the skills that are used"


class TriggerPrompt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A prompt of `trigger_tests.yaml`, or a control."""

    id: str
    """The task id of its results, such as `trigger:should-1`."""
    prompt: str
    skill: str = ""
    """The skill it is about; empty for a control that no skill has anything to do with."""
    should_trigger: bool = True
    confidence: str = "high"
    """`high` counts 1, `medium` counts 0.5."""
    phrasing: str = ""
    """A rung of the wording ladder, where the author names it."""
    reason: str = ""
    control: Literal["", "explicit", "unrelated"] = ""
    """`explicit` names the skill outright, `unrelated` has nothing to do with it; neither counts in any number."""

    @property
    def short_id(self) -> str:
        """Its name among other prompts: `should-1`, or `csv-report:should-1` in a catalogue."""
        return self.id.removeprefix("trigger:")


class TriggerAnswer(Struct, frozen=True, kw_only=True):
    """The result of one trial of one prompt."""

    prompt: TriggerPrompt
    trial: int
    did_trigger: bool | None
    """Whether the skill was used (of an `unrelated` control: any tested skill); None when it is undecided."""
    skills: list[str] | None = None
    """Every skill that was used, in order; None when that was not recorded."""
    error: str = ""
    timed_out: bool = False
    by_reading: bool = False
    """Whether use was inferred from reading a SKILL.md: the agent has no tool that loads skills."""

    @property
    def is_right(self) -> bool:
        """Whether the agent did what it should."""
        return self.did_trigger is self.prompt.should_trigger


def prompts_of(run: Run) -> dict[str, TriggerPrompt]:
    """Return the prompts of a run's trigger tests by id, controls among them; none where it has no such tests."""
    listed = run.suite.trigger_prompts
    return {prompt.id: prompt for prompt in msgspec.convert(listed, list[TriggerPrompt])}


def answers_of(run: Run) -> list[TriggerAnswer]:
    """Return the result of each trial of each prompt, controls included, in the order of the prompts."""
    prompts = prompts_of(run)
    tested = {prompt.skill for prompt in prompts.values() if prompt.skill}
    return [answer_to(result, prompts[result.task_id], tested) for result in run.triggers if result.task_id in prompts]


def unanswered(run: Run) -> list[TriggerAnswer]:
    """Return an answer that cannot be determined for each trial of each prompt that was planned and not asked.

    They are no errors: an agent that was not asked has not failed to answer.
    """
    trials = run.suite.config.trials
    done = {(result.task_id, result.trial) for result in run.triggers}
    return [
        TriggerAnswer(prompt=prompt, trial=number, did_trigger=None, error="not asked")
        for prompt in prompts_of(run).values()
        for number in range(1, trials + 1)
        if (prompt.id, number) not in done
    ]


def answer_to(result: Result, prompt: TriggerPrompt, tested: set[str]) -> TriggerAnswer:
    """Return the result of one trial of a prompt; `tested` are the skills a prompt that names none is not to use."""
    used = result.trace.skill_invocations
    names = None if used is None else [invocation.name for invocation in used]
    wanted = {prompt.skill} if prompt.skill else tested
    has_used = names is not None and not wanted.isdisjoint(names)
    error = "" if has_used else _error(result, prompt.skill)
    return TriggerAnswer(
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


# Trigger tests in numbers: for which prompts the agent used the skill, and whether that can be believed.
#
# An answer that cannot be determined (the agent could not run, crashed or ran out of time before any skill was used,
# its
# use of skills is not recorded, it never had the skill) counts as a wrong one in `all`, and not at all in `decided`.
# What
# was not asked, because the run is INVALID or was interrupted, is in no number; it only keeps gates open. What an
# answer
# is, and what a run stores: `trigger_answers.py`.

RUNGS = ("explicit", "keyword", "generic", "indirect")
"""The wording ladder, from a prompt that names the skill to one that only hints at its need."""
METRIC = "trigger_accuracy"


class TriggerNumbers(Struct, frozen=True, kw_only=True):
    """Answers counted whole, and the four measures over their weights."""

    true_positives: int = 0
    false_positives: int = 0
    true_negatives: int = 0
    false_negatives: int = 0
    errors: int = 0
    """Undecided answers; in `all` they also count as wrong."""
    precision: float = 0.0
    recall: float = 0.0
    f1: float = 0.0
    accuracy: float = 0.0
    weighted: dict[str, float] = field(default_factory=dict)
    """The four counts again, as sums of weights."""


class Rung(Struct, frozen=True, kw_only=True):
    """How often the skill was used for should-trigger prompts of one wording."""

    phrasing: str
    used: int
    decided: int
    errors: int
    rate: float | None
    rate_ci: Interval | None


class SkillNumbers(Struct, frozen=True, kw_only=True):
    """One skill of a catalogue."""

    skill: str
    all: TriggerNumbers
    decided: TriggerNumbers | None


class TriggerSummary(Struct, frozen=True, kw_only=True):
    """The trigger tests of a run; in `results.json` it is `trigger_metrics`, flat, with `all` first."""

    prompts: int
    answers: int
    """Trials of prompts that count, controls left out."""
    not_asked: int = 0
    """Trials that were planned and not started: the run is INVALID or ended early. They are in no number."""
    is_valid: bool
    """False when the controls show that use of the skill could not be detected: then the numbers are meaningless."""
    reasons: list[str]
    """Why it is not valid."""
    warnings: list[str]
    all: TriggerNumbers
    """Every answer, errors counted as wrong ones."""
    decided: TriggerNumbers | None
    """Of the decided answers; None when there is none."""
    accuracy_low: float
    """The accuracy if every prompt that was not asked had been answered wrongly."""
    accuracy_high: float
    """The accuracy if every error, and every prompt that was not asked, had been a right answer."""
    accuracy_ci: Interval | None = None
    """The Wilson interval of the accuracy over all answers. Prompts count, not trials, those of unequal weight for as
    the effective number (Kish 1965: the square of the sum of weights by the sum of their squares, rounded down)."""
    heuristic: TriggerNumbers | None = None
    """The results of the `trigger` grader for the same prompts, from the words of the SKILL.md alone."""
    recall_ci: Interval | None = None
    """The Wilson interval of the mean, unweighted, over should-trigger prompts of the share of decided trials in which
    the skill was used. Prompts count, not trials: those of one prompt are alike."""
    by_reading: bool = False
    """Whether use of skills was inferred from reading SKILL.md files, not from a tool that loads skills."""
    rungs: list[Rung] = field(default_factory=list)
    skills: list[SkillNumbers] = field(default_factory=list)
    """Each skill by itself, where several are tested."""


def trigger_numbers(answers: Iterable[TriggerAnswer], *, decided_only: bool = False) -> TriggerNumbers | None:
    """Return counts and measures; None of nothing. An error is a wrong answer, or left out with `decided_only`."""
    counts = dict.fromkeys(("true_positives", "false_positives", "true_negatives", "false_negatives"), 0)
    weights = dict.fromkeys(counts, 0.0)
    errors = total = 0
    for answer in answers:
        if answer.did_trigger is None and decided_only:
            continue
        total += 1
        errors += answer.did_trigger is None
        should = answer.prompt.should_trigger
        did = (not should) if answer.did_trigger is None else answer.did_trigger
        name = ("true" if did is should else "false") + ("_positives" if did else "_negatives")
        counts[name] += 1
        weights[name] += WEIGHTS[answer.prompt.confidence]
    if not total:
        return None
    return TriggerNumbers(**counts, errors=errors, **_measures(weights), weighted=weights)  # type: ignore[arg-type]


def _measures(weights: dict[str, float]) -> dict[str, float]:
    """Return precision, recall, F1 and accuracy; 0 where there is nothing to divide by."""
    tp, fp, tn, fn = weights.values()
    precision, recall = _share(tp, tp + fp), _share(tp, tp + fn)
    return {
        "precision": precision,
        "recall": recall,
        "f1": _share(2 * precision * recall, precision + recall),
        "accuracy": _share(tp + tn, tp + fp + tn + fn),
    }


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def summarize_triggers(run: Run) -> TriggerSummary | None:
    """Return the trigger tests of a run in numbers; None where it has none."""
    prompts = prompts_of(run)
    if not prompts:
        return None
    answers = answers_of(run)
    reasons, warnings = _validity(prompts, answers)
    not_asked = [answer for answer in unanswered(run) if not answer.prompt.control]
    counted = [answer for answer in answers if not answer.prompt.control]
    prompts = {answer.prompt.id: answer.prompt for answer in counted}
    whole = trigger_numbers(counted) or TriggerNumbers()
    open_weight = _weight(not_asked)
    total = _weight(counted) + open_weight
    right = _weight(answer for answer in counted if answer.is_right)
    unknown = _weight(answer for answer in counted if answer.did_trigger is None) + open_weight
    skills = list(dict.fromkeys(answer.prompt.skill for answer in counted))
    return TriggerSummary(
        prompts=sum(not prompt.control for prompt in prompts.values()),
        answers=len(counted),
        not_asked=len(not_asked),
        is_valid=not reasons,
        reasons=reasons,
        warnings=warnings,
        all=whole,
        decided=trigger_numbers(counted, decided_only=True),
        accuracy_low=_share(right, total),
        accuracy_high=_share(right + unknown, total),
        accuracy_ci=_accuracy_interval(whole.accuracy, list(prompts.values())),
        heuristic=_heuristic(run, prompts),
        recall_ci=recall_interval(counted),
        by_reading=any(answer.by_reading for answer in answers),
        rungs=[_rung(name, counted) for name in RUNGS if any(_is_on(name, a) for a in counted)],
        skills=[_skill(name, counted) for name in skills] if len(skills) > 1 else [],
    )


def _weight(answers: Iterable[TriggerAnswer]) -> float:
    return math.fsum(WEIGHTS[answer.prompt.confidence] for answer in answers)


def _heuristic(run: Run, prompts: dict[str, TriggerPrompt]) -> TriggerNumbers | None:
    about = run.suite.triggers or StoredTriggers()
    relevance, threshold = about.heuristic, float(about.threshold) or 0.6
    guessed = [
        TriggerAnswer(prompt=prompt, trial=1, did_trigger=relevance[prompt.id][prompt.skill] >= threshold)
        for prompt in prompts.values()
        if prompt.skill in relevance.get(prompt.id, {})
    ]
    return trigger_numbers(guessed)


def _validity(prompts: dict[str, TriggerPrompt], answers: Sequence[TriggerAnswer]) -> tuple[list[str], list[str]]:
    """Return why the numbers are meaningless, and warnings from the controls.

    Detection is trusted once it has reported use (for a prompt that names the skill outright) and no use.
    """
    reasons: list[str] = []
    warnings: list[str] = []
    skills = dict.fromkeys(prompt.skill for prompt in prompts.values() if prompt.skill)
    for skill in skills:
        reason, warning = _explicit(
            skill, [a for a in answers if a.prompt.control == "explicit" and a.prompt.skill == skill]
        )
        reasons += [reason] if reason else []
        warnings += [warning] if warning else []
    unrelated = [a for a in answers if a.prompt.control == "unrelated"]
    if not unrelated and any(prompt.control == "unrelated" for prompt in prompts.values()):
        warnings.append("the control that has nothing to do with the skill was not asked")
    if errors := [answer.error for answer in unrelated if answer.did_trigger is None]:
        fact = f"could not be decided in {len(errors)} of {len(unrelated)} trials: {errors[0]}"
        warnings.append(f"the control that has nothing to do with the skill {fact}")
    fired = [a for a in unrelated if a.did_trigger]
    if fired:
        fact = f"the control that has nothing to do with the skill used it ({', '.join(fired[0].skills or [])})"
        if any(answer.did_trigger is False for answer in answers):
            warnings.append(f"{fact}: it may be used for anything")
        else:
            reasons.append(f"{fact}, and so did every prompt: nothing shows that no use would be detected")
    return reasons, warnings


def _explicit(skill: str, controls: Sequence[TriggerAnswer]) -> tuple[str, str]:
    """Return why the control that names a skill outright did not register, or how often it did not."""
    if not controls:
        return f"the control that names '{skill}' outright was not asked", ""
    used = sum(answer.did_trigger is True for answer in controls)
    if used == len(controls):
        return "", ""
    if used:
        return "", f"the control that names '{skill}' outright registered in {used} of {len(controls)} trials"
    head = f"the control that names '{skill}' outright did not register"
    errors = [answer.error for answer in controls if answer.error]
    if errors:
        return f"{head}: {errors[0]}", ""
    others = [name for answer in controls for name in answer.skills or []]
    if others:
        return f"{head}: '{others[0]}' was used instead", ""
    late = " within its time" if any(answer.timed_out for answer in controls) else ""
    return f"{head}: no skill use was detected{late}", ""


def recall_interval(answers: Iterable[TriggerAnswer]) -> Interval | None:
    """Return the interval of the share of use over decided should-trigger prompts."""
    by_prompt: dict[str, list[bool]] = {}
    for answer in answers:
        if answer.prompt.should_trigger and answer.did_trigger is not None:
            by_prompt.setdefault(answer.prompt.id, []).append(answer.did_trigger)
    return exact_share(math.fsum(sum(uses) / len(uses) for uses in by_prompt.values()), len(by_prompt))


def _accuracy_interval(accuracy: float, prompts: Sequence[TriggerPrompt]) -> Interval | None:
    weights = [WEIGHTS[prompt.confidence] for prompt in prompts]
    count = int(_share(sum(weights) ** 2, sum(weight**2 for weight in weights)))
    return exact_share(accuracy * count, count)


def _is_on(rung: str, answer: TriggerAnswer) -> bool:
    return answer.prompt.phrasing == rung and answer.prompt.should_trigger


def _rung(name: str, answers: Sequence[TriggerAnswer]) -> Rung:
    own = [answer for answer in answers if _is_on(name, answer)]
    decided = [a for a in own if a.did_trigger is not None]
    used = sum(a.did_trigger is True for a in decided)
    rate = used / len(decided) if decided else None
    return Rung(
        phrasing=name,
        used=used,
        decided=len(decided),
        errors=len(own) - len(decided),
        rate=rate,
        rate_ci=recall_interval(decided),
    )


def _skill(name: str, answers: Sequence[TriggerAnswer]) -> SkillNumbers:
    own = [answer for answer in answers if answer.prompt.skill == name]
    numbers = trigger_numbers(own) or TriggerNumbers()
    return SkillNumbers(skill=name, all=numbers, decided=trigger_numbers(own, decided_only=True))


def trigger_metric(summary: TriggerSummary) -> Metric:
    """Return the accuracy as a metric: undecided where the run is not valid, or where what is open could change a gate.

    Open are errors, and prompts that were not asked.
    """
    if not summary.is_valid:
        return Metric(name=METRIC, status="error", reason=f"INVALID: {summary.reasons[0]}")
    if not summary.answers:
        return Metric(name=METRIC, status="error", reason="no prompt was asked")
    return Metric(name=METRIC, value=summary.all.accuracy, low=summary.accuracy_low, high=summary.accuracy_high)
