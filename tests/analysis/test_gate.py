"""Gates: met, missed, or nobody can tell; on the interval and not only on the point."""

import pytest
from msgspec.structs import replace

from results_made import a_grade, a_result, a_run
from waza.analysis.gate import Needs, exit_code, gates
from waza.model import Trace, Usage
from waza.runs.tasks import statistics_of


def a_suite(statuses, cost=None, tags=(), golden=(), name="run"):
    """A run with a trial a task; `statuses` has a letter for each: p, f or e."""
    words = {"p": "passed", "f": "failed", "e": "error"}
    results = []
    for number, letter in enumerate(statuses):
        usage = None if cost is None else Usage(cost_usd=cost)
        grade = a_grade(float(letter == "p"), {"e": "error"}.get(letter, words[letter]))
        trace = Trace(input="x", output="y", usage=usage)
        results.append(a_result(f"t{number}", 1, words[letter], [grade], trace=trace))
    tasks = [{"id": f"t{n}", "tags": list(tags), "golden": n in golden} for n in range(len(statuses))]
    return a_run(results, tasks=tasks, config={"trials_per_task": 1}, id=name)


def the_gate(run, against=None, **needs):
    found = gates(run, Needs(**needs), against)
    return found[0] if len(found) == 1 else found


@pytest.mark.parametrize(
    ("statuses", "sure", "status"),
    [
        ("p" * 10, False, "passed"),
        ("p" * 10, True, "error"),
        ("p" * 60, True, "passed"),
        ("p" * 8 + "ff", False, "error"),
        ("p" * 20 + "f" * 20, False, "failed"),
        ("p" * 9 + "e", False, "passed"),
        ("p" * 8 + "ee", False, "error"),
        ("", False, "error"),
    ],
)
def test_a_pass_rate_of_90_per_cent(statuses, sure, status):
    assert the_gate(a_suite(statuses), pass_rate=0.9, sure=sure).status == status


def test_exactly_reached_is_reached():
    assert the_gate(a_suite("p" * 7 + "fff"), pass_rate=0.7).status == "passed"


def test_a_tag_has_a_gate_of_its_own_and_one_that_no_task_has_is_undecided():
    run = a_suite("p" * 30 + "f" * 30, tags=["security"])
    assert the_gate(run, tag_pass_rates={"security": 0.9}).status == "failed"
    assert the_gate(run, tag_pass_rates={"other": 0.9}).status == "error"
    assert the_gate(run, tag_scores={"security": 0.4}).status == "passed"


@pytest.mark.parametrize(("rule", "passed"), [("any", 1), ("all", 0), (0.6, 1)])
def test_a_single_task_counts_as_one_by_its_pass_rule_not_by_its_trials(rule, passed):
    results = [a_result("t", number, status) for number, status in enumerate(("passed", "passed", "failed"), 1)]
    config = {"trials_per_task": 3, "pass_rule": rule}
    run = a_run(results, tasks=[{"id": "t", "tags": ["only"]}], config=config)
    rates = [the_gate(run, pass_rate=1.0), the_gate(run, tag_pass_rates={"only": 1.0})]
    assert [gate.value for gate in rates] == [passed, passed]
    (part,) = statistics_of(run).by_tag
    assert (part.tasks, part.passed, part.pass_rate) == (1, passed, passed)


def test_golden_tasks_must_pass_and_none_may_disappear():
    assert the_gate(a_suite("pf", golden=[0])).status == "passed"
    missed = the_gate(a_suite("pf", golden=[1]))
    assert (missed.status, missed.tasks) == ("failed", ["t1"])
    assert the_gate(a_suite("pe", golden=[1])).status == "error"
    assert gates(a_suite("pf", golden=[1]), Needs(golden=False)) == []
    found = gates(a_suite("p"), Needs(), (a_suite("pp", golden=[1]), a_suite("p")))
    assert {gate.name: gate.status for gate in found}["golden tasks of the baseline"] == "failed"


def test_cost_that_was_not_recorded_is_undecided():
    assert the_gate(a_suite("pp"), cost_usd=1).status == "error"
    assert the_gate(a_suite("pp", cost=0.4), cost_usd=1).status == "passed"
    assert the_gate(a_suite("pp", cost=0.6), cost_usd=1).status == "failed"
    some = a_suite("ppp", cost=0.4)
    bare = replace(some.results[2], trace=Trace(input="x", output="y"))
    some = replace(some, results=[*some.results[:2], bare])
    gate = the_gate(some, cost_usd=1)
    assert (gate.status, gate.reason) == ("error", "1 of 3 trials have a cost that was not recorded")
    assert the_gate(some, cost_usd=0.7).status == "failed"
    judged = replace(a_grade(), details={"judge": {"type": "openai", "cost_usd": 0.5}})
    cheap = a_suite("pp", cost=0.1)
    dear = replace(cheap, results=[replace(result, grades=[judged]) for result in cheap.results])
    assert the_gate(dear, cost_usd=1).status == "failed"
    grown = gates(some, Needs(cost_growth=0.2), (a_suite("ppp", cost=0.4), some))[-1]
    assert (grown.status, grown.tasks) == ("error", ["t2"])


def partial(run, lacking=("x",), **more):
    others = [{"id": task, "tags": [], "golden": True} for task in lacking]
    return replace(run, spec=run.spec | {"not_selected": {"tasks": others, "trigger_tests": False}}, **more)


def noting(**more):
    run = a_suite("pp")
    return replace(run, spec=run.spec | more)


HALF = replace(a_suite("pp"), results=a_suite("p").results)


@pytest.mark.parametrize(
    ("run", "fact", "tasks"),
    [
        (partial(a_suite("pp")), "1 of 3 tasks were not selected", ["x"]),
        (partial(a_suite("pp"), ()), "", []),
        (noting(given={"names": ["t*"]}), "only some tasks were selected (--task t*)", []),
        (replace(HALF, complete=False), "1 trial without a result: the run ended early", ["t1"]),
        (HALF, "1 trial without a result", ["t1"]),
        (replace(a_suite("pp"), complete=False), "the run did not come to its end", []),
        (noting(triggers={"prompts": [{"id": "q", "prompt": "x"}]}), "1 trial of trigger tests without", ["q"]),
    ],
)  # fmt: skip
def test_a_partial_run_is_undecided_and_says_what_is_missing(run, fact, tasks):
    found = gates(run, Needs(pass_rate=0.5))
    gaps = [(gate.reason, gate.tasks) for gate in found if gate.name == "whole suite"]
    assert [(reason.startswith(fact), missing) for reason, missing in gaps] == ([(True, tasks)] if fact else [])
    assert exit_code(found) == (3 if fact else 0)
    assert exit_code(gates(run, Needs(pass_rate=0.9), allow_partial=True)) == 0
    against = gates(run, Needs(pass_rate=0.9, on_removed="fail"), (a_suite("pp"), run), allow_partial=True)
    assert exit_code(against) == 0
    told = [gate for gate in gates(a_suite("pp"), Needs(), (run, a_suite("pp"))) if gate.name == "whole baseline"]
    assert [(gate.status, gate.tasks) for gate in told] == ([("passed", tasks)] if fact else [])


def test_what_a_partial_run_shows_for_certain_is_missed_all_the_same():
    assert exit_code(gates(partial(a_suite("pf", golden=[1])), Needs())) == 1
    assert exit_code(gates(partial(a_suite("ff"), ["x", "y", "z"]), Needs(pass_rate=0.5))) == 3
    assert exit_code(gates(partial(a_suite("f" * 40)), Needs(pass_rate=0.5))) == 1
    assert gates(partial(a_suite("pp")), Needs(golden=False)) == []


def test_trigger_accuracy_without_trigger_tests_is_undecided():
    assert the_gate(a_suite("pp"), trigger_accuracy=0.9).status == "error"


def statuses(before, after, **needs):
    one, other = a_suite(before, cost=0.1), a_suite(after, cost=needs.pop("cost", 0.1))
    return {gate.name: gate.status for gate in gates(other, Needs(**needs), (one, other))}


@pytest.mark.parametrize(
    ("before", "after", "drop", "status"),
    [
        ("p" * 20, "p" * 20, 0.0, "passed"),
        ("p" * 20, "p" * 19 + "f", 0.0, "passed"),
        ("p" * 20, "p" * 17 + "fff", 0.0, "error"),
        ("p" * 20, "p" * 17 + "fff", 0.15, "passed"),
        ("p" * 20, "p" * 15 + "f" * 5, 0.0, "failed"),
        ("p" * 20, "p" * 19 + "f", 0.05, "passed"),
        ("p" * 20, "p" * 10 + "f" * 10, 0.0, "failed"),
        ("p" * 20, "p" * 10 + "f" * 10, 0.5, "passed"),
        ("f" * 20, "p" * 20, 0.0, "passed"),
        ("p" * 20, "p" * 11 + "e" * 9, 0.0, "error"),
    ],
)
def test_against_a_baseline_a_drop_is_missed_where_it_is_shown(before, after, drop, status):
    assert statuses(before, after, drop=drop)["pass rate against the baseline"] == status


def the_drop(before, after, **needs):
    found = gates(a_suite(after), Needs(**needs), (a_suite(before), a_suite(after)))
    return next(gate for gate in found if gate.name == "pass rate against the baseline")


def test_a_gate_that_is_met_says_how_often_a_drop_would_have_been_found():
    many = the_drop("p" * 200, "p" * 198 + "ff")
    assert many.status == "passed" and many.power > 0.9 and many.trials_needed is None
    few = the_drop("p" * 10 + "f" * 5, "p" * 10 + "f" * 5)
    assert few.status == "passed" and few.power < 0.5 and few.trials_needed > 1
    assert the_drop("p" * 20, "p" * 15 + "f" * 5).power is None


def test_the_margin_and_the_tasks_in_question_can_be_chosen():
    before, after = "p" * 20, "p" * 17 + "fff"
    assert the_drop(before, after).status == "error"
    assert the_drop(before, after, margin=0.2).status == "passed"
    before, after = several([(5, 5)] * 20), several([(5, 5)] * 17 + [(0, 5)] * 3)
    codes = [exit_code(gates(after, Needs(these_tasks=these), (before, after))) for these in (True, False)]
    assert codes == [1, 3]


def several(counts):
    """A run with several trials a task: how many passed of how many."""
    results = [
        a_result(f"t{task}", trial + 1, "passed" if trial < passed else "failed", [a_grade(float(trial < passed))])
        for task, (passed, trials) in enumerate(counts)
        for trial in range(trials)
    ]
    return a_run(results, tasks=[f"t{task}" for task in range(len(counts))], config={"trials_per_task": counts[0][1]})


def test_a_drop_that_undecided_trials_could_undo_is_undecided():
    assert the_drop("p" * 20, "p" * 14 + "f" * 5 + "e").status == "failed"
    assert the_drop("p" * 14 + "e" * 6, "p" * 9 + "f" * 5 + "p" * 6).status == "error"
    before, after = "p" * 20 + "f" * 6, "p" * 15 + "f" * 5 + "e" * 6
    assert (the_drop(before, after).status, the_drop(before, after).tasks[0]) == ("error", "t20")


def test_pass_rate_and_score_share_the_five_per_cent_only_where_they_differ():
    before, after = several([(5, 5)] * 20), several([(5, 5)] * 17 + [(0, 5)] * 3)
    assert {gate.correction for gate in gates(after, Needs(), (before, after))} == {""}
    halves = [replace(result, grades=[a_grade(0.5)]) for result in after.results]
    other = replace(after, results=halves)
    assert {gate.correction for gate in gates(other, Needs(), (before, other))} == {"Holm over 2 comparisons"}


def test_cost_may_grow_by_so_much():
    name = "cost a trial against the baseline"
    assert statuses("p" * 8, "p" * 8, cost=0.11, cost_growth=0.2)[name] == "passed"
    assert statuses("p" * 8, "p" * 8, cost=0.13, cost_growth=0.2)[name] == "failed"
    assert statuses("p" * 3, "p" * 3, cost=0.13, cost_growth=0.2)[name] == "error"


@pytest.mark.parametrize(("policy", "expected"), [("allow", None), ("warn", "passed"), ("fail", "failed")])
def test_new_and_removed_tasks(policy, expected):
    assert statuses("pp", "ppp", on_new=policy).get("new tasks") == expected
    assert statuses("ppp", "pp", on_removed=policy).get("removed tasks") == expected


def test_the_worst_gate_decides_the_exit_code():
    assert exit_code(gates(a_suite("p"), Needs(pass_rate=0.5))) == 0
    assert exit_code(gates(a_suite("p"), Needs(pass_rate=0.5, cost_usd=1))) == 3
    assert exit_code(gates(a_suite("p", golden=[0]), Needs(cost_usd=1, duration_s=0))) == 1


def test_durations_are_the_agents_and_not_the_graders():
    def timed(agent_ms, whole_ms):
        trace = Trace(input="x", output="y", duration_ms=agent_ms)
        results = [replace(a_result(f"t{number}", trace=trace), duration_ms=whole_ms) for number in range(8)]
        return a_run(results, tasks=[f"t{number}" for number in range(8)], id=f"{agent_ms}-{whole_ms}")

    name = "duration a trial against the baseline"
    for before, after, status in (
        (timed(100, 5000), timed(100, 110), "passed"),
        (timed(100, 5000), timed(110, 110), "passed"),
        (timed(100, 100), timed(100, 5000), "passed"),
        (timed(100, 5000), timed(200, 200), "failed"),
    ):
        found = gates(after, Needs(duration_growth=0.2), (before, after))
        assert {gate.name: gate.status for gate in found}[name] == status
    assert the_gate(timed(100, 5000), duration_s=1).status == "passed"
