"""The impact of a skill from two runs: what is counted, what is not, and what the words rest on."""

import numpy as np
import pytest

from synthetic_agents import DESIGNS, synthetic
from waza.model import Grade, Result, Run, SkillInvocation, Trace
from waza.runs.impact import impact_of, is_skill
from waza.runs.impact_records import UNCLEAN
from waza.stats.lift import activation_of, benefit_of, lift_of

GRADERS = [{"type": "text", "name": "hi", "config": {"contains": ["x"]}}]


def a_result(task, trial, passed, used=None, **more):
    status = {True: "passed", False: "failed", None: "error"}[passed]
    grade = Grade(name="hi", type="text", status=status, score=float(bool(passed)), feedback="")
    skills = None if used is None else [SkillInvocation(name="s")] if used else []
    trace = Trace(input="", output="", skill_invocations=skills, duration_ms=1.0)
    return Result(**{"task_id": task, "trial": trial, "status": status, "trace": trace, "grades": [grade], **more})


def a_run(results, arm="skill", graders=None):
    tasks = list(dict.fromkeys(result.task_id for result in results))
    spec = {
        "tasks": [{"id": task} for task in tasks],
        "graders": dict.fromkeys(tasks, graders or GRADERS),
        "baseline": {"arm": arm, "skill": "s"},
    }
    return Run(id="r", name="n", started_at="", engine="mock", skill="s", spec=spec, results=results)


def runs_of(design, seed):
    """Return both arms of a synthetic agent, trial by trial, and the counts they come to."""
    tasks, trials, rate, benefit, without, _ = design
    random = np.random.default_rng(seed)
    used = random.random((tasks, trials)) < rate
    with_skill = random.random((tasks, trials)) < without + benefit * used
    control = random.random((tasks, trials)) < without
    places = [(task, trial) for task in range(tasks) for trial in range(trials)]
    ones = [a_result(f"t{i}", j + 1, bool(with_skill[i, j]), bool(used[i, j])) for i, j in places]
    others = [a_result(f"t{i}", j + 1, bool(control[i, j]), False) for i, j in places]
    return a_run(ones), a_run(others, "control")


@pytest.mark.parametrize("seed", range(5))
def test_runs_come_to_the_same_numbers_as_their_counts(seed):
    design = DESIGNS["a usual agent"]
    counted = synthetic(seed, *design)
    found = impact_of(*runs_of(design, seed))
    for estimate, of in ((found.lift, lift_of), (found.activation, activation_of), (found.benefit, benefit_of)):
        assert estimate == of(counted)


def test_a_use_that_was_not_recorded_leaves_activation_open():
    run = a_run([a_result("t", 1, True, used=None)])
    found = impact_of(run, a_run([a_result("t", 1, False, used=False)], "control"))
    assert (found.activation, found.benefit, found.lift.value) == (None, None, 1)


def test_undecided_trials_are_never_counted_as_failed():
    run = a_run([a_result("t", 1, True, True), a_result("t", 2, None, True)])
    control = a_run([a_result("t", 1, True, False), a_result("t", 2, True, False)], "control")
    found = impact_of(run, control)
    assert (found.lift.value, found.undecided_with) == (0, 1)
    [task] = found.tasks
    assert (task.passed_with, task.trials_with) == (1, 1)


def test_a_verdict_that_undecided_trials_could_turn_does_not_hold():
    ones = [a_result(f"t{n}", 1, True, True) for n in range(8)]
    others = [a_result(f"t{n}", 1, False, False) for n in range(8)]
    assert impact_of(a_run(ones), a_run(others, "control")).holds
    unsure = [a_result(f"t{n}", 1, None, False) if n < 4 else others[n] for n in range(8)]
    assert not impact_of(a_run(ones), a_run([*unsure, *others[8:]], "control")).holds


def test_a_timeout_is_a_failure_and_an_agent_that_could_not_run_is_not():
    late = a_result("t", 1, True, True)
    late = Result(
        task_id="t", trial=1, status="failed", trace=Trace(input="", output="", status="timeout"), grades=late.grades
    )
    broken = Result(task_id="t", trial=2, status="error", trace=Trace(input="", output="", status="error"))
    found = impact_of(a_run([late, broken]), a_run([a_result("t", 1, True, False)], "control"))
    assert (found.tasks[0].trials_with, found.tasks[0].passed_with, found.undecided_with) == (1, 0, 1)


def test_unclean_trials_are_counted_and_prove_nothing():
    trace = Trace(input="", output="x", status="error", error=f"{UNCLEAN}: x")
    unclean = Result(task_id="t", trial=1, status="error", reason=f"{UNCLEAN}: x", trace=trace)
    found = impact_of(a_run([a_result("t", 1, True, True)]), a_run([unclean], "control"))
    assert (found.unclean, found.lift, found.word) == (1, None, "too little evidence")


def test_nothing_at_all_is_too_little_evidence():
    found = impact_of(a_run([]), a_run([], "control"))
    assert (found.word, found.lift, found.tasks) == ("too little evidence", None, [])


def test_names_of_plug_ins_do_not_hide_a_skill():
    assert is_skill("s", "s")
    assert is_skill("plugin:s", "s")
    assert not is_skill("other", "s")
    assert not is_skill("s:other", "s")
