"""`waza run --baseline`: both arms in turn, a clean control arm, resume, and what it says about the skill."""

import json
from pathlib import Path

import html5lib
import pytest

from waza.cli import run_command
from waza.cli._run_options import impact_code
from waza.errors import UsageError
from waza.runner.baseline import with_baseline
from waza.runner.request import request_for
from waza.runner.run import execute
from waza.runner.suite import Listeners, Stop
from waza.runs.impact import is_one_sided, stored_impact
from waza.runs.impact_records import CONTROL, UNCLEAN
from waza.runs.store import list_runs, open_run, read_run
from waza.suites.load import load_spec
from waza.suites.suite import grader_as_data

SKILL = '---\nname: greeter\ndescription: "Greets. USE FOR: say hello. DO NOT USE FOR: insults."\n---\n# Greeter\n'
HELPS = {
    "output": "Hello",
    "skill_invocations": ["greeter"],
    "without_skill": {"output": "hm", "skill_invocations": []},
}


def suite(folder, scripts, trials=2, **more):
    """Write a suite with a skill; `scripts` are what the mock does, by task."""
    (folder / "skills/greeter").mkdir(parents=True, exist_ok=True)
    (folder / "skills/greeter/SKILL.md").write_text(SKILL)
    (folder / ".waza.yaml").write_text("defaults: {engine: mock}\n")
    data = {
        "name": "greet",
        "skill": "greeter",
        "config": {"executor": "mock", "trials_per_task": trials},
        "graders": [{"type": "text", "name": "hi", "config": {"contains": ["Hello"]}}],
        "tasks": [{"id": name, "prompt": "say hello", "mock": script} for name, script in scripts.items()],
    } | more
    (folder / "eval.yaml").write_text(json.dumps(data))
    return folder / "eval.yaml"


def run(file, **how):
    listeners = how.pop("listeners", Listeners())
    return execute(with_baseline(request_for(load_spec(file), **how)), listeners)


def test_both_arms_are_run_in_turn_and_stored_as_two_runs_in_one_folder(tmp_path):
    started = []
    file = suite(tmp_path, {"a": HELPS, "b": HELPS})
    made = run(file, listeners=Listeners(on_start=lambda trial: started.append(trial.task.id)))
    assert [name.endswith("without greeter") for name in started] == [True, False, False, True] * 2
    control = open_run(Path(made.folder) / CONTROL)
    assert [result.status for result in made.results] == ["passed"] * 4
    assert [result.status for result in control.results] == ["failed"] * 4
    assert made.complete
    assert control.complete
    assert len(list_runs(tmp_path / "runs")) == 1


def test_what_the_skill_does_is_told_in_all_and_by_task(tmp_path):
    silent = {"output": "Hello", "without_skill": {"output": "Hello"}}
    mixed = {
        "trials": [{"output": "Hello", "skill_invocations": ["greeter"]}, {"output": "hm"}],
        "usage": {"input_tokens": 90, "output_tokens": 10, "cost_usd": 0.02},
        "without_skill": {
            "output": "hm",
            "skill_invocations": [],
            "usage": {"input_tokens": 40, "output_tokens": 10, "cost_usd": 0.01},
        },
    }
    found = stored_impact(run(suite(tmp_path, {"helps": HELPS, "mixed": mixed, "silent": silent}, trials=4)))
    assert found.lift.value == pytest.approx(0.5)
    assert found.activation.value == pytest.approx(0.5)
    assert found.benefit.value == pytest.approx(1.0)
    assert found.silent.difference == 0
    by_task = {task.id: task for task in found.tasks}
    assert by_task["mixed"].difference.value == 0.5
    assert by_task["mixed"].triggered == 2
    assert by_task["mixed"].tokens.difference == 50
    assert by_task["mixed"].cost_usd.difference == pytest.approx(0.01)
    assert by_task["helps"].tokens is None
    assert found.tokens.tasks == 1
    assert found.score.difference == pytest.approx(0.5)


def test_a_control_arm_that_has_the_skill_is_an_error_and_never_a_verdict(tmp_path):
    listed = {"output": "Hello", "available_skills": ["greeter"]}
    used = {"output": "Hello", "skill_invocations": ["my-plugin:greeter"]}
    made = run(suite(tmp_path, {"listed": listed, "used": used, "clean": HELPS}, trials=1))
    control = read_run(Path(made.folder) / CONTROL)
    told = {result.task_id: (result.status, result.reason) for result in control.results}
    assert told["listed"] == ("error", f"{UNCLEAN}: skill 'greeter' is in the session's list of skills")
    assert told["used"] == ("error", f"{UNCLEAN}: skill 'greeter' was used")
    assert told["clean"][0] == "failed"
    found = stored_impact(made)
    assert (found.unclean, found.undecided_without) == (2, 2)
    assert [task.difference is None for task in found.tasks] == [True, True, False]


def test_an_agent_that_says_nothing_about_skills_cannot_be_a_control(tmp_path):
    (tmp_path / "agent.py").write_text("def answer(prompt, context):\n    return 'Hello'\n")
    config = {"executor": "python", "agent": "agent:answer"}
    made = run(suite(tmp_path, {"a": None}, config=config))
    [result] = read_run(Path(made.folder) / CONTROL).results
    assert result.status == "error"
    assert "neither which skills it has nor which it used" in result.reason


def test_a_python_agent_is_told_where_the_skill_is_in_one_arm_only(tmp_path):
    (tmp_path / "agent2.py").write_text(
        "def answer(prompt, context):\n"
        "    there = context.skill_folder is not None\n"
        "    return {'output': 'Hello' if there else 'hm', 'available_skills': ['greeter'] if there else []}\n"
    )
    made = run(suite(tmp_path, {"a": None}, config={"executor": "python", "agent": "agent2:answer"}))
    found = stored_impact(made)
    assert found.lift.value == 1
    assert found.activation is None
    assert found.notes == ["the use of skills was not recorded: activation and benefit cannot be separated"]


def test_a_command_agent_finds_the_skill_in_one_arm_only(tmp_path):
    (tmp_path / "agent.sh").write_text(
        '#!/bin/sh\nif [ -f "$WAZA_SKILLS_DIR/greeter/SKILL.md" ]; then\n'
        '  echo \'{"output": "Hello", "available_skills": ["greeter"], "skill_invocations": [{"name": "greeter"}]}\'\n'
        'else\n  echo \'{"output": "hm", "available_skills": []}\'\nfi\n'
    )
    (tmp_path / "agent.sh").chmod(0o755)
    config = {"executor": "command", "command": ["./agent.sh"], "output_format": "json"}
    found = stored_impact(run(suite(tmp_path, {"a": None}, config=config)))
    assert (found.lift.value, found.activation.value, found.benefit.value) == (1, 1, 1)


def test_an_arm_that_should_have_the_skill_and_has_not_is_an_error(tmp_path):
    missing = {"output": "Hello", "available_skills": ["other"], "without_skill": {"available_skills": []}}
    [result] = run(suite(tmp_path, {"a": missing}, trials=1)).results
    assert result.status == "error"
    assert "did not have it" in result.reason


def test_graders_of_the_use_of_skills_do_not_count_as_a_benefit(tmp_path):
    tasks = [
        {"id": "both", "prompt": "x", "expected": {"should_trigger": True}, "mock": {**HELPS, "without_skill": {
            "output": "Hello", "skill_invocations": []}}},
        {"id": "use", "prompt": "x", "expected": {"graders": [{"type": "skill_invocation", "config": {
            "required_skills": ["greeter"], "mode": "any_order"}}]}, "mock": HELPS},
    ]  # fmt: skip
    tasks[0]["graders"] = [{"type": "text", "config": {"contains": ["Hello"]}}]
    file = suite(tmp_path, {}, graders=[], tasks=tasks)
    found = stored_impact(run(file))
    assert [(task.id, task.difference.value) for task in found.tasks] == [("both", 0)]
    assert found.not_compared == ["use"]


def test_which_graders_only_the_skill_can_pass(tmp_path):
    graders = [
        ({"type": "text", "config": {"contains": ["skill", "should_trigger", "required_skills"]}}, False),
        ({"type": "skill_invocation", "config": {"required_skills": ["a"], "mode": "any_order"}}, True),
        ({"type": "tool_constraint", "config": {"expect_tools": [{"tool": "skill", "skill_pattern": "a"}]}}, True),
        ({"type": "tool_calls", "config": {"required_tools": ["bash"]}}, False),
        ({"type": "json_schema", "config": {"schema": {"properties": {"skill": {"type": "string"}}}}}, False),
        ({"type": "trigger", "config": {"skill_path": "skills/greeter", "mode": "positive"}}, False),
    ]
    file = suite(tmp_path, {"a": HELPS}, graders=[entry for entry, _ in graders])
    spec = load_spec(file)
    found = [is_one_sided(grader_as_data(grader), spec.grader_facts()) for grader in spec.graders["a"]]
    assert found == [expected for _, expected in graders]


def test_a_checkpoint_on_the_use_of_a_skill_does_not_count_either(tmp_path):
    named = {"type": "skill_triggered", "name": "loaded", "config": {"skill": "greeter"}}
    checkpoint = {"after_turn": 1, "expected": {"should_trigger": True}, "graders": [named]}
    task = {"id": "a", "prompt": "x", "inputs": {"follow_up_prompts": ["y"]}, "checkpoints": [checkpoint]}
    file = suite(tmp_path, {}, tasks=[task])
    spec = load_spec(file)
    found = [is_one_sided(grader_as_data(grader), spec.grader_facts()) for grader in spec.graders["a"]]
    assert found == [False, True, True]


def test_a_stopped_run_goes_on_with_what_is_missing_in_each_arm(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    file = suite(tmp_path, {"a": HELPS, "b": HELPS}, trials=2)
    stop, seen = Stop(), []

    def on_result(result):
        seen.append(result)
        if len(seen) == 3:
            stop("enough")

    made = run(file, listeners=Listeners(on_result=on_result, stop=stop))
    before = {result.started_at for result in made.results}
    assert (len(made.results), len(open_run(Path(made.folder) / CONTROL).results)) == (2, 1)
    assert not made.complete
    assert run_command(["run", "--resume"]) == 0
    assert "8 of 8" in capsys.readouterr().err
    whole = read_run(made.folder)
    assert whole.complete
    assert before <= {result.started_at for result in whole.results}
    assert stored_impact(whole).lift.value == 1
    assert run_command(["run", "--resume"]) == 0
    assert "is complete; nothing was run" in capsys.readouterr().err


def test_a_run_whose_control_arm_was_never_begun_gets_one(tmp_path, monkeypatch):
    import shutil

    monkeypatch.chdir(tmp_path)
    made = run(suite(tmp_path, {"a": HELPS}))
    shutil.rmtree(Path(made.folder) / CONTROL)
    assert stored_impact(made) is None
    assert run_command(["run", "--resume", "-q"]) == 0
    assert stored_impact(read_run(made.folder)).lift.value == 1


def test_a_changed_skill_is_not_mixed_with_what_was_run_before(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run(suite(tmp_path, {"a": HELPS}))
    (tmp_path / "skills/greeter/SKILL.md").write_text(SKILL + "More.\n")
    assert run_command(["run", "--resume"]) == 2
    assert "config.skill_content" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("scripts", "needs", "code"),
    [
        ({f"t{n}": HELPS for n in range(8)}, "improvement", 0),
        ({f"t{n}": HELPS for n in range(8)}, "no-regression", 0),
        ({"t": HELPS}, "no-regression", 0),
        ({"t": HELPS}, "improvement", 3),
        ({"t": HELPS}, "pass", 0),
        ({f"t{n}": {"output": "hm", "without_skill": {"output": "Hello"}} for n in range(8)}, "no-regression", 1),
        ({f"t{n}": {"output": "hm", "without_skill": {"output": "Hello"}} for n in range(8)}, "improvement", 1),
        ({f"t{n}": {**HELPS, "available_skills": ["greeter"]} for n in range(8)}, "no-regression", 3),
    ],
)
def test_the_exit_code_says_what_was_shown(tmp_path, monkeypatch, scripts, needs, code):
    monkeypatch.chdir(tmp_path)
    suite(tmp_path, scripts, trials=1)
    assert run_command(["run", "--baseline", "--needs", needs, "-q"]) == code


def test_a_suite_may_ask_for_its_baseline_itself(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    suite(tmp_path, {"a": HELPS}, baseline=True)
    assert run_command(["run"]) == 0
    assert "With and without greeter" in capsys.readouterr().out
    assert run_command(["run", "--no-baseline"]) == 0
    assert "With and without greeter" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"skill": ""}, "the suite names none"),
        ({"skill": "absent"}, "skill 'absent' was not found"),
        ({"config": {"executor": "replay", "replay": "runs"}}, "gives its agent no skill"),
    ],
)
def test_a_baseline_that_would_compare_nothing_is_refused(tmp_path, change, reason):
    file = suite(tmp_path, {"a": HELPS}, **change)
    with pytest.raises(UsageError, match=reason):
        with_baseline(request_for(load_spec(file)))


def test_options_that_do_not_go_together_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    suite(tmp_path, {"a": HELPS})
    assert run_command(["run", "--needs", "improvement"]) == 2
    assert "--needs needs --baseline" in capsys.readouterr().err
    assert run_command(["run", "--baseline", "--skip-graders"]) == 2
    assert run_command(["run", "-q"]) == 0
    assert run_command(["run", "--baseline", "--resume"]) == 2
    assert "was started without --baseline" in capsys.readouterr().err


def test_a_judge_compares_both_arms_where_a_grader_asks_for_it(tmp_path):
    pairwise = {"type": "prompt", "name": "better", "config": {"prompt": "Which is kinder?", "mode": "pairwise"}}
    says = [{"tool_calls": [{"name": "set_pairwise_winner", "arguments": {"winner": letter, "magnitude": "much-better",
             "reasoning": "kinder"}}]} for letter in ("B", "A")]  # fmt: skip
    graders = [{"type": "text", "name": "hi", "config": {"contains": ["Hello"]}}, pairwise]
    config = {"executor": "mock", "judge": {"type": "scripted", "replies": says}}
    started = []
    file = suite(tmp_path, {"a": HELPS}, graders=graders, config=config)
    made = run(file, listeners=Listeners(on_start=lambda trial: started.append(trial.task.id)))
    [result] = made.results
    assert result.trace.baseline_output == "hm"
    found = stored_impact(made)
    assert [(rate.wins, rate.losses, rate.undecided) for rate in found.pairwise] == [(1, 0, 0)]
    assert found.tasks[0].pairwise["winner"] == "candidate"
    assert [grade.name for grade in read_run(Path(made.folder) / CONTROL).results[0].grades] == ["hi"]
    assert started == ["a without greeter", "a"]


@pytest.mark.parametrize(
    ("letters", "lift", "counts", "code"),
    [(("B", "A"), 1.0, (2, 0, 0), 0), (("A", "B"), -1.0, (0, 0, 2), 0), (("tie", "tie"), 0.0, (0, 2, 0), 0),
     (("A", "A"), None, (0, 0, 0), 3)],
)  # fmt: skip
def test_a_suite_whose_only_grader_compares_both_arms_is_decided_by_the_preference(
    letters, lift, counts, code, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    pairwise = {"type": "prompt", "name": "better", "config": {"prompt": "Which is kinder?", "mode": "pairwise"}}
    says = [{"tool_calls": [{"name": "set_pairwise_winner", "arguments": {"winner": letter, "magnitude": "much-better",
             "reasoning": "kinder"}}]} for letter in letters * 2]  # fmt: skip
    config = {"executor": "mock", "judge": {"type": "scripted", "replies": says}, "workers": 1}
    suite(tmp_path, {"a": HELPS, "b": HELPS}, graders=[pairwise], config=config)
    assert run_command(["run", "--baseline", "-q"]) == code
    made = read_run(list_runs(tmp_path / "runs")[0].folder)
    control = read_run(Path(made.folder) / CONTROL)
    assert [(one.status, one.grades, one.trace.output) for one in control.results] == [("skipped", [], "hm")] * 2
    found = stored_impact(made)
    assert (found.lift.value if found.lift else None) == lift
    [rate] = found.pairwise
    assert (rate.wins, rate.ties, rate.losses) == counts and found.not_compared == []
    assert "have only graders that compare both arms" in found.notes[-1]
    assert run_command(["run", "--baseline", "-q", "--resume"]) == code
    assert len(read_run(Path(made.folder) / CONTROL).results) == 2


def test_results_json_and_the_page_show_the_impact(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    suite(tmp_path, {"<b>a</b>": HELPS, "b": HELPS})
    assert run_command(["run", "--baseline", "-q", "-o", "out.json", "--reporter", "html:page.html"]) == 0
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["skill_impact"]["word"] == "too little evidence"
    assert found["skill_impact"]["lift"]["value"] == 1
    assert found["skill_impact"]["activation"]["value"] == 1
    assert found["tasks"][0]["skill_impact"] | {"interval": 0, "score": 0, "duration_ms": 0} == {
        "pass_rate_with_skills": 1.0,
        "pass_rate_baseline": 0.0,
        "delta": 1.0,
        "percent_change": None,
        "interval": 0,
        "triggered": 2,
        "runs_with_skills": 2,
        "runs_baseline": 2,
        "score": 0,
        "duration_ms": 0,
    }
    page = (tmp_path / "page.html").read_text()
    html5lib.HTMLParser(strict=True).parse(page)
    assert "<h2>With and without greeter</h2>" in page
    assert "<b>a</b>" not in page


def test_a_service_that_breaks_down_in_the_middle_hits_both_arms_alike(tmp_path):
    """One arm after the other would show a lift of a whole point here, and there is none."""
    (tmp_path / "drifting.py").write_text(
        "calls = []\n"
        "def answer(prompt, context):\n"
        "    calls.append(prompt)\n"
        "    skills = ['greeter'] if context.skill_folder else []\n"
        "    return {'output': 'Hello' if len(calls) <= 16 else 'out of order', 'available_skills': skills}\n"
    )
    tasks = [{"id": f"t{number}", "prompt": "x"} for number in range(8)]
    config = {"executor": "python", "agent": "drifting:answer", "trials_per_task": 2}
    found = stored_impact(run(suite(tmp_path, {}, config=config, tasks=tasks)))
    assert found.lift.value == 0
    assert found.tasks[0].passed_with == found.tasks[0].passed_without == 2
    assert found.tasks[7].passed_with == found.tasks[7].passed_without == 0


def test_several_workers_share_one_limit_and_a_judge_finds_the_other_arms_output(tmp_path):
    pairwise = {"type": "prompt", "name": "better", "config": {"prompt": "Which is kinder?", "mode": "pairwise"}}
    calls = [{"name": "set_pairwise_winner", "arguments": {"winner": "tie", "magnitude": "equal", "reasoning": "x"}}]
    graders = [{"type": "text", "name": "hi", "config": {"contains": ["Hello"]}}, pairwise]
    judge = {"type": "scripted", "replies": [{"when": "kinder", "tool_calls": calls}]}
    config = {"executor": "mock", "judge": judge, "trials_per_task": 4}
    slow = {f"t{number}": {**HELPS, "delay_s": 0.01} for number in range(4)}
    running, most = [], []

    def on_start(trial):
        running.append(trial)
        most.append(len(running))

    listeners = Listeners(on_start=on_start, on_done=lambda result: running.pop())
    made = run(suite(tmp_path, slow, graders=graders, config=config), workers=3, listeners=listeners)
    assert max(most) == 3
    assert {result.trace.baseline_output for result in made.results} == {"hm"}
    assert stored_impact(made).pairwise[0].ties == 16


def test_a_run_graded_again_is_no_baseline_run_any_more_and_nothing_breaks(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    made = run(suite(tmp_path, {"a": HELPS}))
    assert run_command(["grade", made.id]) == 0
    assert "With and without" not in capsys.readouterr().out
    assert run_command(["compare", f"runs/{made.id}/control", f"runs/{made.id}"]) in (0, 1, 3)
    assert run_command(["show", made.id]) == 0
    assert "With and without greeter" in capsys.readouterr().out


def test_errors_of_the_control_arm_can_be_run_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = {**HELPS, "without_skill": {"error": "no quota"}}
    made = run(suite(tmp_path, {"a": script}))
    assert stored_impact(made).undecided_without == 2
    suite(tmp_path, {"a": HELPS})
    assert run_command(["run", "--resume", "-q"]) == 2
    assert run_command(["run", "--resume", "--rerun-changed", "-q"]) == 0
    assert stored_impact(read_run(made.folder)).lift.value == 1


def test_a_run_cut_short_by_its_budget_decides_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    costly = {**HELPS, "usage": {"cost_usd": 1.0}}
    suite(tmp_path, {f"t{number}": costly for number in range(8)}, trials=1)
    assert run_command(["run", "--baseline", "--max-cost", "4", "-q"]) == 3
    assert "continue with:" in capsys.readouterr().err


@pytest.mark.parametrize("needs", ["no-regression", "improvement"])
def test_a_control_arm_that_lacks_a_trial_or_cannot_be_read_decides_nothing(tmp_path, monkeypatch, capsys, needs):
    monkeypatch.chdir(tmp_path)
    costly = {**HELPS, "usage": {"cost_usd": 1.0}}
    suite(tmp_path, {f"t{number}": costly for number in range(8)}, trials=1, config={"workers": 1})
    assert run_command(["run", "--baseline", "--needs", needs, "--max-cost", "14.5", "-q"]) == 3
    (made,) = (read_run(one.folder) for one in list_runs(tmp_path / "runs"))
    assert made.complete and not open_run(Path(made.folder) / CONTROL).complete
    (Path(made.folder) / CONTROL / "run.json").write_text("{")
    assert impact_code(made, 0, needs) == 3
    assert "the arm without the skill cannot be read" in capsys.readouterr().err
    assert impact_code(made, 0, "pass") == 0


AUTO = {"executor": "mock", "trials_per_task": "auto", "pass_rule": 0.5, "max_trials": 6, "workers": 1}
FLAKY = {"output": "Hello", "without_skill": {"trials": [{"output": "Hello"}, {"output": "hm"}]}}


def trials_of(folder):
    """Return the numbers of the trials of each task, in both arms."""
    found = []
    for where in (Path(folder), Path(folder) / CONTROL):
        arm = {}
        for result in open_run(where).results:
            arm.setdefault(result.task_id, []).append(result.trial)
        found.append({task: sorted(numbers) for task, numbers in arm.items()})
    return found


def test_auto_tries_a_task_until_both_arms_are_settled(tmp_path):
    config = AUTO | {"pass_rule": "all"}
    both_fail = {"output": "hm", "without_skill": {"output": "hm"}}
    made = run(suite(tmp_path, {"settled": both_fail, "open": HELPS}, config=config))
    skill, control = trials_of(made.folder)
    assert skill == control == {"settled": [1], "open": [1, 2, 3, 4, 5, 6]}
    assert made.complete and open_run(Path(made.folder) / CONTROL).complete
    assert stored_impact(made).tasks[0].difference.value == 0


def test_auto_has_one_budget_of_pairs(tmp_path):
    made = run(suite(tmp_path, {"a": FLAKY, "b": FLAKY}, config=AUTO | {"trials_budget": 5}))
    assert [sum(map(len, arm.values())) for arm in trials_of(made.folder)] == [5, 5]
    assert made.complete and open_run(Path(made.folder) / CONTROL).complete


def test_a_stopped_auto_run_completes_its_pairs_when_it_is_resumed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = suite(tmp_path, {"a": FLAKY, "b": FLAKY}, config=AUTO)
    stop, results = Stop(), []

    def on_result(result):
        results.append(result)
        if len(results) == 5:
            stop("enough")

    made = run(file, listeners=Listeners(on_result=on_result, stop=stop))
    skill, control = trials_of(made.folder)
    assert not made.complete and skill != control
    assert run_command(["run", "--resume", "-q"]) in (0, 1, 3)
    skill, control = trials_of(made.folder)
    assert skill == control == {"a": [1, 2, 3, 4, 5, 6], "b": [1, 2, 3, 4, 5, 6]}
    assert read_run(made.folder).complete


def test_fail_fast_stops_at_a_failure_with_the_skill_and_not_at_one_without(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fails = {"output": "hm", "without_skill": {"output": "hm"}}
    suite(tmp_path, {"helps": HELPS, "fails": fails, "later": HELPS}, trials=1, config={"workers": 1})
    assert run_command(["run", "--baseline", "--fail-fast"]) == 3
    assert "task 'fails' did not pass" in capsys.readouterr().err
    (made,) = list_runs(tmp_path / "runs")
    skill, _ = trials_of(made.folder)
    assert skill == {"helps": [1], "fails": [1]}


def test_max_cost_counts_both_arms(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    costly = {"usage": {"cost_usd": 1.0}, "output": "Hello"}
    task = costly | {"without_skill": costly}
    suite(tmp_path, {f"t{number}": task for number in range(4)}, trials=1, config={"workers": 1})
    assert run_command(["run", "--baseline", "--max-cost", "4"]) == 3
    assert "$4.0000 spent, the limit is $4.0000" in capsys.readouterr().err
    (made,) = list_runs(tmp_path / "runs")
    assert trials_of(made.folder) == [{"t0": [1], "t1": [1]}] * 2
    assert run_command(["run", "--resume", "--max-cost", "4"]) == 3
    assert trials_of(made.folder) == [{"t0": [1], "t1": [1]}] * 2
