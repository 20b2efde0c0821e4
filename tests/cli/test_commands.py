"""The command line as a user meets it: real processes, real files, documented exit codes."""

import json
import os
import re
import subprocess

import pytest

import warm_cli

SUITE = """
name: suite
config: {executor: mock}
graders:
  - {type: text, name: says_hello, config: {contains: [hello], not_contains: [bye]}}
tasks:
  - {id: good, prompt: hi, tags: [a], mock: {output: "hello you"}}
  - {id: bad, prompt: hi, mock: {output: "bye [red]you[/red] \\u001b[31m"}}
"""
UNDECIDED = """
config: {executor: mock}
graders: [{type: tool_called, config: {required: [bash]}}]
tasks: [{id: unscripted, prompt: hi, mock: {echo: true}}]
"""


def write(text, name="eval.yaml"):
    with open(name, "w") as file:
        file.write(text)


def test_help_names_every_command_and_each_help_has_an_example(waza):
    overview = waza("--help").stdout
    for command in ("init", "new", "run", "check", "grade", "show", "list", "schema", "docs", "completion"):
        assert command in overview
        assert "Example:" in waza(command, "--help").stdout, command


def test_a_misspelt_command_is_answered_with_the_nearest(waza):
    done = waza("chekc")
    assert done.returncode == 2
    assert "no command 'chekc'; did you mean 'check'?" in done.stderr


def test_version(waza):
    assert re.fullmatch(r"waza \d+\.\d+\.\d+\n", waza("--version").stdout)


def test_init_then_run_passes_offline_and_says_what_next(waza):
    done = waza("init")
    assert done.returncode == 0
    assert "waza run" in done.stdout and "config.executor" in done.stdout
    done = waza("run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 task passed" in done.stdout
    assert waza("init").returncode == 2


def test_new_suite_task_and_grader_run_as_they_stand(waza, tmp_path):
    waza("init")
    assert waza("new", "suite", "refunds").returncode == 0
    assert waza("new", "task", "late", "--suite", "evals/refunds").returncode == 0
    done = waza("run", "evals/refunds")
    assert "2 of 2 tasks passed" in done.stdout, done.stdout + done.stderr
    assert waza("new", "grader", "not_too_long").returncode == 0
    assert "class NotTooLongGrader(waza.Grader)" in (tmp_path / "graders/not_too_long.py").read_text()
    for file in tmp_path.rglob("*.yaml"):
        first = file.read_text().split("\n")[0]
        schema = re.fullmatch(r"# yaml-language-server: \$schema=(.*)", first)[1]
        assert (file.parent / schema).resolve().is_file(), file


def test_a_failed_check_shows_what_was_expected_and_what_was_there(waza):
    write(SUITE)
    done = waza("run")
    assert done.returncode == 1
    assert "Missing expected substring: hello" in done.stdout
    assert re.search(r"expected\s+hello\s", done.stdout)
    assert r"bye [red]you[/red] \e[31m" in done.stdout
    assert "\x1b" not in done.stdout
    assert "1 of 2 tasks passed" in done.stdout


def test_verbose_shows_every_check_and_quiet_only_the_summary(waza):
    write(SUITE)
    assert "the output contains 'hello'" in waza("run", "-v").stdout
    quiet = waza("run", "-q").stdout
    assert "says_hello" not in quiet and "1 of 2 tasks passed" in quiet


def test_json_on_standard_output_is_the_results_file(waza, tmp_path):
    write(SUITE)
    done = waza("run", "--json", "-o", "out/results.json")
    assert done.returncode == 1
    tree = json.loads(done.stdout)
    assert tree["schemaVersion"] == "1.5" and tree["summary"]["total_tests"] == 2
    assert [task["status"] for task in tree["tasks"]] == ["passed", "failed"]
    assert json.loads((tmp_path / "out/results.json").read_text()) == tree


def test_undecided_is_exit_code_3_never_a_failure(waza):
    write(UNDECIDED)
    done = waza("run", "--interpret")
    assert done.returncode == 3
    assert "tool calls were not recorded" in done.stdout
    assert "could not be decided" in done.stdout


def test_a_wrong_spec_is_exit_code_2_with_every_mistake_and_nothing_runs(waza, tmp_path):
    write(SUITE.replace("contains: [hello]", "contians: [hello]").replace("prompt: hi", "promt: hi"))
    done = waza("run")
    assert done.returncode == 2
    assert done.stderr.count("did you mean") == 3
    assert not (tmp_path / "runs").exists()
    assert waza("check").returncode == 2


def test_check_is_static_and_says_ok(waza, tmp_path):
    write(SUITE)
    done = waza("check", ".")
    assert (done.returncode, done.stdout) == (0, "eval.yaml: ok, 2 tasks\n")
    assert not (tmp_path / "runs").exists()


def test_check_prints_json_lines(waza):
    write(SUITE.replace("contains", "contians", 1))
    [line] = waza("check", "--json").stdout.strip().split("\n")
    assert json.loads(line)["line"] == 5


def test_filters_and_dry_run(waza, tmp_path):
    write(SUITE)
    done = waza("run", "--dry-run", "--task", "g*", "--trials", "3")
    assert done.returncode == 0
    assert "good  (3 trials; graders: says_hello)" in done.stdout and "bad" not in done.stdout
    assert not (tmp_path / "runs").exists()
    assert "1 of 1 task passed" in waza("run", "--tags", "a").stdout
    done = waza("run", "--task", "nothing")
    assert (done.returncode, "no task fits nothing" in done.stderr) == (2, True)


def test_fail_fast_stops_and_says_how_to_go_on(waza):
    write(SUITE.replace("id: good", "id: first").replace("hello you", "nothing"))
    done = waza("run", "--fail-fast")
    assert done.returncode == 1
    assert "task 'first' did not pass" in done.stderr
    assert re.search(r"continue with:  waza run eval.yaml --resume \d{8}-", done.stderr)


def test_skip_graders_then_grade_later_without_the_agent(waza):
    write(SUITE)
    done = waza("run", "--skip-graders")
    assert "2 not graded" in done.stdout
    write(SUITE.replace("executor: mock", "executor: command, command: ['false']"))
    done = waza("grade", "latest")
    assert done.returncode == 1
    assert "1 of 2 tasks passed" in done.stdout


def test_grade_recorded_traces_by_task_id_and_by_prompt(waza):
    write(SUITE.replace("prompt: hi, mock", "prompt: other, mock"))
    traces = [
        {"input": "hi", "output": "hello"},
        {"input": "other", "output": "bye"},
        {"task_id": "good", "input": "?", "output": "no"},
    ]
    write("\n".join(map(json.dumps, traces)), "traces.jsonl")
    done = waza("grade", "traces.jsonl", "--json")
    tree = json.loads(done.stdout)
    assert [(task["test_id"], len(task["runs"])) for task in tree["tasks"]] == [("good", 2), ("bad", 1)]
    write(json.dumps({"input": "who knows", "output": "x"}), "one.json")
    done = waza("grade", "one.json")
    assert done.returncode == 2 and "which task is this trace of?" in done.stderr


def test_a_broken_trace_names_its_line(waza):
    write(SUITE)
    write('{"task_id": "good", "input": "hi", "output": "hello"}\n{"input": 5}\n', "traces.jsonl")
    done = waza("grade", "traces.jsonl")
    assert done.returncode == 2
    assert "traces.jsonl:2: not a trace" in done.stderr


def test_show_a_run_a_task_and_a_trial(waza):
    write(SUITE)
    waza("run", "--trials", "2")
    assert "1 of 2 tasks passed" in waza("show").stdout
    task = waza("show", "latest", "--task", "bad").stdout
    assert task.count("answered") == 2 and "Found forbidden substring: bye" in task
    trial = waza("show", "latest", "--task", "bad", "--trial", "2").stdout
    assert "bad · trial 2 · failed" in trial and "transcript" in trial
    done = waza("show", "latest", "--task", "bda")
    assert "did you mean 'bad'?" in done.stderr
    assert json.loads(waza("show", "--json").stdout)["summary"]["total_tests"] == 2


def test_list_graders_engines_tasks_and_runs(waza):
    write(SUITE)
    waza("run", "-q")
    assert "Check the output for texts and patterns" in waza("list").stdout
    assert "mock" in waza("list", "engines").stdout
    assert "says_hello" in waza("list", "tasks").stdout
    assert "1 of 2" in waza("list", "runs").stdout
    isolation = [json.loads(line) for line in waza("list", "isolation", "--json").stdout.splitlines()]
    assert {row["none"] for row in isolation} <= {"open", "cannot be determined"}
    assert {row["promise"] for row in isolation} >= {"network", "unix_sockets", "write", "attributes", "read"}
    assert json.loads(waza("list", "tasks", "--json").stdout.split("\n")[0])["task"] == "good"


def test_several_models_give_a_run_each_and_a_table(waza, tmp_path):
    write(SUITE)
    done = waza("run", "--model", "m1", "--model", "m2", "-q", "-o", "r.json")
    assert done.returncode == 1
    assert re.search(r"m1\s+1 of 2.*\nm2\s+1 of 2", done.stdout)
    assert json.loads((tmp_path / "r_m2.json").read_text())["config"]["model_id"] == "m2"
    for printed in (["--json"], ["--reporter", "json:-"]):
        lines = waza("run", "--model", "m1", "--model", "m2", *printed).stdout.splitlines()
        assert [json.loads(line)["config"]["model_id"] for line in lines] == ["m1", "m2"], "one document a line"


def test_a_run_can_be_replayed_instead_of_an_agent(waza, tmp_path):
    write(SUITE)
    waza("run", "-q")
    [folder] = [path for path in (tmp_path / "runs").iterdir() if path.is_dir()]
    write(SUITE.replace("hello you", "changed"))
    done = waza("run", "--replay", folder)
    assert "1 of 2 tasks passed" in done.stdout, done.stdout + done.stderr


def test_output_survives_a_terminal_that_knows_ascii_only(waza):
    write(SUITE)
    done = waza("run", env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
    assert done.returncode == 1
    assert "FAIL" in done.stdout


def test_a_read_only_results_folder_is_found_before_anything_runs(waza, tmp_path):
    write(SUITE)
    (tmp_path / "runs").write_text("in the way")
    done = waza("run")
    assert done.returncode == 3
    assert "nothing was run" in done.stderr


@pytest.mark.parametrize("kind", ["eval", "task", "project", "mock"])
def test_the_schema_accepts_what_init_writes_and_refuses_a_slip(waza, tmp_path, kind):
    import jsonschema_rs

    from waza.untrusted.yaml import read_yaml

    waza("init")
    schema = json.loads(waza("schema", kind).stdout)
    validator = jsonschema_rs.Draft202012Validator(schema)
    files = {"eval": "eval.yaml", "task": "tasks/greet.yaml", "project": ".waza.yaml"}
    data = {"default": {"output": "x"}} if kind == "mock" else read_yaml((tmp_path / files[kind]).read_text(), "x")
    plain = json.loads(json.dumps(data))
    assert [error.message for error in validator.iter_errors(plain)] == []
    assert not validator.is_valid(plain | {"nonsense": 1})


def test_the_schema_knows_the_keys_of_each_grader(waza):
    import jsonschema_rs

    schema = json.loads(waza("schema").stdout)
    validator = jsonschema_rs.Draft202012Validator(schema)
    good = {"graders": [{"type": "text", "config": {"contains": ["a"]}}, {"type": "code", "assertions": ["output"]}]}
    assert validator.is_valid(good)
    assert not validator.is_valid({"graders": [{"type": "text", "config": {"contians": ["a"]}}]})
    assert not validator.is_valid({"graders": [{"type": "txt"}]})


def test_docs_are_written_and_checked(waza, tmp_path):
    assert waza("docs", "-o", "reference").returncode == 0
    page = (tmp_path / "reference/graders/text.md").read_text()
    assert "| `contains` | list of text | none | Texts that must appear, in any case. |" in page
    assert (tmp_path / "reference/commands.md").is_file()
    done = waza("docs", "--check")
    assert done.returncode == 0, done.stdout


def test_completion_scripts_are_printed(waza):
    for shell in ("bash", "zsh", "fish"):
        assert "_WAZA_COMPLETE" in waza("completion", shell).stdout


def test_grading_names_tasks_that_are_gone_and_counts_those_without_a_trace_as_not_run(waza):
    write(SUITE)
    waza("run", "-q")
    write(SUITE.replace("id: bad", "id: renamed"))
    done = waza("grade", "latest")
    assert done.returncode == 3
    assert "no longer in the suite, not graded: bad" in done.stderr


def test_grading_keeps_secrets_out_of_its_run_folder(waza, tmp_path):
    write(SUITE)
    write(json.dumps({"task_id": "good", "input": "hi", "output": "hello sk-secret-0123456789"}), "one.json")
    waza("grade", "one.json", env={"MY_API_TOKEN": "sk-secret-0123456789"})
    for file in (tmp_path / "runs").rglob("*.json*"):
        assert "sk-secret-0123456789" not in file.read_text(), file


def test_a_mistake_at_the_top_does_not_hide_those_in_tasks(waza):
    write(SUITE.replace("name: suite", "hooks: {before_run: [{comand: x}]}").replace("prompt: hi", "promt: hi"))
    said = waza("check").stdout
    assert "comand" in said and said.count("promt") == 4


def test_grading_again_leaves_agents_that_could_not_run_undecided(waza):
    write(SUITE.replace('{output: "bye', '{error: "down", output: "bye'))
    first = json.loads(waza("run", "--json").stdout)["summary"]
    again = json.loads(waza("grade", "latest", "--json").stdout)["summary"]
    for key in ("succeeded", "errors", "weighted_score", "score_low", "score_high"):
        assert first[key] == again[key], key


def test_the_files_of_a_trial_are_listed_and_can_be_laid_out(waza, tmp_path):
    write(SUITE.replace('{output: "hello you"}', '{output: "hello you", files: {out/a.txt: "left"}}'))
    waza("run", "-q")
    assert "out/a.txt" in waza("show", "--task", "good", "--trial", "1").stdout
    assert waza("show", "--task", "good", "--trial", "1", "--files", "laid").returncode == 0
    assert (tmp_path / "laid/out/a.txt").read_text() == "left"


def test_a_reader_that_goes_away_does_not_change_the_verdict(waza, tmp_path):
    import subprocess
    import sys

    write(SUITE.split("  - {id: bad")[0])
    line = f"{sys.executable} -m waza run | head -1; exit ${{PIPESTATUS[0]}}"
    assert subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True).returncode == 0


def test_a_folder_that_cannot_be_written_is_a_sentence_not_a_bug(waza, tmp_path):
    (tmp_path / "tasks").write_text("in the way")
    done = waza("init")
    assert done.returncode == 2 and "crash" not in done.stderr


def test_a_stray_folder_among_the_runs_disturbs_nobody(waza, tmp_path):
    write(SUITE)
    waza("run", "-q")
    (tmp_path / "runs/zzz").mkdir()
    assert waza("show").returncode == 0


LOUD = """
import ctypes, os, subprocess, sys
print("at import")

def answer(prompt):
    print("print")
    sys.__stdout__.write("dunder\\n")
    os.write(1, b"raw\\n")
    subprocess.run(["echo", "child"])
    libc = ctypes.CDLL(None)
    libc.puts(b"from C")
    libc.fflush(None)
    return "hello"
"""
LOUD_SUITE = SUITE.replace("executor: mock", "executor: python, agent: 'loud:answer'") + (
    "hooks: {before_run: [{command: echo from a hook}]}\n"
)


@pytest.mark.parametrize("words", [["--json"], ["-qo-"], ["-o", "-"], ["--reporter", "json:-"]])
def test_nothing_but_the_result_reaches_standard_output(waza, words):
    write(LOUD_SUITE)
    write(LOUD, "loud.py")
    done = waza("run", *words)
    assert done.returncode == 0
    assert [task["status"] for task in json.loads(done.stdout)["tasks"]] == ["passed", "passed"]
    for text in ("at import", "print", "dunder", "raw", "child", "from C"):
        assert text in done.stderr, text


def test_a_reader_of_the_result_that_goes_away_does_not_change_the_exit_code(waza, tmp_path):
    write(SUITE)
    environment = os.environ | {"PATH": warm_cli.path()}
    line = "waza run --json | true; exit ${PIPESTATUS[0]}"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr, "Broken" in done.stderr) == (1, False, False)
