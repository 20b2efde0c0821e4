"""`waza grade FILE|FOLDER|-`: any number of recordings, one at a time; what cannot be graded is told."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

RECORDINGS = Path(__file__).parent.parent / "data" / "recordings"
SUITE = """
name: suite
config: {executor: mock}
graders: [{type: text, config: {contains: [hello]}}, {type: max_tool_calls, config: {max_tool_calls: 20}}]
tasks: [{id: a, prompt: one}, {id: b, prompt: two}]
"""


@pytest.fixture
def suite(tmp_path):
    (tmp_path / ".waza.yaml").touch()
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals/eval.yaml").write_text(SUITE)
    return tmp_path


def trace(task="a", output="hello", **more):
    return json.dumps({"task_id": task, "input": "x", "output": output, "tool_events": [], **more}) + "\n"


def trials(folder):
    """How many results the newest run's journal holds."""
    *_, newest = sorted((folder / "evals/runs").glob("*/journal.jsonl"))
    return sum(b'"kind":"result"' in line for line in newest.read_bytes().splitlines())


@pytest.mark.parametrize("option", ["--graders", "--eval"])
def test_a_file_a_folder_and_standard_input_give_the_same(waza, suite, option):
    text = trace() + trace("b") + trace("b", "no")
    (suite / "traces").mkdir()
    (suite / "traces/all.jsonl").write_text(text)
    for source in ("traces/all.jsonl", "traces", "-"):
        done = waza("grade", source, option, "evals/eval.yaml", input_text=text)
        assert done.returncode == 1, done.stderr
        assert "1 of 2 tasks passed" in done.stdout
        assert trials(suite) == 3


def test_recordings_of_several_agents_in_one_folder(waza, suite):
    (suite / "traces").mkdir()
    for agent in ("codex", "gemini", "pi"):
        (suite / f"traces/{agent}.jsonl").write_bytes((RECORDINGS / f"{agent}-hello.jsonl").read_bytes())
    done = waza("grade", "traces", "--graders", "evals", "--task", "a")
    assert done.returncode == 0, done.stdout + done.stderr
    assert trials(suite) == 3


def test_one_broken_line_or_file_does_not_cost_the_others(waza, suite):
    (suite / "traces").mkdir()
    (suite / "traces/1.jsonl").write_text(trace() + '{"input": 5}\n' + trace())
    (suite / "traces/2.json").write_text('{"name": "some-package"}')
    (suite / "traces/3.jsonl").write_text(trace("b") + trace("nobody"))
    done = waza("grade", "traces", "--graders", "evals")
    assert done.returncode == 2
    assert "2 of 2 tasks passed" in done.stdout, "what is sound is graded and shown"
    assert "traces/1.jsonl:2: not a trace" in done.stderr
    assert "traces/2.json: not a trace, nor a recording that is recognised" in done.stderr
    assert "traces/3.jsonl (trace 2): which task is this trace of?" in done.stderr


def test_tasks_that_no_recording_is_of_are_named(waza, suite):
    (suite / "t.jsonl").write_text(trace())
    done = waza("grade", "t.jsonl", "--graders", "evals")
    assert done.returncode == 3
    assert "not run, no recording: b (--task chooses tasks)" in done.stderr


def test_run_folders_and_hidden_ones_are_no_recordings(waza, suite):
    (suite / "evals/t.jsonl").write_text(trace() + trace("b"))
    (suite / "evals/.cache").mkdir()
    (suite / "evals/.cache/x.json").write_text("{}")
    for _ in range(2):
        done = waza("grade", "evals", "--graders", "evals")
        assert done.returncode == 0, done.stderr
        assert trials(suite) == 2, "the run of the first round is not read as a recording"


def test_very_many_troubles_are_counted(waza, suite):
    (suite / "t.jsonl").write_text(trace() + trace("nobody") * 500)
    told = waza("grade", "t.jsonl", "--graders", "evals").stderr
    assert told.count("which task is this trace of?") == 10
    assert "and 490 more that could not be graded" in told


def test_a_trial_says_which_recording_it_is(waza, suite):
    (suite / "t").mkdir()
    (suite / "t/one.jsonl").write_text(trace() + trace(output="no"))
    (suite / "t/two.jsonl").write_text(trace(output="no") + trace("b"))
    shown = waza("grade", "t", "--graders", "evals").stdout
    assert "trial 2  t/one.jsonl (trace 2)" in shown and "trial 3  t/two.jsonl (trace 1)" in shown


def test_nothing_to_grade_is_said(waza, suite):
    done = waza("grade", "-", input_text=trace())
    assert done.returncode == 2 and "which graders? name a suite with --graders" in done.stderr
    (suite / "empty").mkdir()
    done = waza("grade", "empty", "--graders", "evals")
    assert done.returncode == 2 and "empty holds no recordings" in done.stderr
    done = waza("grade", "-", "--graders", "evals", input_text="")
    assert done.returncode == 2 and "standard input: it is empty" in done.stderr
    done = waza("grade", "gone.jsonl", "--graders", "evals")
    assert done.returncode == 2 and "gone.jsonl" in done.stderr


def test_the_first_failed_trials_are_shown_and_the_rest_is_counted(waza, suite):
    (suite / "t.jsonl").write_text(trace(output="no") * 30 + trace("b"))
    shown = waza("grade", "t.jsonl", "--graders", "evals").stdout
    assert shown.count("trial ") == 10
    assert "… 20 more trials: waza show" in shown and "--task a" in shown
    assert waza("grade", "t.jsonl", "--graders", "evals", "-v").stdout.count("trial ") == 30


def many(path, count):
    events = [{"tool_name": "bash", "args": {"command": f"ls {n}"}, "result": "x" * 80} for n in range(20)]
    line = trace(output="hello " + "y" * 2000, tool_events=events)
    with path.open("w") as file:
        for _ in range(count):
            file.write(line)


def peak_kb(suite, count):
    """The peak memory of grading so many traces."""
    many(suite / "many.jsonl", count)
    code = (
        "import os, sys; p = os.fork()\n"
        "if not p: os.execv(sys.executable, [sys.executable, '-m', 'waza', *sys.argv[1:]])\n"
        "print(os.wait4(p, 0)[2].ru_maxrss, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "grade", "many.jsonl", "--graders", "evals"]
    done = subprocess.run(command, cwd=suite, capture_output=True, text=True, timeout=300)
    assert f"{count} trials" in done.stdout, done.stderr
    return int(done.stderr.splitlines()[-1])


def test_memory_stays_flat_however_many_traces_there_are(suite):
    few, more = peak_kb(suite, 250), peak_kb(suite, 3000)
    size_kb = (suite / "many.jsonl").stat().st_size // 1024
    assert size_kb > 12_000
    assert more - few < size_kb / 2, "holding the traces would take more than their text"


def test_a_terminal_gets_a_bar_and_a_pipe_gets_lines(suite):
    many(suite / "many.jsonl", 300)
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "waza", "grade", "many.jsonl", "--graders", "evals"]
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {
        "TERM": "xterm",
        "COLUMNS": "120",
    }
    with subprocess.Popen(command, cwd=suite, env=environment, stdout=subprocess.PIPE, stderr=follower) as process:
        os.close(follower)
        seen = b""
        while piece := _read(leader):
            seen += piece
        process.communicate(timeout=100)
    assert "━".encode() in seen and b"graded" in seen
    done = subprocess.run(command, cwd=suite, capture_output=True, timeout=100)
    assert "━".encode() not in done.stderr and b"\x1b" not in done.stderr


def _read(fd):
    try:
        return os.read(fd, 65536)
    except OSError:
        return b""


def test_a_stored_run_outside_the_project_can_be_replayed_when_the_caller_names_it(waza, suite, tmp_path_factory):
    outside = tmp_path_factory.mktemp("elsewhere")
    (outside / "a.json").write_text(trace())
    (outside / "b.json").write_text(trace("b"))
    done = waza("run", "evals", "--replay", outside)
    assert done.returncode == 0, done.stderr
    text = SUITE.replace("executor: mock", f"executor: replay, replay: {outside}")
    (suite / "evals/eval.yaml").write_text(text)
    done = waza("run", "evals")
    assert done.returncode == 2 and "leaves the project's folder" in done.stderr, "a spec may not"
