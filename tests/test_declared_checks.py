"""Nothing passes by accident: for each way in which a declared check was once lost, one example from outside.

Only the command line and the public API are used, so that each of these can be run against any version.
"""

import json
import os
import re
import subprocess
import sys

import pytest

import waza
from waza.cli import run_command
from waza.evaldeck import EvalCase, Evaluator, Trace
from waza.evaldeck.graders import ContainsGrader
from waza.judges import ScriptedJudge

QUIET = {"type": "text", "name": "quiet", "config": {"not_contains": ["password"]}}


@pytest.fixture
def run(tmp_path, capfd, monkeypatch):
    """A function that runs a suite and returns its exit code, its results and all that was printed."""
    monkeypatch.setenv("COLUMNS", "400")
    (tmp_path / ".waza.yaml").touch()

    def call(suite, *options, command="run"):
        (tmp_path / "eval.yaml").write_text(json.dumps({"name": "s"} | suite))
        output = tmp_path / "out.json"
        output.unlink(missing_ok=True)
        written = ["-o", str(output)] if command == "run" else []
        code = run_command([command, str(tmp_path), *written, *options])
        printed = " ".join(" ".join(capfd.readouterr()).split())
        return code, json.loads(output.read_text()) if output.is_file() else {}, printed

    return call


def graded(config, trace, workspace=None, judge=None):
    """Return the status of a grader on a trace, or `refused`."""
    try:
        grader = waza.load_grader(config)
    except waza.SpecError:
        return "refused"
    return grader.grade(
        waza.Trace.from_json({"input": "", "output": ""} | trace), workspace=workspace, judge=judge
    ).status


def test_a_mock_without_a_script_decides_nothing(run):
    code, _, printed = run({"config": {"executor": "mock"}, "graders": [QUIET], "tasks": [{"id": "x", "prompt": "hi"}]})
    assert (code, "no mock script for task 'x'" in printed) == (3, True), printed


def test_an_agent_that_crashes_fails_whatever_the_checks_say(run):
    agent = {"executor": "command", "command": ["sh", "-c", "echo fine; echo lost >&2; exit 1"]}
    code, results, printed = run({"config": agent, "graders": [QUIET], "tasks": [{"id": "x", "prompt": "hi"}]})
    assert code == 1 and "the agent exited with code 1: lost" in printed
    [trial] = results["tasks"][0]["runs"]
    assert (trial["status"], trial["final_output"].strip(), len(trial["grades"])) == ("failed", "fine", 1)


@pytest.mark.parametrize(
    ("config", "trace", "status"),
    [
        ({"type": "tool_calls", "max_calls": "none"}, {"tool_events": [{"tool_name": "a"}]}, "failed"),
        ({"type": "tool_calls", "forbidden_tools": ["mcp__*"]}, {"tool_events": [{"tool_name": "mcp__x"}]}, "failed"),
        ({"type": "tool_calls", "forbidden_tools": ["bash|rm"]}, {"tool_events": []}, "refused"),
        ({"type": "file", "must_not_exist": ["**/secrets*", "*.tmp"]}, {}, "failed"),
        ({"type": "text", "not_contains": ["ΟΔΟΣ"]}, {"output": "ΟΔΟΣΗΜΟ"}, "failed"),
        ({"type": "text", "regex_match": ["a*"]}, {"output": "b"}, "refused"),
        ({"type": "code", "assertions": ["('x' in output, 'message')"]}, {"output": "b"}, "refused"),
        ({"type": "code", "assertions": ["new Boolean(false)"], "language": "javascript"}, {}, "refused"),
        ({"type": "json_schema", "schema": {"requierd": ["id"]}}, {"output": "{}"}, "refused"),
    ],
)
def test_zeros_globs_names_letters_patterns_and_forms_mean_what_they_say(config, trace, status, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/secrets.txt").touch()
    assert graded(config, trace, tmp_path) == status


def test_a_limit_of_zero_is_never_silent(run):
    limited = {"type": "tool_calls", "name": "t", "config": {"max_calls": 0, "required_tools": ["a"]}}
    suite = {"config": {"executor": "mock"}, "graders": [limited]}
    tasks = [{"id": "x", "prompt": "hi", "mock": {"output": "", "tool_events": [{"tool_name": "a"}]}}]
    assert "`max_calls: 0` means no limit; write `none` for none" in run(suite | {"tasks": tasks})[2]


@pytest.mark.parametrize(
    "expression",
    [
        "re.search(r'done$', output)",
        "round(2.675, 2) == 2.67 or output == ''",
        "sorted(['b', 'A', output], key=str.lower)[0] == 'A'",
    ],
)
def test_an_assertion_means_what_it_means_in_python(expression):
    assert eval(expression, {"re": re, "output": "all done\n"})
    assert graded({"type": "code", "assertions": [expression]}, {"output": "all done\n"}) == "passed"


@pytest.mark.parametrize("code", [128, 137, 255])
def test_every_exit_code_of_a_program_is_a_verdict(code):
    assert graded({"type": "program", "command": "sh", "args": ["-c", f"exit {code}"]}, {}) == "failed"


def test_graders_within_expectations_of_evaldeck_are_enforced():
    expected = {"output_contains": ["hi"], "graders": [{"type": "contains", "params": {"values": ["absent"]}}]}
    case = EvalCase(name="a", input="x", expected=expected)
    assert not Evaluator().evaluate(Trace(input="x", output="hi"), case).passed


def test_a_name_among_graders_within_expectations_of_evaldeck_is_refused(tmp_path, capfd):
    (tmp_path / "evaldeck.yaml").write_text("agent: {module: m, function: f}\n")
    (tmp_path / "tests/evals").mkdir(parents=True)
    wrong = {"name": "a", "input": "x", "expected": {"output_contains": ["a"], "graders": ["nope"]}}
    (tmp_path / "tests/evals/a.yaml").write_text(json.dumps(wrong))
    assert run_command(["check", str(tmp_path)]) == 2
    assert "unknown grader 'nope'" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("config", "trace", "status"),
    [
        ({"type": "behavior", "max_tokens": 5}, {"usage": {"input_tokens": -9, "output_tokens": 1}}, "error"),
        ({"type": "behavior", "max_duration_ms": 5}, {"duration_ms": -1}, "error"),
        ({"type": "behavior", "max_tokens": 5}, {"usage": {"input_tokens": "9", "output_tokens": "1"}}, "failed"),
    ],
)
def test_numbers_that_cannot_be_true_are_no_evidence_and_numeric_text_is(config, trace, status):
    assert graded(config, trace) == status


def test_the_final_answer_of_smolagents_over_opentelemetry_is_the_output_and_every_span_a_step(tmp_path):
    def span(identity, parent, kind, **more):
        written = {"openinference.span.kind": kind} | {key.replace("__", "."): value for key, value in more.items()}
        attributes = [{"key": key, "value": {"stringValue": value}} for key, value in written.items()]
        times = {"startTimeUnixNano": f"{ord(identity)}000000", "endTimeUnixNano": f"{ord(identity) + 1}000000"}
        about = {"traceId": "t" * 32, "spanId": identity, "name": identity, "attributes": attributes} | times
        return about | ({"parentSpanId": parent} if parent else {})

    spans = [
        span("a", "", "AGENT", input__value='{"task": "how warm?"}'),
        span("b", "a", "CHAIN"),
        span("c", "a", "TOOL", tool__name="get_weather", output__value="3 degrees"),
        span("d", "a", "TOOL", tool__name="final_answer", input__value='{"answer": "3 degrees"}'),
    ]
    file = tmp_path / "spans.json"
    file.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))
    trace = waza.read_trace(file)
    assert ([event.tool_name for event in trace.tool_events], trace.output) == (["get_weather"], "3 degrees")
    assert trace.steps == 4


def test_a_slip_in_a_metric_is_refused_and_a_partial_run_is_not_gated(run, tmp_path):
    tasks = [{"id": one, "prompt": "hi", "mock": {"output": "hi"}} for one in "ab"]
    suite = {"config": {"executor": "mock"}, "graders": [QUIET], "tasks": tasks}
    code, _, printed = run(suite | {"metrics": [{"name": "task_completoin", "threshold": 0.5}]}, command="check")
    assert code == 2 and "did you mean 'task_completion'?" in printed
    assert run(suite, "--task", "a")[0] == 0
    [folder] = (tmp_path / "runs").glob("2*")
    assert run_command(["gate", str(folder), "--min-pass-rate", "0.5"]) == 3
    assert run_command(["gate", str(folder), "--max-cost", "1"]) == 3


def test_standard_output_belongs_to_the_result(tmp_path):
    (tmp_path / ".waza.yaml").touch()
    (tmp_path / "agent_that_prints.py").write_text(
        "import os\ndef agent(prompt):\n    os.write(1, b'leak')\n    os.system('echo leak')\n    return 'hi'\n"
    )
    suite = {"config": {"executor": "python", "agent": "agent_that_prints:agent"}, "graders": [QUIET]}
    (tmp_path / "eval.yaml").write_text(json.dumps(suite | {"tasks": [{"id": "x", "prompt": "hi"}]}))
    done = subprocess.run(
        [sys.executable, "-m", "waza", "run", tmp_path, "--json"], capture_output=True, text=True, timeout=100
    )
    assert "leak" not in done.stdout
    assert json.loads(done.stdout)["tasks"][0]["status"] == "passed", done.stderr


def test_each_judged_criterion_needs_a_verdict():
    reply = {"tool_calls": [{"name": "set_waza_grade_pass", "arguments": {"reason": "so", "criterion": 1}}]}
    config = {"type": "prompt", "criteria": ["It is polite.", "It names a date."]}
    assert graded(config, {"output": "x"}, judge=ScriptedJudge([reply, reply])) == "error"


def test_the_time_of_a_trial_is_its_agents(run):
    slow = {"type": "program", "name": "slow", "config": {"command": "sleep", "args": ["0.4"]}}
    tasks = [{"id": "x", "prompt": "hi", "mock": {"output": "hi", "duration_ms": 5}}]
    _, results, _ = run({"config": {"executor": "mock"}, "graders": [slow], "tasks": tasks})
    [trial] = results["tasks"][0]["runs"]
    assert trial["duration_ms"] == 5, "not the grader's 400"
    assert trial["total_duration_ms"] >= 300


def test_the_content_of_a_file_with_further_hard_links_is_undecided_and_its_existence_is_not(tmp_path):
    inside = tmp_path / "workspace"
    inside.mkdir()
    (tmp_path / "outside.txt").write_text("wanted")
    os.link(tmp_path / "outside.txt", inside / "a.txt")
    pattern = {"type": "file", "content_patterns": [{"path": "a.txt", "must_match": ["wanted"]}]}
    assert graded(pattern, {}, inside) == "error"
    assert graded({"type": "file", "must_exist": ["a.txt"]}, {}, inside) == "passed"


def test_what_reports_count_is_what_the_suite_expects(run):
    ordered = {
        "type": "tool_calls",
        "name": "t",
        "config": {"order": "in_order", "expect": [{"name": "a"}, {"name": "b"}]},
    }
    calls = [{"tool_name": "b"}, {"tool_name": "a"}]
    tasks = [{"id": "x", "prompt": "hi", "mock": {"output": "hi", "tool_events": calls}}]
    _, results, _ = run({"config": {"executor": "mock"}, "graders": [ordered], "tasks": tasks})
    assert results["summary"]["tool_metrics"]["selection_accuracy"] == 0.0
    assert "details" in results["tasks"][0]["runs"][0]["validations"]["t"]
    forbids = {"type": "tool_calls", "name": "t", "config": {"forbidden_tools": ["z"]}}
    _, results, _ = run({"config": {"executor": "mock"}, "graders": [forbids], "tasks": tasks})
    assert results["summary"]["tool_metrics"]["selection_accuracy"] is None


def test_a_grader_of_evaldecks_that_checks_nothing_is_refused():
    with pytest.raises(ValueError):
        ContainsGrader(values=[])


def test_a_trigger_prompt_that_runs_out_of_time_is_no_right_answer(run, tmp_path):
    (tmp_path / "skills/greeter").mkdir(parents=True)
    (tmp_path / "skills/greeter/SKILL.md").write_text('---\nname: greeter\ndescription: "Greets."\n---\nHi.\n')
    tests = {"skill": "greeter", "should_not_trigger_prompts": [{"prompt": "late"}], "timeout_seconds": 0.2}
    (tmp_path / "trigger_tests.yaml").write_text(json.dumps(tests))
    scripts = {"trigger:should-not-1": {"delay_s": 5, "skill_invocations": [], "output": ""}}
    mocks = {"triggers": [{"skill": "greeter", "when": "greeter"}], "tasks": scripts}
    (tmp_path / "mock.yaml").write_text(json.dumps(mocks))
    suite = {"config": {"executor": "mock"}, "graders": [QUIET]}
    _, results, _ = run(suite | {"tasks": [{"id": "x", "prompt": "hi", "mock": {"output": "hi"}}]})
    assert (results["trigger_metrics"]["errors"], results["trigger_metrics"]["accuracy"]) == (1, 0.0)


def test_trigger_tests_without_their_skill_are_refused_by_check_too(run, tmp_path):
    tests = {"skill": "ghost", "should_trigger_prompts": [{"prompt": "x"}]}
    (tmp_path / "trigger_tests.yaml").write_text(json.dumps(tests))
    suite = {"config": {"executor": "mock"}, "graders": [QUIET]}
    suite |= {"tasks": [{"id": "x", "prompt": "hi", "mock": {"output": "hi"}}]}
    for command in ("check", "run"):
        code, _, printed = run(suite, command=command)
        assert (code, printed.count("skill 'ghost' was not found")) == (2, 1), printed
