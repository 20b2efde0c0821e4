"""The process that evaluates Python assertions: what it may not reach, and what happens when it ends."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from canaries import Canaries

from campaign import count
from waza.untrusted.python_assertions import evaluate

HOSTILE = json.loads((Path(__file__).parent.parent / "data" / "hostile" / "assertions.json").read_text())


CONTEXT = HOSTILE["context"]


linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_what_only_shows_while_running_is_undecided_and_not_failed():
    sources = ["('{0.__cl' + 'ass__}').format(output)", "output.encode('cp0' + '37')", "list[int].append == 1"]
    for ended in evaluate(sources, CONTEXT):
        assert ended.ok is None
        assert "not available in assertions" in ended.message


@linux
def test_the_worker_has_nothing_but_two_pipes_and_a_bounded_memory():
    evaluate(["1 == 1"], {})
    workers = [pid for pid in Canaries._children() if b"evaluator" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert workers
    for worker in workers:  # one for each grade that ran at the same time
        status = Path(f"/proc/{worker}/status").read_text()
        limits = Path(f"/proc/{worker}/limits").read_text()
        assert "NoNewPrivs:\t1" in status
        assert "Seccomp:\t2" in status
        assert re.search(r"Max open files +0 +0", limits)
        assert re.search(r"Max address space +536870912 +536870912", limits)
        assert {os.readlink(fd).split(":")[0] for fd in Path(f"/proc/{worker}/fd").iterdir()} == {"pipe", "/dev/null"}
        assert Path(f"/proc/{worker}/environ").read_bytes().split(b"=")[0] == b"PYTHONHASHSEED"


@linux
def test_code_that_escapes_the_language_reaches_no_file_program_or_socket(tmp_path):
    attempts = [
        f"open({str(tmp_path / 'x')!r}, 'w')",
        "open('/etc/passwd')",
        "__import__('os').fork()",
        "__import__('os').execv('/bin/true', ['true'])",
        "__import__('os').kill(__import__('os').getppid(), 9)",
        "__import__('socket').socket()",
        "__import__('os').pipe()",
        "__import__('os').listdir('/')",
    ]
    script = f"""
import os, socket, sys
import waza.untrusted.python_evaluator as evaluator
evaluator.drop_privileges()
for attempt in {attempts!r}:
    try:
        eval(attempt)
        os.write(1, attempt.encode())
    except OSError:
        os.write(1, b".")
"""
    written = run_script(script).stdout
    count("escape attempts", len(attempts))
    count("contacts with anything outside", len(attempts) - written.count("."))
    assert written == "." * len(attempts)


@linux
def test_a_worker_that_is_killed_leaves_one_assertion_undecided_and_the_next_ones_run():
    ends = []
    sources = ["1 == 1", "all(x < 10**13 for x in range(10**12))", "2 == 2"]
    evaluate(sources[:1], {})
    work = threading.Thread(target=lambda: ends.extend(evaluate(sources, {}, limit_s=30)))
    work.start()
    time.sleep(1)
    workers = [pid for pid in Canaries._children() if b"evaluator" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert workers
    for pid in workers:
        os.kill(pid, 9)
    work.join(30)
    assert ends == [(True, ""), (None, "ended its worker process"), (True, "")]


def run_script(script):
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_has_workers_of_its_own():
    script = """
import os, sys, warnings
warnings.simplefilter("ignore")
from waza.untrusted.python_assertions import evaluate
evaluate(["1 == 1"], {})
if (child := os.fork()) == 0:
    os._exit(0 if evaluate(["1 == 1"], {})[0].ok else 1)
assert os.waitpid(child, 0)[1] == 0
assert evaluate(["1 == 1"], {})[0].ok
"""
    run = run_script(script)
    assert (run.returncode, run.stderr) == (0, "")
