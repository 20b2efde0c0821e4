"""Files that graders name are part of what a result was made from: a changed one is noticed, whatever reads it."""

import json
from pathlib import Path

import pytest

from waza.cli import run_command
from waza.results.stats.pairs import paired
from waza.results.store import read_run
from waza.runner.resume import changes
from waza.runner.yardstick import How, graded_otherwise, suite_of
from waza.spec.load import load_spec

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
    assert graded_otherwise(older, newer, [a]) == []
    assert [task.id for task in suite_of(older, ["a"], How()).tasks] == ["a"]
    capsys.readouterr()
    assert run_command(["run", str(tmp_path), "-q", "--resume", older.id]) == 2
    said = capsys.readouterr().err.replace("\n", " ")
    assert "a: graders (shape.json: not known what it held then) changed since" in said
