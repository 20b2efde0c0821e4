"""A paid answer is never discarded: an agent that leaves its files unreadable keeps its output, cost and grades."""

import ctypes
import json
import os
import sys
from contextlib import contextmanager

import pytest

import waza
from waza.cli import run_command
from waza.runs.outcomes import outcomes_of
from waza.runs.store import read_run
from waza.runs.summary import summarize

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="rights are taken from root as Linux does it")
_OVERRIDES = 1 << 1 | 1 << 2
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: what lets root read any file."""


class _Caps(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable")]


@contextmanager
def like_any_user():
    """Let this thread, and those it starts, obey the rights of files though root runs the tests."""
    if os.geteuid():
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header, caps = (ctypes.c_uint32 * 2)(0x20080522, 0), (_Caps * 2)()
    assert libc.capget(header, caps) == 0
    before = caps[0].effective
    caps[0].effective = before & ~_OVERRIDES
    assert libc.capset(header, caps) == 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        caps[0].effective = before
        assert libc.capset(header, caps) == 0


LINE = '{"output": "yes", "tool_events": [], "usage": {"cost_usd": 0.5, "input_tokens": 7, "output_tokens": 2}}'
DEEP = "/".join(["d" * 200] * 6)
GRADERS = [
    {"type": "text", "name": "answer", "config": {"contains": ["yes"]}},
    {"type": "file", "name": "open", "config": {"must_exist": ["open.txt"]}},
    {"type": "file", "name": "closed", "config": {"content_patterns": [{"path": "in/a.txt", "must_match": ["A"]}]}},
    {"type": "file", "name": "absent", "config": {"must_not_exist": ["in/b.txt"]}},
    {"type": "diff", "name": "compared", "config": {"expected_files": [{"path": "in/a.txt", "contains": ["A"]}]}},
    {"type": "program", "name": "program", "config": {"command": "true"}},
]
CASES = {
    # What the agent does at its end, and what the graders come to, in order.
    "nothing": ("true", "passed passed passed passed passed passed"),
    "a closed file": ("chmod 000 in/a.txt", "passed passed error passed error error"),
    "a closed folder": ("chmod 000 in", "passed passed error error error error"),
    "a folder that can be listed, not entered": ("chmod 444 in", "passed passed error error error error"),
    "a closed workspace": ('chmod 000 "$PWD"', "passed error error error error error"),
    "a workspace that can be listed, not entered": ('chmod 444 "$PWD"', "passed error error error error error"),
    "a workspace that is gone": ('rm -r "$PWD"', "passed failed failed passed failed passed"),
    "a file in its place": ('d=$PWD; cd /; rm -r "$d"; echo > "$d"', "passed failed failed passed failed passed"),
    "a path too long": (f"d={DEEP}; mkdir -p $d && cd $d && mkdir x", "passed passed passed passed passed error"),
    "things that are no files": ("mkfifo p; ln -s p l; ln -s nowhere n", "passed passed passed passed passed passed"),
    "a name that is no text": ("printf x > \"$(printf 'b\\\\377')\"", "passed passed passed passed passed passed"),
}  # fmt: skip


@pytest.mark.parametrize(("ending", "statuses"), CASES.values(), ids=CASES)
def test_what_can_be_graded_is_graded_and_the_rest_is_undecided(suite, capsys, ending, statuses):
    script = f"echo > open.txt; mkdir in; echo A > in/a.txt; echo '{LINE}'; {ending}"
    config = {"executor": "command", "command": ["sh", "-c", script], "output_format": "jsonl", "max_attempts": 3}
    folder = suite(json.dumps({"config": config, "tasks": [{"id": "t", "prompt": "x"}], "graders": GRADERS}))
    with like_any_user():
        run = waza.run(folder)
    [result] = run.results
    assert [grade.status for grade in result.grades] == statuses.split(), [grade.feedback for grade in result.grades]
    assert (result.trace.output, result.trace.status, result.attempts) == ("yes", "success", 1)
    assert outcomes_of(run.results)[0].costs.total_usd == summarize(run).cost_usd == 0.5
    wanted = {"failed": "failed", "error": "error"}
    assert result.status == next((status for key, status in wanted.items() if key in statuses), "passed")
    stored = read_run(run.folder)
    assert stored.results[0].grades == result.grades
    capsys.readouterr()
    assert run_command(["show", run.folder, "--task", "t", "--trial", "1"]) == 0
    said = capsys.readouterr().out
    if "error" in statuses:
        assert "not readable" in said or "not all of it" in said


def test_what_could_not_be_read_is_reported_once(suite, capsys):
    script = f"for n in 1 2 3; do echo > $n; chmod 000 $n; done; echo '{LINE}'"
    config = {"executor": "command", "command": ["sh", "-c", script], "output_format": "jsonl"}
    folder = suite(json.dumps({"config": config, "tasks": [{"id": "t", "prompt": "x"}], "graders": GRADERS[:1]}))
    with like_any_user():
        assert run_command(["run", str(folder)]) == 0
    told = capsys.readouterr()
    fact = "task 't': the workspace was not kept in full: '1': Permission denied, and 2 more like it"
    assert (told.out + told.err).replace("\n", " ").count(fact) == 1


def test_an_answer_is_kept_and_graded_where_its_files_cannot_be_stored(suite, capsys):
    """The place for them is taken, as a full disk would have it; the next agent is not paid for nothing."""
    folder = suite("")
    script = (
        f"cd {folder}/runs/*/ && rmdir artifacts && : > artifacts; cd - > /dev/null; echo > open.txt; echo '{LINE}'"
    )
    config = {"executor": "command", "command": ["sh", "-c", script], "output_format": "jsonl"}
    tasks = [{"id": name, "prompt": "x"} for name in ("first", "second")]
    suite(json.dumps({"config": config, "tasks": tasks, "graders": GRADERS[:2]}))
    assert run_command(["run", str(folder)]) == 3
    said = capsys.readouterr().err
    assert "cannot be stored; 1 result kept" in said and "graders of its files cannot decide" in said
    run = read_run(next((folder / "runs").glob("2*")))
    [result] = run.results
    assert (result.trace.output, result.trace.status, result.status) == ("yes", "success", "error")
    assert [grade.status for grade in result.grades] == ["passed", "error"]
    assert summarize(run).cost_usd == 0.5
