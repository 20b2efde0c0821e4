"""Two runs side by side: tasks paired by id, flips first, the undecided never mixed in."""

import pytest

from results_made import a_grade, a_result, a_run
from waza.analysis.changes import divergence
from waza.analysis.comparison import among, compare
from waza.model import Check, ToolEvent, Trace


def a_trial(task, passed=True, trial=1, tools=(), name="greets"):
    status = passed if isinstance(passed, str) else "passed" if passed else "failed"
    events = [ToolEvent(tool_name=tool, args=args) for tool, args in tools]
    trace = Trace(input="x", output="y", tool_events=events)
    grade_status = {"passed": "passed", "failed": "failed"}.get(status, "error")
    checks = [Check(status == "passed", "says hello", "did not say hello", "hello", "y")]
    grade = a_grade(float(status == "passed"), grade_status, name=name, checks=checks)
    return a_result(task, trial, status, [grade], trace=trace)


def runs(before, after, **config):
    made = []
    for number, trials in enumerate((before, after)):
        ids = list(dict.fromkeys(trial.task_id for trial in trials))
        made.append(a_run(trials, tasks=ids, config={"trials_per_task": 1} | config, id=f"run-{number}"))
    return made


def changes(comparison):
    return {task.id: task.kind for task in comparison.tasks}


def test_flips_stand_first_and_what_broke_before_what_was_mended():
    before = [a_trial("a"), a_trial("b", False), a_trial("c"), a_trial("d")]
    after = [a_trial("d", False), a_trial("b"), a_trial("c", "error"), a_trial("a")]
    found = compare(*runs(before, after))
    assert changes(found) == {"d": "broke", "b": "mended", "c": "undecided", "a": "same"}
    assert [task.id for task in found.tasks] == ["d", "b", "c", "a"]


def test_a_flip_tells_the_checks_that_changed_and_where_the_trajectories_part():
    before = [a_trial("a", tools=[("read", {"path": "x"}), ("edit", {"path": "x", "line": 3})])]
    after = [a_trial("a", False, tools=[("read", {"path": "x"}), ("edit", {"path": "x", "line": 7})])]
    [task] = compare(*runs(before, after)).tasks
    [check] = task.details.checks
    assert (check.grader, check.before, check.after, check.why) == ("greets", True, False, "did not say hello")
    parted = task.details.divergence
    assert (parted.kind, parted.call, parted.before) == ("arguments", 2, "edit")
    assert [(one.path, one.before, one.after) for one in parted.arguments] == [("line", 3, 7)]


def test_of_several_trials_two_unlike_ones_are_told():
    before = [a_trial("a", True, trial) for trial in (1, 2)]
    after = [a_trial("a", True, 1), a_trial("a", False, 2)]
    [task] = compare(*runs(before, after, trials_per_task=2)).tasks
    assert (task.kind, task.details.trial_before, task.details.trial_after) == ("broke", 1, 2)


def test_tasks_of_one_run_only_are_named_and_not_counted():
    found = compare(*runs([a_trial("a"), a_trial("old")], [a_trial("a"), a_trial("new")]))
    assert (found.removed, found.added, list(changes(found))) == (["old"], ["new"], ["a"])


def test_a_task_that_asks_something_else_is_another_task():
    before, after = runs([a_trial("a"), a_trial("b")], [a_trial("a", False), a_trial("b")])
    before.spec["tasks"][0]["prompt"], after.spec["tasks"][0]["prompt"] = "add 1", "add 2"
    found = compare(before, after)
    assert (found.asked_otherwise, changes(found)) == (["a"], {"b": "same"})


def test_a_task_nobody_can_tell_is_no_failure_and_the_verdict_says_whether_it_matters():
    before = [a_trial(f"t{n}") for n in range(20)]
    after = [a_trial(f"t{n}", "error" if n < 9 else True) for n in range(20)]
    found = compare(*runs(before, after))
    assert found.passing.difference == 0.0
    assert found.passing.tasks == 11
    assert not found.holds
    assert compare(*runs(before, before)).holds


def test_each_task_has_a_test_of_its_own_adjusted_for_their_number():
    def trials(passed, task):
        return [a_trial(task, number <= passed, number) for number in range(1, 11)]

    before = trials(10, "a") + trials(9, "b") + trials(5, "c")
    after = trials(0, "a") + trials(8, "b") + trials(5, "c")
    found = {task.id: task.p_value for task in compare(*runs(before, after, pass_rule="any")).tasks}
    assert found["a"] == pytest.approx(3 * 2 / 184756, rel=1e-6)  # 20 over 10 ways, both tails, three tasks
    assert found["b"] == found["c"] == 1.0


def test_each_grader_is_compared_over_the_tasks_that_have_it_in_both():
    before = [a_trial("a", name="one"), a_trial("b", name="two")]
    after = [a_trial("a", False, name="one"), a_trial("b", name="three")]
    [grader] = compare(*runs(before, after)).graders
    assert (grader.name, grader.difference, grader.tasks) == ("one", -1.0, 1)


def test_with_several_runs_against_one_each_must_show_more():
    before = [a_trial(f"t{n}") for n in range(7)]
    after = [a_trial(f"t{n}", False) for n in range(7)]
    one = compare(*runs(before, after))
    assert one.verdict.p_value == pytest.approx(2 / 2**7)
    adjusted = among([one] * 4)
    assert adjusted[0].verdict.p_value == pytest.approx(8 / 2**7)
    assert {one.verdict.word for one in adjusted} == {"too little evidence"}


CALLS = {"r": ("read", {"path": "a"}), "e": ("edit", {"path": "a"}), "s": ("shell", {}), "E": ("edit", {"path": "b"})}


@pytest.mark.parametrize(
    ("before", "after", "kind", "call", "skipped"),
    [
        ("re", "re", "same", 2, []),
        ("re", "rE", "arguments", 2, []),
        ("rse", "re", "left out", 2, ["shell"]),
        ("re", "rse", "added", 2, ["shell"]),
        ("r", "rse", "added", 2, ["shell", "edit"]),
        ("rs", "re", "other call", 2, []),
        ("", "", "same", 0, []),
    ],
)
def test_where_trajectories_part(before, after, kind, call, skipped):
    events = [
        [ToolEvent(tool_name=name, args=args) for name, args in map(CALLS.get, letters)] for letters in (before, after)
    ]
    found = divergence(*events)
    assert (found.kind, found.call, found.skipped) == (kind, call, skipped)


def test_calls_that_were_not_recorded_part_nowhere():
    assert divergence(None, []) is None
