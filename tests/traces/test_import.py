"""`waza import` as a user meets it."""

import json
import os
import subprocess
import sys

import pytest
from trace_recordings import FOLDER

from waza.model import Trace
from waza.traces.reading import read_trace

PROGRAM = "import sys, waza.cli as c; c.COMMANDS['import'] = ''; sys.exit(c.run_command(['import', *sys.argv[1:]]))"


@pytest.fixture
def waza_import(tmp_path):
    def call(*arguments, stdin=b""):
        environment = os.environ | {"NO_COLOR": "1", "COLUMNS": "120"}
        command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, input=stdin, timeout=100)

    return call


def test_traces_go_to_standard_output_and_what_they_are_beside_it(waza_import):
    done = waza_import(FOLDER / "codex-fail.jsonl", FOLDER / "pydantic-ai-fail.json")
    assert done.returncode == 0
    first, second = map(Trace.from_json, done.stdout.splitlines())
    assert first == read_trace(FOLDER / "codex-fail.jsonl")
    assert second == read_trace(FOLDER / "pydantic-ai-fail.json")
    told = done.stderr.decode()
    assert "codex-fail.jsonl: Codex exec --json (1 trace), 2 tool calls" in told
    assert "pydantic-ai-fail.json: pydantic-ai messages (1 trace), 2 tool calls" in told


def test_standard_input_a_file_and_a_task(waza_import, tmp_path):
    text = (FOLDER / "gemini-hello.jsonl").read_bytes()
    done = waza_import("-", "-o", "traces.jsonl", "--task", "greet", "--quiet", stdin=text)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    [line] = (tmp_path / "traces.jsonl").read_text().splitlines()
    assert json.loads(line)["task_id"] == "greet"
    assert Trace.from_json(line).tool_events == read_trace(FOLDER / "gemini-hello.jsonl").tool_events


def test_what_is_missing_is_said(waza_import):
    lines = (FOLDER / "codex-fail.jsonl").read_bytes().splitlines(keepends=True)
    done = waza_import("-", stdin=b"".join(lines[:6]))
    assert done.returncode == 0
    told = done.stderr.decode()
    assert "-: 1 of 2 tool calls have no result: command_execution" in told
    assert "-: the recording ends early: its `turn.completed` event is missing" in told
    assert json.loads(done.stdout)["reading_notes"]


def test_one_file_that_is_no_recording_does_not_stop_the_others(waza_import, tmp_path):
    (tmp_path / "notes.txt").write_text("dear \x1b[31mdiary")
    done = waza_import("notes.txt", FOLDER / "codex-hello.jsonl", "gone.jsonl")
    assert done.returncode == 2
    assert len(done.stdout.splitlines()) == 1
    told = done.stderr.decode()
    assert "notes.txt: not a trace, nor a recording that is recognised: it starts with 'dear" in told
    assert "gone.jsonl: cannot be read: No such file or directory" in told
    assert "\x1b" not in told and "Traceback" not in told


def test_a_folder_is_all_the_recordings_in_it(waza_import, tmp_path):
    (tmp_path / "d/e").mkdir(parents=True)
    for place, name in (("d", "codex-hello.jsonl"), ("d/e", "pydantic-ai-fail.json")):
        (tmp_path / place / name).write_bytes((FOLDER / name).read_bytes())
    (tmp_path / "d/notes.txt").write_text("no recording")
    done = waza_import("d")
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 2
    (tmp_path / "empty").mkdir()
    assert b"empty holds no recordings" in waza_import("empty").stderr


def test_a_file_is_not_written_over_itself(waza_import, tmp_path):
    (tmp_path / "run.jsonl").write_bytes((FOLDER / "codex-hello.jsonl").read_bytes())
    done = waza_import("run.jsonl", "-o", "run.jsonl")
    assert done.returncode == 2 and b"cannot be read and written at once" in done.stderr
    assert (tmp_path / "run.jsonl").stat().st_size > 0


def test_an_output_that_cannot_be_written(waza_import):
    done = waza_import(FOLDER / "codex-hello.jsonl", "-o", "no/such/folder/x.jsonl")
    assert done.returncode == 2
    assert b"x.jsonl: cannot be written: No such file or directory" in done.stderr


def test_help_has_an_example(waza_import):
    assert b"Example:" in waza_import("--help").stdout
