"""With too little memory, too few files or processes a command ends with one sentence and code 3, and loses nothing."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

resource = pytest.importorskip("resource", reason="this system has no resource limits")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits are counted differently elsewhere")

LIMITED = """
import resource, sys
from waza.cli import run_command
kind, limit, after, *arguments = sys.argv[1:]
if after == "imports":  # the command is loaded already; what it needs beyond that is what it lacks
    run_command([*arguments[:1], "--help"])
    import asyncio, uvicorn, waza.runner.run, waza.runs.store, waza.server.app, waza.reports.table
    print("\\f", flush=True)
limit = int(limit)
if kind == "RLIMIT_AS":
    limit += int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
elif kind == "RLIMIT_NOFILE":
    import os
    limit += len(os.listdir("/proc/self/fd")) - 1
resource.setrlimit(getattr(resource, kind), (limit, limit))
sys.exit(run_command(arguments))
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    folder = tmp_path_factory.mktemp("suite")
    (folder / "eval.yaml").write_text(
        "name: s\nconfig: {executor: mock}\ntasks_from: tasks.jsonl\n"
        "graders: [{type: text, name: says, config: {contains: [Hello]}}]\n"
    )
    (folder / "mock.yaml").write_text("default: {echo: true}\n")
    rows = (json.dumps({"id": f"t{number}", "prompt": f"Hello {number}"}) for number in range(20))
    (folder / "tasks.jsonl").write_text("\n".join(rows))
    done = subprocess.run([sys.executable, "-m", "waza", "run", "."], cwd=folder, capture_output=True, timeout=120)
    assert done.returncode == 0
    return folder


def limited(kind, limit, *arguments, suite, after="imports", user=()):
    command = [*user, sys.executable, "-c", LIMITED, kind, str(limit), after, *arguments]
    return subprocess.run(command, cwd=suite, capture_output=True, text=True, timeout=120)


def said(done):
    assert "Traceback" not in done.stderr and "a bug in waza" not in done.stderr, done.stderr
    assert "never awaited" not in done.stderr
    return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ""


@pytest.mark.parametrize("arguments", [["run", "."], ["show"], ["grade", "."], ["serve", "--port", "0"]])
def test_too_few_open_files(suite, arguments):
    done = limited("RLIMIT_NOFILE", 0, *arguments, suite=suite)
    assert "`ulimit -n`" in said(done)
    assert done.returncode == 3


def test_too_little_memory(suite):
    rows = suite / "tasks.jsonl"
    before = rows.read_text()
    rows.write_text(before + "\n" + json.dumps({"id": "large", "prompt": "x" * (64 << 20)}))
    try:
        done = limited("RLIMIT_AS", 20 << 20, "run", ".", suite=suite)
    finally:
        rows.write_text(before)
    assert "`ulimit -v`" in said(done)
    assert done.returncode == 3
    done = limited("RLIMIT_AS", 1 << 20, "run", ".", suite=suite, after="nothing")
    assert "`ulimit -v`" in said(done)
    assert done.returncode == 3


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
        "name: a\nconfig: {executor: command, command: [echo, Hello]}\n"
        "tasks: [{id: one, prompt: x}]\ngraders: [{type: text, name: says, config: {contains: [Hello]}}]\n"
    )
    done = limited("RLIMIT_NPROC", 1, "run", ".", suite=suite, user=user)
    shutil.rmtree(suite)
    said(done)
    assert "`ulimit -u`" in done.stdout + done.stderr, done
    assert done.returncode == 3


def test_a_run_that_lacks_files_halfway_can_be_finished(tmp_path):
    """What it stored stays, what it could not do is undecided, and both are in the run that goes on afterwards."""
    (tmp_path / "eval.yaml").write_text(
        "name: a\nconfig: {executor: command, command: [sh, -c, 'sleep 0.2; echo Hello'], workers: 12}\n"
        "tasks_from: tasks.jsonl\ngraders: [{type: text, name: says, config: {contains: [Hello]}}]\n"
    )
    (tmp_path / "tasks.jsonl").write_text("\n".join(json.dumps({"id": f"t{n}", "prompt": "x"}) for n in range(12)))
    done = limited("RLIMIT_NOFILE", 30, "run", ".", suite=tmp_path)
    said(done)
    assert done.returncode == 3
    assert "oo many open files" in done.stdout + done.stderr or "`ulimit -n`" in done.stdout + done.stderr
    (run,) = (tmp_path / "runs").glob("*/journal.jsonl")
    command = [sys.executable, "-m", "waza", "run", ".", "--resume", "--rerun-errors"]
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert again.returncode == 0, again.stderr
    assert [*(tmp_path / "runs").glob("*/journal.jsonl")] == [run]
