"""Files that graders name are part of what a result was made from: a changed one is noticed, whatever reads it."""

import json
import sys
from pathlib import Path

import pytest

import waza
from waza.analysis.changes import paired
from waza.analysis.compare import ComparisonMode, graded_differently, suite_of
from waza.cli import run_command
from waza.runner.resume import changes
from waza.runs.store import read_run
from waza.suites.load import load_spec

SKILL = "---\nname: s\ndescription: 'USE FOR: {}'\n---\nhello\n"
GRADERS = {
    "program": ("{command: sh, args: [check.sh]}", "check.sh", "exit 0\n", "exit 1\n"),
    "program of a path": ("{command: /bin/sh, args: [check.sh]}", "check.sh", "exit 0\n", "exit 1\n"),
    "program of the suite": ("{command: ./check.sh}", "check.sh", "#!/bin/sh\nexit 0\n", "#!/bin/sh\nexit 1\n"),
    "script": ("{script: check.py}", "check.py", "print(1)\n", "print(2)\n"),
    "json_schema": ("{schema_file: shape.json}", "shape.json", '{"type": "object"}', '{"type": "array"}'),
    "diff": ("{expected_files: [{path: a, snapshot: kept.txt}]}", "kept.txt", "one\n", "two\n"),
    "trigger": ("{skill_path: SKILL.md, mode: positive}", "SKILL.md", SKILL.format("hello"), SKILL.format("bye")),
}


def write(folder, kind, *, checkpoint=False):
    config, name, content, _ = GRADERS[kind]
    (folder / ".waza.yaml").touch()
    (folder / name).write_text(content)
    (folder / name).chmod(0o755)
    grader = f"graders: [{{type: {kind.split()[0]}, name: g, config: {config}}}]"
    where = f"checkpoints: [{{after_turn: 1, {grader}}}], expected: {{task_completed: true}}" if checkpoint else grader
    other = "{id: b, prompt: hello, mock: {output: '{}'}, expected: {task_completed: true}}"
    (folder / "eval.yaml").write_text(
        f"config: {{executor: mock}}\ntasks:\n  - {other}\n"
        f"  - {{id: a, prompt: hello, mock: {{output: '{{}}', files: {{a: x}}}}, {where}}}\n"
    )
    return folder / name


@pytest.mark.parametrize("kind", GRADERS)
def test_a_changed_file_of_a_grader_changes_what_its_task_was_graded_by(tmp_path, kind):
    file = write(tmp_path, kind)
    before = load_spec(tmp_path).as_data()
    assert list(changes(before, load_spec(tmp_path).as_data())) == []
    file.write_text(GRADERS[kind][3])
    [(task, [field])] = changes(before, load_spec(tmp_path).as_data())
    assert (task, field.replace("./", "")) == ("a", f"graders ({file.name})")


def test_so_does_one_that_is_looked_at_in_the_middle_of_a_conversation(tmp_path):
    file = write(tmp_path, "json_schema", checkpoint=True)
    before = load_spec(tmp_path).as_data()
    file.write_text("true")
    assert list(changes(before, load_spec(tmp_path).as_data())) == [("a", ["graders (shape.json)"])]


def test_a_moved_project_is_the_same(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, "program")
    assert list(changes(load_spec(tmp_path / "one").as_data(), load_spec(tmp_path / "two").as_data())) == []


def test_graders_without_files_store_nothing_more(tmp_path):
    (tmp_path / "eval.yaml").write_text("tasks: [{id: a, prompt: x, expected: {task_completed: true}}]\n")
    [entry] = load_spec(tmp_path).as_data()["graders"]["a"]
    assert "files" not in entry


def test_snapshots_that_are_to_be_written_are_no_part_of_it(tmp_path):
    write(tmp_path, "diff")
    [entry] = load_spec(tmp_path, update_snapshots=True).as_data()["graders"]["a"]
    assert "files" not in entry


def test_resume_lists_the_file_and_runs_that_task_again(tmp_path, capsys):
    file = write(tmp_path, "program")
    assert run_command(["run", str(tmp_path), "-q"]) == 0
    assert run_command(["run", str(tmp_path), "-q", "--resume"]) == 0
    file.write_text("exit 1\n")
    capsys.readouterr()
    assert run_command(["run", str(tmp_path), "-q", "--resume"]) == 2
    assert "a: graders (check.sh) changed since" in capsys.readouterr().err.replace("\n", " ")
    assert run_command(["run", str(tmp_path), "-q", "--resume", "--rerun-changed"]) == 1
    capsys.readouterr()


def test_a_run_from_before_files_were_noted_is_read_and_says_so_when_resumed(tmp_path, capsys):
    write(tmp_path, "json_schema")
    assert run_command(["run", str(tmp_path), "-q"]) == 0
    assert run_command(["run", str(tmp_path), "-q"]) == 0
    newer, older = (read_run(folder) for folder in sorted((tmp_path / "runs").glob("2*"), reverse=True))
    data = json.loads(Path(older.folder, "run.json").read_text())
    del data["spec"]["graders"]["a"][0]["files"]
    Path(older.folder, "run.json").write_text(json.dumps(data))
    older = read_run(older.folder)
    assert len(older.results) == 2
    assert run_command(["show", older.folder]) == 0
    (a,) = [pair for pair in paired(older, newer).pairs if pair.before.id == "a"]
    assert graded_differently(older, newer, [a]) == []
    assert [task.id for task in suite_of(older, ["a"], ComparisonMode()).tasks] == ["a"]
    capsys.readouterr()
    assert run_command(["run", str(tmp_path), "-q", "--resume", older.id]) == 2
    said = capsys.readouterr().err.replace("\n", " ")
    assert "a: graders (shape.json: its earlier content is not known) changed since" in said


REACHED = """
config: {{executor: command, workers: 1, command: [sh, -c, 'cd {folder} && {does}; echo no']}}
tasks:
  - {{id: a, prompt: x, inputs: {{files: [{{path: in.txt}}]}}}}
graders:
  - type: program
    name: program
    config: {{command: {python}, args: [graders/check.py], may_change: [log.txt, "out/*"]}}
  - {{type: script, name: script, config: {{script: graders/check.py, may_change: [log.txt, out]}}}}
"""
CHECK = """
import json, pathlib, sys
import helpers
data = pathlib.Path("data")
allowed = (data / "allowed.txt").read_text().split() + [file.stem for file in data.glob("*.ok")]
said = sys.stdin.read()
pathlib.Path("log.txt").write_text(said)
passed = helpers.passes("no", allowed)
print(json.dumps({"score": float(passed), "passed": passed}))
sys.exit(0 if passed or "workspace_dir" in said else 1)
"""
REACHES = {
    "a module": ("sed -i s/in/or/ graders/helpers.py", "graders/helpers.py"),
    "a data file": ("echo no >> data/allowed.txt", "data/allowed.txt"),
    "a file of the same length": ("printf no > data/allowed.txt", "data/allowed.txt"),
    "a module in the way of another": ("echo 'def dumps(x): return 1' > graders/json.py", "graders/json.py"),
    "a new data file": ("touch data/no.ok", "data/no.ok"),
    "a removed file": ("rm data/allowed.txt", "data/allowed.txt"),
    "a link": ("ln -sf /etc/hostname data/allowed.txt", "data/allowed.txt"),
    "what it may change": ("touch log.txt; mkdir -p out/deep; touch out/deep/x", ""),
    "what only looks changed": ("touch data/allowed.txt", ""),
    "compiled modules": (
        "python3 -c \"import py_compile, os; open('h.py', 'w').write('def passes(a, b): return True\\n'); "
        "import importlib.util; target = importlib.util.cache_from_source('graders/helpers.py'); "
        "py_compile.compile('h.py', target, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH); "
        "os.remove('h.py')\"",
        "",
    ),
}


@pytest.mark.parametrize("reach", REACHES)
def test_an_agent_that_reaches_what_a_program_grades_by_decides_nothing(tmp_path, reach):
    """Modules and data beside the script, and everything beside the eval file, are as they were before it started."""
    does, name = REACHES[reach]
    for folder in ("graders", "data", "fixtures"):
        (tmp_path / folder).mkdir()
    (tmp_path / ".waza.yaml").touch()
    (tmp_path / "fixtures" / "in.txt").write_text("in")
    (tmp_path / "data" / "allowed.txt").write_text("ok")
    (tmp_path / "graders" / "helpers.py").write_text("def passes(word, allowed):\n    return word in allowed\n")
    (tmp_path / "graders" / "check.py").write_text(CHECK)
    suite = REACHED.format(folder=tmp_path, does=does.replace("'", "''"), python=Path(sys.executable).name)
    (tmp_path / "eval.yaml").write_text(suite)
    run = waza.run(tmp_path, trials=1)
    grades = run.results[0].grades
    assert [grade.status for grade in grades] == ["error" if name else "failed"] * 2, [one.feedback for one in grades]
    if name:
        assert all(f"changed after the run began: {name}" in grade.feedback for grade in grades)


def test_input_files_and_sources_that_an_agent_changed_are_not_used_for_the_next_trial(tmp_path):
    (tmp_path / ".waza.yaml").touch()
    (tmp_path / "fixtures").mkdir()
    (tmp_path / "fixtures" / "in.txt").write_text("the question")
    agent = f"[sh, -c, 'cat in.txt; echo the answer > {tmp_path}/fixtures/in.txt']"
    (tmp_path / "eval.yaml").write_text(
        f"config: {{executor: command, workers: 1, command: {agent}}}\n"
        "tasks: [{id: a, prompt: x, inputs: {files: [{path: in.txt}]}}]\n"
        "graders: [{type: text, contains: [the question]}]\n"
    )
    first, second = waza.run(tmp_path, trials=2).results
    assert (first.status, second.status) == ("passed", "error")
    assert "input files changed after the run began: fixtures/in.txt" in second.reason


def test_what_programs_and_hooks_write_while_no_agent_works_is_theirs(tmp_path):
    """With one worker it is accepted; among several trials nobody can tell, so it has to be named."""
    (tmp_path / ".waza.yaml").touch()
    (tmp_path / "check.sh").write_text("cat seen.txt task.txt; echo x >> seen.txt; grep -q x seen.txt\n")
    (tmp_path / "seen.txt").write_text("")
    suite = (
        "config: {executor: command, workers: %d, parallel: %s, command: [sh, -c, 'sleep 0.2; %s']}\n"
        "hooks: {before_task: [{command: sh -c 'date +%%N > task.txt'}]}\n"
        "tasks: [{id: a, prompt: x}]\n"
        "graders: [{type: program, name: g, config: {command: sh, args: [check.sh]}}]\n"
    )
    (tmp_path / "eval.yaml").write_text(suite % (1, "false", ":"))
    assert [result.status for result in waza.run(tmp_path, trials=3).results] == ["passed"] * 3
    (tmp_path / "eval.yaml").write_text(suite % (3, "true", ":"))
    assert "error" in [result.status for result in waza.run(tmp_path, trials=3).results]
    tampers = f"echo x > {tmp_path}/seen.txt"
    (tmp_path / "eval.yaml").write_text(suite % (1, "false", tampers))
    assert [result.status for result in waza.run(tmp_path, trials=2).results] == ["error"] * 2
