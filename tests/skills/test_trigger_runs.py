"""`waza trigger` and `waza run` with trigger tests, on the mock engine: what is run, stored, shown and returned."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from trigger_suites import RULES, TESTS, stored, suite

import waza
from waza.cli import run_command
from waza.errors import SpecError
from waza.runner.request import request_for
from waza.runner.run import execute
from waza.runner.suite import Listeners, Stop
from waza.runs.store import list_runs, open_run
from waza.runs.summary import summarize
from waza.stats.intervals import exact_share
from waza.suites.load import load_spec


def test_trigger_tests_run_alone_and_keep_whole_counts(tmp_path, capsys):
    assert run_command(["trigger", str(suite(tmp_path)), "-o", str(tmp_path / "r.json")]) == 0
    told = json.loads((tmp_path / "r.json").read_text())
    metrics = told["trigger_metrics"]
    counts = [metrics[f"{kind}"] for kind in ("true_positives", "false_positives", "true_negatives", "false_negatives")]
    assert counts == [1, 1, 1, 1]
    assert metrics["weighted"] == {
        "true_positives": 1.0,
        "false_positives": 0.5,
        "true_negatives": 1.0,
        "false_negatives": 0.5,
    }
    assert metrics["accuracy"] == metrics["decided"]["accuracy"] == pytest.approx(2 / 3)
    assert (told["tasks"], told["metrics"]["trigger_accuracy"]["passed"]) == ([], True)
    shown = capsys.readouterr().out
    assert "all answers 0.67 0.67 0.67 0.67 1 0.5 1 0.5 0" in " ".join(shown.split())
    assert "used by wording: keyword 1 of 1 · generic 0 of 1" in shown
    assert "words of SKILL.md alone" in shown
    assert "task" not in shown.splitlines()[0]


def test_each_result_says_what_was_asked_and_what_came_of_it(tmp_path):
    run_command(["trigger", str(suite(tmp_path)), "-q", "--trials", "2", "-o", str(tmp_path / "r.json")])
    listed = json.loads((tmp_path / "r.json").read_text())["trigger_results"]
    assert len(listed) == 2 * (4 + 2)
    first = next(entry for entry in listed if entry["id"] == "trigger:should-1")
    about = ("skill", "prompt", "should_trigger", "did_trigger", "status", "confidence", "phrasing", "reason", "trial")
    assert [first[key] for key in about] == [
        *("explainer", "Explain this code", True, True, "right", "high", "keyword", "direct", 1),
    ]
    assert first["skill_invocations"] == [{"name": "explainer"}]
    assert [entry["control"] for entry in listed if "control" in entry] == ["explicit"] * 2 + ["unrelated"] * 2


def test_trigger_tests_run_with_the_suite_and_gate_it(tmp_path, capsys):
    assert run_command(["run", str(suite(tmp_path)), "-q"]) == 0
    run = stored(tmp_path)
    assert ([result.task_id for result in run.results], len(run.triggers), run.complete) == (["t"], 6, True)
    assert run_command(["run", str(suite(tmp_path, needs=0.9)), "-q"]) == 1
    assert "✗ trigger_accuracy 0.67 (needs 0.9)" in capsys.readouterr().out
    assert run_command(["run", str(suite(tmp_path, needs=None)), "-q"]) == 0, "without a gate they only tell"
    assert run_command(["trigger", str(tmp_path), "-q"]) == 1, "alone and without a gate every answer must be right"


def test_a_stored_run_shows_and_gates_its_trigger_tests(tmp_path, capsys):
    run_command(["run", str(suite(tmp_path)), "-q"])
    folder = list_runs(tmp_path / "runs")[0].folder
    assert list_runs(tmp_path / "runs")[0].summary.triggers == summarize(open_run(folder)).triggers
    capsys.readouterr()
    run_command(["show", folder])
    shown = capsys.readouterr().out
    assert "Trigger tests · explainer · 4 prompts" in shown
    assert "✗  should-2      What goes on here?" in shown
    run_command(["show", folder, "--task", "trigger:should-2"])
    assert "What goes on here?" in capsys.readouterr().out
    assert run_command(["gate", folder, "--min-trigger-accuracy", "0.6"]) == 0
    assert run_command(["gate", folder, "--min-trigger-accuracy", "0.9"]) == 1


def test_a_gate_on_trigger_accuracy_tells_a_true_interval_and_is_sure_only_of_what_lies_in_it(tmp_path, capsys):
    run_command(["run", str(suite(tmp_path)), "-q"])
    folder = list_runs(tmp_path / "runs")[0].folder
    capsys.readouterr()
    run_command(["gate", folder, "--min-trigger-accuracy", "0.6", "--json"])
    gate = json.loads(capsys.readouterr().out)["gates"][0]
    wide = exact_share(2.0, 3)
    assert (gate["low"], gate["high"]) == pytest.approx((wide.lower, wide.upper)), "3 prompts tell as much as these 4"
    assert run_command(["gate", folder, "--min-trigger-accuracy", "0.6", "--sure"]) == 3
    assert run_command(["gate", folder, "--min-trigger-accuracy", "0.09", "--sure"]) == 0


def test_two_runs_of_trigger_tests_alone_are_not_compared_and_the_way_out_is_told(tmp_path, capsys):
    for _ in range(2):
        run_command(["trigger", str(suite(tmp_path)), "-q"])
    one, other = (stored.folder for stored in list_runs(tmp_path / "runs"))
    assert run_command(["compare", one, other]) == 2
    assert f"waza gate {Path(other).name} --against {Path(one).name}" in capsys.readouterr().err


def test_the_file_itself_may_be_named_though_an_eval_file_stands_beside_it(tmp_path):
    assert run_command(["trigger", str(suite(tmp_path) / "trigger_tests.yaml"), "-q"]) == 0
    assert stored(tmp_path).name == "e"


def test_check_reads_trigger_tests_that_no_eval_file_stands_with(tmp_path, capsys):
    suite(tmp_path)
    (tmp_path / "eval.yaml").unlink()
    assert run_command(["check", str(tmp_path)]) == 0
    for place in (tmp_path, tmp_path / "skills/explainer", tmp_path / "skills/explainer/evals"):
        place.mkdir(exist_ok=True)
        (place / "trigger_tests.yaml").write_text("skil: explainer\n")
        assert run_command(["check", str(tmp_path)]) == 2
        assert "trigger_tests.yaml:1:1: skil: unknown key" in capsys.readouterr().out
        (place / "trigger_tests.yaml").unlink()


def test_a_stopped_run_counts_the_answers_it_kept(tmp_path, capsys):
    rules = RULES | {"tasks": {"trigger:should-*": {"skill_invocations": [], "usage": {"cost_usd": 1}}}}
    run_command(["trigger", str(suite(tmp_path, rules=rules)), "-q", "--workers", "1", "--max-cost", "0.5"])
    assert f"{len(stored(tmp_path).triggers)} results kept" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({}, {"tests": "2", "failures": "0", "errors": "0"}),
        ({"needs": 0.9}, {"tests": "2", "failures": "1", "errors": "0"}),
        ({"rules": None}, {"tests": "2", "failures": "0", "errors": "1"}),
    ],
)
def test_junit_holds_the_trigger_tests_as_one_case_that_follows_their_gate(how, told, tmp_path):
    file = tmp_path / "junit.xml"
    run_command(["run", str(suite(tmp_path, **how)), "-q", "--reporter", f"junit:{file}"])
    found = ElementTree.parse(file).getroot()
    assert {name: found.get(name) for name in told} == told
    assert [case.get("name") for case in found.iter("testcase")] == ["t", "trigger tests"]


def test_a_job_on_github_is_told_why_the_trigger_tests_did_not_pass(tmp_path, capsys):
    run_command(["trigger", str(suite(tmp_path, rules=None)), "-q", "--reporter", f"github:{tmp_path / 'c.md'}"])
    assert "::warning title=trigger tests::INVALID: the control that names 'explainer'" in capsys.readouterr().err


def test_markdown_tells_the_measures_or_why_there_are_none(tmp_path):
    file = tmp_path / "report.md"
    run_command(["trigger", str(suite(tmp_path)), "-q", "--reporter", f"markdown:{file}"])
    assert "| all answers | 0.67 | 0.67 | 0.67 | 0.67 | 1 | 0.5 | 1 | 0.5 | 0 |" in file.read_text()
    run_command(["trigger", str(suite(tmp_path, rules=None)), "-q", "--reporter", f"markdown:{file}"])
    assert "INVALID: the control that names" in file.read_text().replace("`", "")
    assert "recall" not in file.read_text()


def test_grading_again_keeps_the_trigger_tests(tmp_path):
    run_command(["run", str(suite(tmp_path)), "-q"])
    before = summarize(stored(tmp_path)).triggers
    run_command(["grade", list_runs(tmp_path / "runs")[0].folder, "-q"])
    assert len(list_runs(tmp_path / "runs")) == 2
    assert summarize(stored(tmp_path)).triggers == before


def test_without_a_script_or_a_rule_the_mock_invents_nothing_and_the_run_is_invalid(tmp_path, capsys):
    for rules in (None, {"default": {"output": "hello"}}, {"tasks": {"*": {"output": "hello"}}}):
        assert run_command(["trigger", str(suite(tmp_path, rules=rules)), "-q"]) == 3
        shown = capsys.readouterr().out
        assert "INVALID" in shown
        assert "recall" not in shown
        assert "mock.yaml has no rule" in shown
        assert "cannot observe" not in shown
    told = json.loads((tmp_path / "runs").joinpath(stored(tmp_path).id, "results.json").read_text())
    metrics = told["trigger_metrics"]
    assert (metrics["valid"], metrics["recall"], metrics["accuracy"], metrics["phrasing"]) == (False, None, None, [])
    assert "did not register" in metrics["invalid_reasons"][0]


def test_the_mock_follows_scripts_by_prompt_and_trial_before_rules(tmp_path):
    scripts = {"trigger:should-2": {"trials": [{"skill_invocations": ["explainer"]}, {"skill_invocations": []}]}}
    run_command(["trigger", str(suite(tmp_path, rules=RULES | {"tasks": scripts})), "-q", "--trials", "2"])
    used = [
        [skill.name for skill in result.trace.skill_invocations]
        for result in stored(tmp_path).triggers
        if result.task_id == "trigger:should-2"
    ]
    assert used == [["explainer"], []]


def test_a_trial_ends_at_the_first_skill_or_at_this_one(tmp_path):
    rules = {"triggers": [{"skill": "router", "when": "."}, {"skill": "explainer", "when": "explain"}]}
    assert run_command(["trigger", str(suite(tmp_path, rules=rules)), "-q"]) == 3
    assert (
        run_command(["trigger", str(suite(tmp_path, rules=rules, tests=TESTS | {"stop_at": "this_skill"})), "-q"]) == 0
    )


def test_chosen_tasks_are_run_without_trigger_tests(tmp_path):
    run_command(["run", str(suite(tmp_path, needs=None)), "-q", "--task", "t"])
    assert "triggers" not in stored(tmp_path).spec


def test_a_wrong_answer_does_not_stop_a_run_that_stops_at_the_first_failed_task(tmp_path):
    run_command(["run", str(suite(tmp_path)), "-q", "--fail-fast"])
    assert stored(tmp_path).complete


def test_an_interrupted_run_goes_on_with_the_prompts_that_are_left(tmp_path, capsys):
    spec = load_spec(suite(tmp_path))
    stop = Stop()
    count = []

    def on_result(result):
        count.append(result.task_id)
        if len(count) == 3:
            stop("enough")

    half = execute(request_for(spec), Listeners(on_result=on_result, stop=stop))
    assert not half.complete
    assert summarize(half).triggers.all.errors == 0
    assert run_command(["run", str(tmp_path), "-q", "--resume"]) == 0
    assert len(list_runs(tmp_path / "runs")) == 1
    assert len(stored(tmp_path).triggers) == 6
    assert run_command(["trigger", str(tmp_path), "-q"]) == 0
    assert run_command(["trigger", str(tmp_path), "-q", "--resume"]) == 0
    assert "nothing was run" in capsys.readouterr().err
    assert len(list_runs(tmp_path / "runs")) == 2


def test_a_prompt_that_changed_is_not_mixed_with_its_old_answer(tmp_path, capsys):
    run_command(["trigger", str(suite(tmp_path)), "-q"])
    changed = TESTS | {"should_not_trigger_prompts": [{"prompt": "Sing"}, {"prompt": "Explain nothing"}]}
    suite(tmp_path, tests=changed)
    assert run_command(["trigger", str(tmp_path), "-q", "--resume"]) == 2
    assert "trigger:should-not-1: prompt" in capsys.readouterr().err
    run_command(["trigger", str(tmp_path), "-q", "--resume", "--rerun-changed"])
    assert {result.trace.input for result in stored(tmp_path).triggers} >= {"Sing"}


def test_python_gets_the_trigger_results_too(tmp_path):
    run = waza.run(suite(tmp_path))
    assert (len(run.results), len(run.triggers)) == (1, 6)


def test_the_agent_has_the_suites_stand_ins_in_trigger_tests_too(tmp_path):
    file = suite(tmp_path) / "eval.yaml"
    gh = {"name": "gh", "responses": [{"args": ["pr"], "stdout": "none"}]}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"command_mocks": [gh]}))
    spec = load_spec(tmp_path)
    assert spec.tasks[0].mocks
    assert {json.dumps(task.mocks) for task in spec.triggers.tasks} == {json.dumps(spec.tasks[0].mocks)}


def test_a_folder_without_an_eval_file_is_enough(tmp_path):
    suite(tmp_path)
    (tmp_path / "eval.yaml").unlink()
    assert run_command(["trigger", str(tmp_path), "-q", "--engine", "mock"]) == 1
    assert stored(tmp_path).skill == "explainer"


@pytest.mark.parametrize(
    ("tests", "fact"),
    [
        ({"should_trigger_prompts": [{"prompt": "x"}]}, "'skill' is missing"),
        ({"skill": "s"}, "no prompt"),
        ({"skill": "s", "should_trigger_prompts": [{"prompt": "  "}]}, "the prompt is empty"),
        ({"skill": "s", "should_trigger_prompts": [{"prompt": "x", "confidence": "low"}]}, "one of: high, medium"),
        ({"skill": "s", "should_trigger_prompts": [{"prompt": "x", "phrasing": "vague"}]}, "one of: explicit"),
        ({"skill": "s", "should_triger_prompts": [{"prompt": "x"}]}, "did you mean 'should_trigger_prompts'"),
        ({"skill": "s", "should_trigger_prompts": ["x"]}, "a mapping of keys is needed"),
        (
            {
                "skill": "s",
                "should_trigger_prompts": [{"prompt": "x"}],
                "should_not_trigger_prompts": [{"prompt": "x "}],
            },
            "is in both lists",
        ),
    ],
)
def test_a_mistake_is_refused_with_its_place(tests, fact, tmp_path, capsys):
    for command in ("trigger", "check", "run"):
        assert run_command([command, str(suite(tmp_path, tests=tests))]) in (1, 2)
        told = "".join(capsys.readouterr())
        assert fact in told
        assert "trigger_tests.yaml:1:" in told
    assert not (tmp_path / "runs").exists()


ELSEWHERE = TESTS | {"skill": "explaner"}


def test_tests_about_a_skill_that_is_nowhere_are_refused_before_anything_is_run(tmp_path, capsys):
    for arguments in (["trigger"], ["run"], ["run", "--dry-run"], ["check"]):
        assert run_command([*arguments, str(suite(tmp_path, tests=ELSEWHERE))]) == 2
        told = " ".join("".join(capsys.readouterr()).split())
        assert "trigger_tests.yaml:1:" in told
        assert "skill 'explaner' was not found in this project; did you mean 'explainer'?" in told
    (tmp_path / "eval.yaml").unlink()
    assert run_command(["trigger", str(tmp_path)]) == run_command(["check", str(tmp_path)]) == 2
    assert not (tmp_path / "runs").exists()
    assert run_command(["run", str(suite(tmp_path, tests=ELSEWHERE, needs=None)), "-q", "--task", "t"]) == 0


def test_check_reports_a_skill_that_is_nowhere_once_and_as_the_engine_takes_it(tmp_path, capsys):
    file = suite(tmp_path, tests=ELSEWHERE, needs=None) / "eval.yaml"
    data = {key: value for key, value in json.loads(file.read_text()).items() if key != "skill"}
    (tmp_path / "agent.py").write_text("def agent(prompt): return prompt")
    for engine, code in (({"executor": "mock"}, 2), ({}, 2), ({"executor": "python", "agent": "agent:agent"}, 0)):
        file.write_text(json.dumps(data | {"config": engine}))
        assert run_command(["check", str(tmp_path)]) == code
        told = " ".join(capsys.readouterr().out.split())
        assert told.count("was not found in this project") == 1
        assert "trigger_tests.yaml:1:" in told
    (tmp_path / ".waza.yaml").unlink()
    file.write_text(json.dumps(data | {"config": {}}))
    assert run_command(["check", str(tmp_path)]) == 0, "no engine is named, so none refuses it"
    file.unlink()
    assert run_command(["check", str(tmp_path)]) == 0


def test_an_agent_that_has_its_skills_from_elsewhere_may_be_asked_about_them(tmp_path):
    (tmp_path / "agent.py").write_text("def agent(prompt):\n    return prompt\n")
    spec = load_spec(suite(tmp_path, tests=ELSEWHERE, executor="python", agent="agent:agent"))
    assert spec.engine()
    with pytest.raises(SpecError, match="explaner"):
        spec.engine("mock")


def test_a_confidence_may_be_left_empty_as_in_the_original(tmp_path):
    spec = load_spec(suite(tmp_path, tests=TESTS | {"should_trigger_prompts": [{"prompt": "x", "confidence": ""}]}))
    assert {prompt.confidence for prompt in spec.triggers.prompts if prompt.prompt == "x"} == {"high"}


def test_a_rule_of_the_mock_that_is_no_pattern_is_refused(tmp_path, capsys):
    broken = {"triggers": [{"skill": "explainer", "when": "("}]}
    assert run_command(["trigger", str(suite(tmp_path, rules=broken))]) == 2
    assert "mock.yaml:1:" in capsys.readouterr().err


def test_a_dry_run_says_what_would_run(tmp_path, capsys):
    assert run_command(["trigger", str(suite(tmp_path)), "--dry-run", "--trials", "3"]) == 0
    assert "18 trials with engine mock; nothing was run" in capsys.readouterr().out


def many(folder, misses, *, errors=0, reverse=False):
    """Run twelve should-trigger prompts, of which the agent misses the first ones; return the run's folder."""
    words = [f"Explain {letter}" for letter in "abcdefghijkl"]
    asked = [{"prompt": prompt} for prompt in (words[::-1] if reverse else words)]
    names = [f"trigger:should-{number + 1}" for number in range(len(words))]
    tasks = {name: {"skill_invocations": []} for name in names[:misses]}
    tasks |= {name: {"error": "no net"} for name in names[len(words) - errors :]}
    tests = {"skill": "explainer", "should_trigger_prompts": asked}
    run_command(["trigger", str(suite(folder, tests=tests, rules=RULES | {"tasks": tasks})), "-q"])
    return list_runs(folder / "runs")[0].folder


@pytest.mark.parametrize(
    ("before", "after", "code", "told"),
    [
        ({"misses": 1}, {"misses": 1}, 0, ""),
        ({"misses": 0}, {"misses": 0, "reverse": True}, 0, ""),
        ({"misses": 0}, {"misses": 1}, 0, ""),
        (
            {"misses": 0},
            {"misses": 2},
            3,
            "it fell by more than 10 points, but chance alone might do that",
        ),
        ({"misses": 0}, {"misses": 8}, 1, "it fell, and chance alone would hardly do that"),
        ({"misses": 8}, {"misses": 0}, 0, ""),
        ({"misses": 0}, {"misses": 0, "errors": 2}, 3, "the undecided ones could decide it either way"),
        ({"misses": 0}, {"misses": 0, "errors": 12}, 3, "no prompt was decided in both runs"),
    ],
)
def test_trigger_accuracy_must_not_fall_below_a_baseline(before, after, code, told, tmp_path, capsys):
    one, other = many(tmp_path, **before), many(tmp_path, **after)
    capsys.readouterr()
    assert run_command(["gate", other, "--against", one, "--json"]) == code
    (gate,) = json.loads(capsys.readouterr().out)["gates"]
    assert (gate["name"], gate["reason"]) == ("trigger accuracy against the baseline", told)


def test_a_baseline_whose_controls_failed_decides_nothing_and_one_without_trigger_tests_is_told(tmp_path, capsys):
    other = many(tmp_path, 0)
    run_command(["trigger", str(suite(tmp_path, rules={"triggers": []})), "-q"])
    assert run_command(["gate", other, "--against", list_runs(tmp_path / "runs")[0].folder]) == 3
    assert "INVALID" in capsys.readouterr().out
    run_command(["run", str(suite(tmp_path)), "-q"])
    whole = list_runs(tmp_path / "runs")[0].folder
    run_command(["run", str(tmp_path), "-q", "--task", "t"])
    assert run_command(["gate", whole, "--against", list_runs(tmp_path / "runs")[0].folder, "--allow-partial"]) == 0
    assert "the baseline has no trigger tests" in " ".join(capsys.readouterr().out.split())


def test_a_listing_tells_the_accuracy_of_runs_without_tasks(tmp_path, capsys):
    run_command(["trigger", str(suite(tmp_path)), "-q"])
    run_command(["trigger", str(suite(tmp_path, rules={"triggers": []})), "-q"])
    capsys.readouterr()
    run_command(["runs", "list", "--path", str(tmp_path)])
    shown = capsys.readouterr().out
    assert "triggers 0.67" in shown and "triggers INVALID" in shown and "0 of 0" not in shown


def test_a_trend_shows_the_accuracy_of_trigger_tests_and_no_empty_line(tmp_path, capsys):
    for _ in range(2):
        run_command(["trigger", str(suite(tmp_path)), "-q"])
    capsys.readouterr()
    run_command(["trend", "--path", str(tmp_path)])
    alone = capsys.readouterr().out
    assert "triggers" in alone and "0.67 → 0.67" in alone
    assert "pass rate" not in alone and "score" not in alone
    run_command(["run", str(suite(tmp_path)), "-q"])
    capsys.readouterr()
    run_command(["trend", "--path", str(tmp_path)])
    both = capsys.readouterr().out
    assert "pass rate" in both and "triggers" in both and "the number of tasks changed" not in both


def test_prompts_are_the_same_by_their_words_not_by_their_number(tmp_path, capsys):
    one, other = many(tmp_path, 6), many(tmp_path, 6, reverse=True)
    capsys.readouterr()
    run_command(["gate", other, "--against", one, "--json"])
    (gate,) = json.loads(capsys.readouterr().out)["gates"]
    assert gate["low"] < gate["value"] == 0 < gate["high"], "half of them fell, the others rose"
