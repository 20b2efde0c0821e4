"""Whether a skill is worth having: the same tasks with and without it, as one run and its control arm.

A baseline run is stored as a run whose folder contains a second run folder, `control/`: the same trials without the
skill. Graders that check the use of skills do not count here: the control arm cannot pass them, and a benefit by
definition is none. Graders that compare both arms' outputs are counted apart, as wins and losses. A task that has no
other grader is decided by them: an output passes that is not worse than the other arm's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from waza.errors import StoreError
from waza.model import JSON, Grade, Result, Run, StoredSuite
from waza.runs.folder import RUN
from waza.runs.grader_facts import FactsByType, has_fact, stored_grader_facts
from waza.runs.impact_records import CONTROL, UNCLEAN, Change, Impact, TaskImpact, Word, win_rates
from waza.runs.outcomes import duration_of
from waza.runs.store import open_run
from waza.stats.difference import MARGIN, DifferenceVerdict, verdict_on_passing
from waza.stats.intervals import bounded_mean, mean_difference
from waza.stats.lift import Estimate, TaskArms, activation_of, benefit_of, lift_of, pair_interval
from waza.stats.paired import Tally
from waza.stats.scores import mean, score_of_grades

_ABOUT_SKILLS = {"skill_pattern", "required_skills", "should_trigger"}
"""Options that only a trial with the skill could meet."""
_PREFERENCE = (
    "have only graders that compare both arms: an output passes there if the judge does not call it the worse one"
)
_WORDS: dict[str, Word] = {"better": "improvement shown", "worse": "regression shown"}


class ImpactTrial(NamedTuple):
    """One trial, as far as the impact needs it; None where it is undecided."""

    passed: bool | None
    score: float | None
    triggered: bool | None
    tokens: float | None
    duration_ms: float | None
    cost_usd: float | None
    pairwise: JSON = None
    winners: tuple[str | None, ...] = ()
    """The verdict of each comparing grader: `candidate`, `baseline`, `tie`, or None where it decided nothing."""


Trials = dict[str, dict[int, ImpactTrial]]
"""By task and number of the trial."""


def stored_impact(run: Run) -> Impact | None:
    """Return the impact of a stored baseline run; None where the run has no control arm, or it cannot be read."""
    about = run.suite.baseline
    if about.arm != "skill" or not (Path(run.folder) / CONTROL / RUN).is_file():
        return None
    try:
        control = open_run(Path(run.folder) / CONTROL)
    except StoreError:
        return None
    return impact_of(run, control, these_tasks=about.these_tasks)


def impact_of(run: Run, control: Run, *, these_tasks: bool = False, margin: float = MARGIN) -> Impact:
    """Return what the skill does: `run` has it, `control` does not."""
    suite = run.suite
    skill = suite.baseline.skill or run.skill
    ones, others = _tried(run, skill), _tried(control, skill)
    ids = list(control.suite.task_ids)
    preferred = [task_id for task_id in ids if _is_only_compared(suite, task_id)]
    for task_id in preferred:
        ones[task_id], others[task_id] = _by_preference(ones.get(task_id, {}), others.get(task_id, {}))
    tasks = [_task(task_id, ones.get(task_id, {}), others.get(task_id, {})) for task_id in ids]
    arms = [found for task_id in ids if (found := _arms(ones.get(task_id, {}), others.get(task_id, {})))]
    tallies = [Tally(arm.passed_without, arm.trials_without, arm.passed_with, arm.trials_with) for arm in arms]
    verdict = verdict_on_passing(tallies, margin=margin, these_tasks=these_tasks)
    notes, uses = _use_of_skill(ones, ids, injected=suite.baseline.injected)
    if preferred:
        notes = [*notes, f"{len(preferred)} of {len(ids)} tasks {_PREFERENCE}"]
    unclean = sum(result.trace.status == "error" and result.reason.startswith(UNCLEAN) for result in control.results)
    return Impact(
        skill=skill,
        word=_word(verdict),
        verdict=verdict,
        holds=all(
            _word(verdict_on_passing(case, margin=margin, these_tasks=these_tasks, brief=True)) == _word(verdict)
            for case in _bounds(tasks)
        ),
        lift=lift_of(arms, these_tasks=these_tasks),
        activation=activation_of(arms, these_tasks=these_tasks) if uses else None,
        benefit=benefit_of(arms, these_tasks=these_tasks) if uses else None,
        silent=_silent(ones, others, ids) if uses else None,
        **{name: _over_tasks([getattr(task, name) for task in tasks], is_share=name == "score") for name in _NUMBERS},
        pairwise=win_rates(run),
        undecided_with=sum(task.undecided_with for task in tasks),
        undecided_without=sum(task.undecided_without for task in tasks),
        unclean=unclean,
        these_tasks=these_tasks,
        tasks=tasks,
        not_compared=[task_id for task_id in suite.task_ids if task_id not in ids],
        notes=notes,
    )


def is_one_sided(grader: Mapping[str, JSON], facts: FactsByType) -> bool:
    """Return whether a stored grader can only be passed with the skill: by its use, or against the control."""
    config = grader.get("config")
    config = config if isinstance(config, dict) else {}
    inner = config.get("grader")
    # Of a grader in another one the type is not stored; an option `skill` names the skill that must be used.
    if isinstance(inner, dict) and ("skill" in inner or is_one_sided({"config": inner}, facts)):
        return True
    if has_fact(facts, str(grader.get("type")), "checks_skill_use") or config.get("mode") == "pairwise":
        return True
    return not _ABOUT_SKILLS.isdisjoint(_keys(config))


def _compares(grader: Mapping[str, JSON]) -> bool:
    config = grader.get("config")
    return isinstance(config, dict) and config.get("mode") == "pairwise"


def _is_only_compared(suite: StoredSuite, task_id: str) -> bool:
    """Return whether nothing but the comparison of both arms' outputs decides a task."""
    graders, facts = suite.graders_of(task_id) or (), stored_grader_facts(suite)
    return any(map(_compares, graders)) and all(is_one_sided(grader, facts) for grader in graders)


def _by_preference(
    ones: dict[int, ImpactTrial], others: dict[int, ImpactTrial]
) -> tuple[dict[int, ImpactTrial], dict[int, ImpactTrial]]:
    """Return the trials of both arms, passed where no comparing grader calls their output the worse one."""
    one, other = dict(ones), dict(others)
    for number in ones.keys() & others.keys():
        winners = ones[number].winners
        if winners and None not in winners:
            one[number] = _unless_late(ones[number], "baseline" not in winners)
            other[number] = _unless_late(others[number], "candidate" not in winners)
    return one, other


def _unless_late(trial: ImpactTrial, passed: bool) -> ImpactTrial:
    return trial if trial.passed is False else trial._replace(passed=passed)


def _keys(tree: JSON) -> Iterator[str]:
    """Yield every key in a grader's options, not the words in its texts."""
    if isinstance(tree, dict):
        yield from tree
    for inner in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _keys(inner)


def _tried(run: Run, skill: str) -> Trials:
    by_task, facts = run.suite.graders or {}, stored_grader_facts(run.suite)
    counts = {task_id: [not is_one_sided(grader, facts) for grader in graders] for task_id, graders in by_task.items()}
    found: Trials = {}
    for result in run.results:
        graders = by_task.get(result.task_id, [])
        trial = _one(result, counts.get(result.task_id, []), skill)
        if len(graders) == len(result.grades):
            pairs = zip(graders, result.grades, strict=True)
            trial = trial._replace(winners=tuple(_winner(grade) for grader, grade in pairs if _compares(grader)))
        found.setdefault(result.task_id, {})[result.trial] = trial
    return found


def _one(result: Result, counts: Sequence[bool], skill: str) -> ImpactTrial:
    """Return a trial; `counts` has for each of its graders whether both arms could pass it."""
    trace = result.trace
    is_ungraded = result.status == "skipped" and bool(counts)
    if trace.status == "error" or is_ungraded or len(counts) != len(result.grades):
        return ImpactTrial(None, None, None, None, None, None)
    grades = [grade for grade, does_count in zip(result.grades, counts, strict=True) if does_count]
    used = None
    if trace.skill_invocations is not None:
        used = any(is_skill(invocation.name, skill) for invocation in trace.skill_invocations)
    return ImpactTrial(
        passed=_passed(result, [grade.status for grade in grades]),
        score=score_of_grades(grades).weighted if grades else None,
        triggered=used,
        tokens=trace.usage.total_tokens if trace.usage else None,
        duration_ms=duration_of(result),
        cost_usd=trace.usage.cost_usd if trace.usage else None,
        pairwise=next((grade.details["pairwise"] for grade in result.grades if "pairwise" in grade.details), None),
    )


def _winner(grade: Grade) -> str | None:
    verdict = grade.details.get("pairwise")
    winner = verdict.get("winner") if isinstance(verdict, dict) and grade.status != "error" else None
    return winner if isinstance(winner, str) else None


def is_skill(name: str, skill: str) -> bool:
    """Return whether an agent's name for a skill means this one: the name itself, or behind the name of a plug-in."""
    return name == skill or name.rpartition(":")[2] == skill


def _passed(result: Result, statuses: list[str]) -> bool | None:
    if result.trace.status == "timeout":
        return False
    if result.trace.crash is not None and result.reason:
        return False if result.status == "failed" else None
    broke_elsewhere = result.status == "error" and all(grade.status != "error" for grade in result.grades)
    if not statuses or broke_elsewhere:
        return None
    if "failed" in statuses:
        return False
    return None if "error" in statuses else True


_NUMBERS = ("score", "tokens", "duration_ms", "cost_usd")


def _task(task_id: str, ones: dict[int, ImpactTrial], others: dict[int, ImpactTrial]) -> TaskImpact:
    one, other = _decided(ones), _decided(others)
    used = [trial.triggered for trial in one.values()]
    arms = _arms(ones, others)
    verdicts = [trial.pairwise for _, trial in sorted(ones.items()) if trial.pairwise is not None]
    return TaskImpact(
        id=task_id,
        passed_with=sum(bool(trial.passed) for trial in one.values()),
        trials_with=len(one),
        passed_without=sum(bool(trial.passed) for trial in other.values()),
        trials_without=len(other),
        undecided_with=len(ones) - len(one),
        undecided_without=len(others) - len(other),
        triggered=None if None in used else sum(map(bool, used)),
        difference=_difference(arms) if arms else None,
        **{name: _change(ones, others, name) for name in _NUMBERS},
        pairwise=verdicts[0] if verdicts else None,
    )


def _difference(arms: TaskArms) -> Estimate:
    """Return a task's difference: of paired trials where all of them are pairs, else of the arms as they are."""
    paired = pair_interval(arms.gained, arms.lost, arms.pairs)
    whole = lift_of([arms])
    is_paired = arms.pairs == arms.trials_with == arms.trials_without
    return paired if paired and is_paired else whole or Estimate(value=arms.lift, lower=-1.0, upper=1.0)


def _decided(trials: dict[int, ImpactTrial]) -> dict[int, ImpactTrial]:
    return {number: trial for number, trial in trials.items() if trial.passed is not None}


def _arms(ones: dict[int, ImpactTrial], others: dict[int, ImpactTrial]) -> TaskArms | None:
    one, other = _decided(ones), _decided(others)
    if not one or not other:
        return None
    pairs = [(one[number].passed, other[number].passed) for number in one if number in other]
    used = [(one[number].passed, other[number].passed) for number in one if number in other and one[number].triggered]
    return TaskArms(
        passed_with=sum(bool(trial.passed) for trial in one.values()),
        trials_with=len(one),
        passed_without=sum(bool(trial.passed) for trial in other.values()),
        trials_without=len(other),
        gained=pairs.count((True, False)),
        lost=pairs.count((False, True)),
        pairs=len(pairs),
        triggered=sum(bool(trial.triggered) for trial in one.values()),
        passed_triggered=sum(bool(trial.triggered and trial.passed) for trial in one.values()),
        gained_triggered=used.count((True, False)),
        lost_triggered=used.count((False, True)),
    )


def _change(ones: dict[int, ImpactTrial], others: dict[int, ImpactTrial], name: str) -> Change | None:
    """Return a task's number per trial in both arms."""
    one, other = (mean(list(_known(trials, name))) for trials in (ones, others))
    if one is None or other is None:
        return None
    return Change(with_skill=one, without_skill=other, difference=one - other, tasks=1)


def _known(trials: dict[int, ImpactTrial], name: str) -> Iterator[float]:
    return (value for trial in trials.values() if (value := getattr(trial, name)) is not None)


def _over_tasks(changes: Sequence[Change | None], *, is_share: bool = False) -> Change | None:
    """Return the mean of tasks' numbers, with the interval of their difference; a share's is from -1 to 1."""
    known = [change for change in changes if change is not None]
    if not known:
        return None
    differences = [change.difference for change in known]
    interval = bounded_mean(differences, -1.0) if is_share else mean_difference(differences)
    is_informative = interval is not None and interval.tells
    return Change(
        with_skill=mean([change.with_skill for change in known]) or 0.0,
        without_skill=mean([change.without_skill for change in known]) or 0.0,
        difference=mean(differences) or 0.0,
        lower=interval.lower if interval and is_informative else None,
        upper=interval.upper if interval and is_informative else None,
        tasks=len(known),
    )


def _silent(ones: Trials, others: Trials, ids: list[str]) -> Change | None:
    """Return the pass rate of trials that did not use the skill, against the control arm's, by task."""

    def rates(trials: dict[int, ImpactTrial], wanted: Callable[[ImpactTrial], bool]) -> float | None:
        return mean([float(bool(trial.passed)) for trial in _decided(trials).values() if wanted(trial)])

    found = []
    for task_id in ids:
        one = rates(ones.get(task_id, {}), lambda trial: trial.triggered is False)
        other = rates(others.get(task_id, {}), lambda trial: True)
        if one is not None and other is not None:
            found.append(Change(with_skill=one, without_skill=other, difference=one - other))
    return _over_tasks(found, is_share=True)


def _use_of_skill(ones: Trials, ids: list[str], *, injected: bool) -> tuple[list[str], bool]:
    """Return notes about the use of the skill, and whether it is known in every decided trial."""
    if injected:
        return [
            "inject_skill_body puts the skill into every session: activation and benefit cannot be separated"
        ], False
    used = [trial.triggered for task_id in ids for trial in _decided(ones.get(task_id, {})).values()]
    if None in used:
        return ["the use of skills was not recorded: activation and benefit cannot be separated"], False
    return [], bool(used)


def _word(verdict: DifferenceVerdict) -> Word:
    return _WORDS.get(verdict.word, "no difference shown" if verdict.word == "no difference shown" else _LITTLE)


_LITTLE: Word = "too little evidence"


def _bounds(tasks: Sequence[TaskImpact]) -> Iterator[list[Tally]]:
    """Yield the tallies if all undecided trials were for the skill, and if all were against it."""
    for with_skill in (True, False):
        yield [
            Tally(
                task.passed_without + (0 if with_skill else task.undecided_without),
                task.trials_without + task.undecided_without,
                task.passed_with + (task.undecided_with if with_skill else 0),
                task.trials_with + task.undecided_with,
            )
            for task in tasks
            if task.trials_without + task.undecided_without and task.trials_with + task.undecided_with
        ]
