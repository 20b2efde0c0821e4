"""The pytest plug-in as people use it: another pytest over a suite."""

import importlib
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

# Another pytest in this process forgets what it was the first to import; these must stay what they are.
for module in ("waza.evaldeck", "waza.pytest_plugin", "waza.runner.verdicts", "waza.runner.verdicts"):
    importlib.import_module(module)

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parent.parent
ANNOUNCED = any(entry.value == "waza.pytest_plugin" for entry in entry_points(group="pytest11"))
PLUGIN = ("-p", "no:hypothesispytest", *(() if ANNOUNCED else ("-p", "waza.pytest_plugin")))
SUITE = """
config: {executor: mock, trials_per_task: 2}
graders:
  - {type: text, name: greets, config: {contains: [hello], not_contains: [bye]}}
tasks:
  - {id: good, tags: [polite], prompt: hi, mock: {output: "hello you"}}
  - id: bad
    prompt: hi
    mock: {output: "bye \\u001b[31m[red]", trials: [{output: hello}, {}]}
  - {id: unknown, prompt: hi, expected: {max_llm_calls: 1}, mock: {output: hello}}
"""


class Done(NamedTuple):
    """How a pytest ended and what it printed."""

    returncode: int
    stdout: str


@pytest.fixture
def run(pytester, monkeypatch):
    """Another pytest over the suite, in this process; its standard output."""
    monkeypatch.setenv("COLUMNS", "150")
    pytester.path.joinpath("eval.yaml").write_text(SUITE)

    def call(*arguments):
        done = pytester.runpytest_inprocess(
            *PLUGIN, "-q", "-W", "ignore::pytest.PytestAssertRewriteWarning", *arguments
        )
        return Done(int(done.ret), done.stdout.str())

    return call


@pytest.fixture
def folder(pytester):
    return pytester.path


def test_the_plugin_is_announced_to_pytest():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"waza": "waza.pytest_plugin"}


def test_nothing_is_collected_unless_it_is_asked_for(run, folder):
    assert "no tests ran" in run().stdout
    named = run("eval.yaml")
    assert named.returncode == 4 and "eval.yaml is a suite: say --waza" in named.stdout
    assert "pytest_plugin.py" not in named.stdout
    (folder / "pytest.ini").write_text("[pytest]\nwaza = true\n")
    assert "2 passed" not in run("--collect-only").stdout
    assert "6 tests collected" in run("--collect-only").stdout


def test_one_item_a_task_and_trial_and_failures_show_the_checks(run):
    done = run("--waza")
    assert done.returncode == 1
    assert "3 failed, 3 passed" in done.stdout, done.stdout
    assert (
        "FAILED eval.yaml::bad[2] - failed: Missing expected substring: hello; Found forbidden substring: bye"
        in done.stdout
    )
    for line in ("✗ Found forbidden substring: bye", "expected: hello", "found:    bye \\e[31m[red]"):
        assert line in done.stdout
    assert "\x1b[31m[red]" not in done.stdout
    assert "Traceback" not in done.stdout and "pytest_plugin.py" not in done.stdout


def test_undecided_is_neither_a_pass_nor_told_like_a_failure(run):
    done = run("--waza", "-k", "unknown")
    assert done.returncode == 1
    assert "FAILED eval.yaml::unknown[1] - undecided: cannot tell whether there were at most 1 LLM calls" in done.stdout
    assert "? cannot tell" in done.stdout


def test_selection_by_name_tag_and_node_id(run):
    assert "2 passed, 4 deselected" in run("--waza", "-k", "good").stdout
    assert "2 passed, 4 deselected" in run("--waza", "-k", "polite").stdout
    assert "1 passed" in run("--waza", "eval.yaml::bad[1]").stdout
    assert "5 tests collected" in run("--waza", "--deselect", "eval.yaml::bad[1]", "--collect-only").stdout.replace(
        "5/6", "5"
    )


def test_last_failed_runs_what_failed(run):
    run("--waza")
    done = run("--waza", "--lf")
    assert "3 failed" in done.stdout and "passed" not in done.stdout
    assert re.findall(r"FAILED eval.yaml::(\S+)", done.stdout) == ["bad[2]", "unknown[1]", "unknown[2]"]


def test_junit_names_tasks_and_carries_scores(run, folder):
    run("--waza", "--junitxml", "out.xml")
    found = {case.get("name"): case for case in ElementTree.parse(folder / "out.xml").iter("testcase")}
    assert set(found) == {f"{task}[{trial}]" for task in ("good", "bad", "unknown") for trial in (1, 2)}
    assert "Missing expected substring: hello" in found["bad[2]"].find("failure").get("message")
    properties = {p.get("name"): p.get("value") for p in found["unknown[1]"].iter("property")}
    assert properties == {
        "waza_status": "error",
        "waza_score.greets": "1.0000",
        "waza_score.max_llm_calls": "undecided",
    }


def test_several_processes_and_what_failed_in_them(folder):
    """As people run it: processes of their own, on a project with a grader of its own."""
    (folder / ".waza.yaml").write_text("allow_local_code: true\n")
    (folder / "mine.py").write_text("import waza\n@waza.grader\ndef short(trace):\n    return len(trace.output) < 99\n")
    (folder / "eval.yaml").write_text(SUITE.replace("graders:\n", "graders:\n  - {type: ./mine.py}\n"))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}

    def call(*arguments):
        command = [sys.executable, "-m", "pytest", *PLUGIN, "-q", "--waza", "-n", "2", *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, env=environment)
        return done.stdout + done.stderr

    told = call("--junitxml", "out.xml")
    assert "3 failed, 3 passed" in told, told
    assert len(list(ElementTree.parse(folder / "out.xml").iter("failure"))) == 3
    again = call("--lf", "-k", "unknown")
    assert "2 failed" in again and "passed" not in again, again


def test_a_wrong_suite_is_an_error_with_every_mistake(run, folder):
    (folder / "eval.yaml").write_text(
        SUITE.replace("contains: [hello]", "contians: [hello]").replace("max_llm_calls", "max_llm_call")
    )
    done = run("--waza")
    assert done.returncode == 2
    assert "did you mean 'contains'?" in done.stdout and "did you mean 'max_llm_calls'?" in done.stdout
    assert "Traceback" not in done.stdout


def test_options_change_engine_and_trials_and_gates_are_warned_about(run, folder):
    (folder / "eval.yaml").write_text(SUITE + "metrics: [{name: task_completion, threshold: 0.5}]\n")
    done = run("--waza", "--waza-trials", "1", "-k", "good")
    assert "1 passed, 2 deselected" in done.stdout
    assert "metric task_completion hold for a whole run; `waza run` checks them, pytest does not" in done.stdout
    assert "unknown engine 'nonesuch'" in run("--waza", "--waza-engine", "nonesuch").stdout


def test_commands_around_the_run_and_the_tasks_are_run(run, folder):
    (folder / "note.sh").write_text('#!/bin/sh\necho "$1 $WAZA_TASK_ID" >> log\n')
    (folder / "note.sh").chmod(0o755)
    hooks = "".join(
        f"  {when}: [{{command: './note.sh {when}'}}]\n"
        for when in ("before_run", "after_run", "before_task", "after_task")
    )
    (folder / "eval.yaml").write_text(SUITE + "hooks:\n" + hooks)
    assert "2 passed" in run("--waza", "-k", "good").stdout
    lines = [line.strip() for line in (folder / "log").read_text().splitlines()]
    assert lines == ["before_run", *["before_task good", "after_task good"] * 2, "after_run"]


def test_secrets_do_not_reach_the_report(run, folder):
    (folder / "eval.yaml").write_text(
        "config:\n  executor: command\n  command: [sh, -c, 'echo $MY_API_KEY']\n"
        "  environment: {MY_API_KEY: hunter2-hunter2}\n"
        "tasks: [{id: leak, prompt: x, expected: {output_contains: [nothing]}}]\n"
    )
    done = run("--waza", "--junitxml", "out.xml")
    assert "1 failed" in done.stdout
    assert "hunter2" not in done.stdout and "hunter2" not in (folder / "out.xml").read_text()


def test_an_evaldeck_project_is_a_suite_too(run, folder):
    (folder / "eval.yaml").unlink()
    (folder / "agent_of_theirs.py").write_text("def run(input):\n    return 'echo ' + input\n")
    (folder / "evaldeck.yaml").write_text("agent: {module: agent_of_theirs, function: run}\ntest_dir: cases\n")
    (folder / "cases").mkdir()
    (folder / "cases/a.yaml").write_text("name: a\ninput: x\nexpected: {output_contains: [echo x]}\n")
    assert "1 passed" in run("--waza").stdout


def test_checkpoints_see_their_files_here_too(run, folder):
    (folder / "eval.yaml").write_text(
        "config: {executor: mock}\ntasks:\n  - id: talk\n    inputs: {prompt: a, follow_up_prompts: [b]}\n"
        "    mock: {turns: [{output: x, files: {one.txt: '1'}}, {output: y, files: {two.txt: '2'}}]}\n"
        "    checkpoints:\n      - after_turn: 1\n"
        "        graders: [{type: file, config: {must_exist: [one.txt], must_not_exist: [two.txt]}}]\n"
    )
    assert "1 passed" in run("--waza").stdout


def test_plain_tests_fail_with_the_checks(run, folder):
    (folder / "test_of_an_author.py").write_text(
        "import waza\nfrom waza.pytest_plugin import assert_grades\n"
        "def test_it():\n    assert_grades(waza.Trace(input='a', output='b'), {'output_contains': ['c']})\n"
    )
    done = run("test_of_an_author.py")
    assert "AssertionError: failed: Missing expected substring: c" in done.stdout
    assert "runner/verdicts.py" not in done.stdout
