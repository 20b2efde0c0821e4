"""With too little memory, too few files or processes a command ends with one sentence and code 3, and loses nothing."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

resource = pytest.importorskip("resource", reason="this system has no resource limits")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits are counted differently elsewhere")

LIMITED = """
import hashlib, json, os, resource, sys  # hashlib prints lines of its own where its libraries cannot be loaded
from waza.cli import run_command
from waza.cli._screen import console
kind, extra, after, *commands = sys.argv[1:]
if after == "imports":  # the commands are loaded already; what they need beyond that is what they lack
    for command in commands:
        run_command([command.split()[0], "--help"])
    import asyncio, numpy, uvicorn, waza.runner.run, waza.runner.regrade, waza.runs.store, waza.server.app
    import waza.reports.table, waza.analysis.compare, waza.suites.load
kind = getattr(resource, kind)
soft, hard = resource.getrlimit(kind)
for command in commands:
    limit = int(extra)
    if kind == resource.RLIMIT_AS:
        limit += int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    elif kind == resource.RLIMIT_NOFILE:
        limit += len(os.listdir("/proc/self/fd")) - 1
    console.cache_clear()
    print("\\f", flush=True)
    print("\\f", file=sys.stderr, flush=True)
    resource.setrlimit(kind, (limit, hard))
    try:
        code = run_command(command.split())
    finally:
        resource.setrlimit(kind, (soft, hard))
    print(f"\\nended with {code}", flush=True)
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """A suite with trigger tests, run once; one of its prompts is large."""
    folder = tmp_path_factory.mktemp("suite")
    (folder / "eval.yaml").write_text(
        "name: s\nskill: greet\nconfig: {executor: mock}\ntasks_from: tasks.jsonl\n"
        "graders: [{type: text, name: says, config: {contains: [Hello]}}]\n"
    )
    (folder / "mock.yaml").write_text("default: {echo: true}\n")
    (folder / "trigger_tests.yaml").write_text("skill: greet\nshould_trigger_prompts: [{prompt: greet me}]\n")
    (folder / "skills/greet").mkdir(parents=True)
    (folder / "skills/greet/SKILL.md").write_text("---\nname: greet\ndescription: Greets people.\n---\nSay hello.\n")
    prompts = [*(f"Hello {number}" for number in range(20)), "Hello " + "x" * (12 << 20)]
    rows = (json.dumps({"id": f"t{number}", "prompt": prompt}) for number, prompt in enumerate(prompts))
    (folder / "tasks.jsonl").write_text("\n".join(rows))
    command = [sys.executable, "-m", "waza", "run", ".", "--task", "t*"]
    assert subprocess.run(command, cwd=folder, capture_output=True, timeout=120).returncode == 0
    return folder


class Ended(NamedTuple):
    command: str
    code: int
    output: str
    said: str
    """The last line on standard error."""


def limited(kind, extra, *commands, suite, after="imports", user=()):
    """Return how each command ended, and what it said at last, in one process that lacks something while it runs."""
    command = [*user, sys.executable, "-c", LIMITED, kind, str(extra), after, *commands]
    done = subprocess.run(command, cwd=suite, capture_output=True, text=True, timeout=300)
    assert "Traceback" not in done.stderr and "a bug in waza" not in done.stderr, done.stderr
    assert "never awaited" not in done.stderr
    shown, told = done.stdout.split("\f")[1:], done.stderr.split("\f")[1:]
    return [
        Ended(command, int(out.rsplit("ended with ", 1)[1]), out + err, (err.strip().splitlines() or [""])[-1])
        for command, out, err in zip(commands, shown, told, strict=True)
    ]


COMMANDS = ["run .", "show", "show --json", "grade latest", "check .", "trigger .", "gate --min-score 0.5"]


def test_too_few_open_files(suite):
    commands = [*COMMANDS, "compare latest latest", "serve --port 0"]
    for one in limited("RLIMIT_NOFILE", 0, *commands, suite=suite):
        assert one.code == 3 and "`ulimit -n`" in one.said, one
    assert_nothing_is_lost(suite)


def test_too_little_memory(suite):
    found = limited("RLIMIT_AS", 6 << 20, *COMMANDS, suite=suite)
    for one in found + limited("RLIMIT_AS", 1 << 20, "run .", suite=suite, after="nothing"):
        assert one.code == 3 and "`ulimit -v`" in one.said, one
    assert_nothing_is_lost(suite)


def assert_nothing_is_lost(suite):
    """The run that was there before is readable, and counts what it counted."""
    first = min(path for path in (suite / "runs").iterdir() if path.is_dir())
    done = subprocess.run([sys.executable, "-m", "waza", "show", first.name], cwd=suite, capture_output=True, text=True)
    assert done.returncode == 0 and "21 of 21 tasks passed" in done.stdout, done


def test_too_few_processes():
    """The kernel lets root have as many as it wants, so root becomes somebody else, who may read what root may."""
    user = []
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("root needs setpriv to become somebody else")
        rights = "+dac_override,+dac_read_search"
        user = ["setpriv", "--reuid=54321", "--clear-groups", f"--inh-caps={rights}", f"--ambient-caps={rights}"]
    suite = Path(tempfile.mkdtemp())  # pytest's own folders are closed to others
    suite.chmod(0o777)
    (suite / "eval.yaml").write_text(
        "name: a\nconfig: {executor: command, command: [echo, Hello]}\ntasks: [{id: one, prompt: x}]\n"
        "graders: [{type: text, name: says, config: {contains: [Hello]}}, {type: program, config: {command: 'true'}}]\n"
    )
    (suite / "trace.jsonl").write_text('{"task_id": "one", "input": "x", "output": "Hello"}\n')
    found = limited("RLIMIT_NPROC", 1, "run . -v", "grade trace.jsonl --eval . -v", suite=suite, user=user)
    shutil.rmtree(suite)
    for one in found:
        assert one.code == 3 and "`ulimit -u`" in one.output, one


def test_a_run_that_lacks_files_halfway_can_be_finished(tmp_path):
    """What it stored stays, what it could not do is undecided, and both are in the run that goes on afterwards."""
    (tmp_path / "eval.yaml").write_text(
        "name: a\nconfig: {executor: command, command: [sh, -c, 'sleep 0.2; echo Hello'], workers: 12}\n"
        "tasks_from: tasks.jsonl\ngraders: [{type: text, name: says, config: {contains: [Hello]}}]\n"
    )
    (tmp_path / "tasks.jsonl").write_text("\n".join(json.dumps({"id": f"t{n}", "prompt": "x"}) for n in range(12)))
    [done] = limited("RLIMIT_NOFILE", 30, "run .", suite=tmp_path)
    assert done.code == 3 and ("oo many open files" in done.output or "`ulimit -n`" in done.output), done
    (run,) = (tmp_path / "runs").glob("*/journal.jsonl")
    command = [sys.executable, "-m", "waza", "run", ".", "--resume", "--rerun-errors"]
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert again.returncode == 0, again.stderr
    assert [*(tmp_path / "runs").glob("*/journal.jsonl")] == [run]
