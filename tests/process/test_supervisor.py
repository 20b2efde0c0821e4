"""Nothing of a program is left: not daemons, not what ignores signals or forks for ever, whoever is killed first.

Every test sees the hostile processes alive before it looks for survivors, and the first one shows that the usual way
of ending programs leaves survivors that this way of looking finds.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from campaign import count, size
from waza.process.descendants import children_listed, children_scanned
from waza.process.run_program import Limits, base_environment, run_process, run_program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives this promise")

HOSTILE = Path(__file__).parents[1] / "data" / "hostile"
DAEMONS = {"plain", "setsid", "daemon", "quietdaemon"}
ENV = base_environment({}, home=None)


class Lair:
    """A folder in which hostile processes leave a mark as long as they live."""

    def __init__(self, folder):
        self.folder = folder
        self.agent = ["bash", str(HOSTILE / "evil_agent.sh"), str(folder)]
        self.comet = f"{sys.executable} -I -S {HOSTILE / 'comet.py'} {folder} & "
        self.wait_for_word = f"while [ ! -e {folder}/word ]; do sleep 0.05; done; "

    def marks(self):
        return {path.name: path.stat().st_mtime_ns for path in self.folder.iterdir()} if self.folder.exists() else {}

    def alive(self):
        """The marks that are being made."""
        before = self.marks()
        time.sleep(0.4)
        return {name for name, when in self.marks().items() if before.get(name, 0) != when}

    def wait_for(self, names):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if names <= self.alive():
                return
        raise AssertionError(f"never saw {names} alive, only {self.alive()}")

    def give_word(self):
        (self.folder / "word").touch()

    def pids(self):
        return [pid for pid in all_pids() if os.fsencode(self.folder) in read(f"/proc/{pid}/cmdline")]

    def clean_up(self):
        (self.folder / "stop").touch()
        for pid in self.pids():
            kill(pid)


@pytest.fixture
def lair(tmp_path):
    folder = tmp_path / "lair"
    folder.mkdir()
    lair = Lair(folder)
    yield lair
    survivors = len(lair.pids())
    lair.clean_up()
    count("surviving processes", survivors)


def all_pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read(path):
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def below(pid):
    found = []
    level = [pid]
    while level:
        level = [child for parent in level for child in children_listed(parent)]
        found += level
    return found


def zygotes():
    return [pid for pid in below(os.getpid()) if b"waza.process.supervisor" in read(f"/proc/{pid}/cmdline")]


def in_thread(*argv, **options):
    """Run a program in a thread; return the thread and the list that its result comes into."""
    results = []
    options = {"cwd": "/", "env": ENV, "timeout_s": 60, **options}
    thread = threading.Thread(target=lambda: results.append(run_program(list(argv), **options)))
    thread.start()
    return thread, results


def test_the_usual_way_leaves_survivors_and_they_are_seen(lair):
    agent = subprocess.Popen(lair.agent, start_new_session=True, stdout=subprocess.DEVNULL)
    lair.wait_for(DAEMONS)
    os.killpg(agent.pid, signal.SIGTERM)
    os.killpg(agent.pid, signal.SIGKILL)
    agent.wait()
    assert lair.alive() == DAEMONS - {"plain"}
    assert len(lair.pids()) >= 3
    lair.clean_up()
    wait_until(lambda: not lair.pids())


def test_nothing_is_left_when_time_runs_out(lair):
    thread, results = in_thread(*lair.agent, timeout_s=3)
    lair.wait_for(DAEMONS)
    thread.join()
    assert lair.alive() == set()
    assert lair.pids() == []
    done = results[0]
    assert (done.timed_out, done.stdout.text) == (True, "started\n")
    assert done.leftovers >= 4


def test_nothing_is_left_of_a_process_that_forks_for_ever(lair):
    thread, results = in_thread("sh", "-c", lair.comet * 2 + "sleep 60", timeout_s=2)
    lair.wait_for({"comet"})
    thread.join()
    assert lair.alive() == set()
    assert results[0].timed_out


def test_nothing_is_left_when_a_program_ends_well_but_leaves_daemons(lair):
    script = f"{lair.comet} bash {HOSTILE}/evil_agent.sh {lair.folder} & {lair.wait_for_word} echo done"
    thread, results = in_thread("sh", "-c", script)
    lair.wait_for({*DAEMONS, "comet"})
    lair.give_word()
    thread.join()
    assert lair.alive() == set()
    assert lair.pids() == []
    done = results[0]
    assert done.ok
    assert done.leftovers >= 5


def test_nothing_is_left_when_the_task_is_cancelled(lair):
    async def cancel_it():
        task = asyncio.create_task(run_process(lair.agent, cwd="/", env=ENV, timeout_s=60))
        await asyncio.to_thread(lair.wait_for, DAEMONS)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return lair.pids()

    assert asyncio.run(cancel_it()) == []
    assert lair.alive() == set()


def test_nothing_is_left_when_the_listener_breaks(lair):
    def listen(chunk):
        lair.wait_for(DAEMONS)
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        run_program(lair.agent, cwd="/", env=ENV, timeout_s=60, on_output=listen)
    assert lair.pids() == []
    assert lair.alive() == set()


def test_nothing_is_left_when_the_listener_in_an_event_loop_breaks(lair):
    def listen(chunk):
        lair.wait_for(DAEMONS)
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        asyncio.run(run_process(lair.agent, cwd="/", env=ENV, timeout_s=60, on_output=listen))
    assert lair.pids() == []


PARENT = """
import asyncio, sys
from waza.process.run_program import base_environment, run_process
asyncio.run(run_process(sys.argv[1:], cwd="/", env=base_environment({}, home=None), timeout_s=60))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_when_waza_itself_is_killed(lair, number):
    script = f"{lair.comet} exec bash {HOSTILE}/evil_agent.sh {lair.folder}"
    parent = subprocess.Popen([sys.executable, "-c", PARENT, "sh", "-c", script])
    lair.wait_for({*DAEMONS, "comet"})
    supervisors = [pid for pid in below(parent.pid) if b"waza.process.supervisor" in read(f"/proc/{pid}/cmdline")]
    assert len(supervisors) >= 2
    parent.send_signal(number)
    parent.wait()
    wait_until(lambda: not lair.pids() and not any(map(is_there, supervisors)))
    assert lair.alive() == set()
    assert [pid for pid in supervisors if is_there(pid)] == []


@pytest.mark.campaign
def test_nothing_is_left_of_a_thousand_hostile_agents(lair):
    agents = size(200, 200, 1_000)
    script = f"{lair.comet} exec bash {HOSTILE}/evil_agent.sh {lair.folder}"
    with ThreadPoolExecutor(10) as pool:
        watched = pool.submit(lair.wait_for, {*DAEMONS, "comet"})
        timeouts = [0.2 + 0.005 * (number % 200) for number in range(agents)]
        runs = pool.map(lambda limit: run_program(["sh", "-c", script], cwd="/", env=ENV, timeout_s=limit), timeouts)
        assert all(done.timed_out and not done.error for done in runs)
        watched.result()
    count("hostile agents", agents)
    assert lair.alive() == set()
    assert lair.pids() == []


@pytest.mark.campaign
def test_nothing_is_left_when_waza_is_killed_at_any_moment(lair):
    script = f"{lair.comet} exec bash {HOSTILE}/evil_agent.sh {lair.folder}"
    for number in range(40):
        parent = subprocess.Popen([sys.executable, "-c", PARENT, "sh", "-c", script])
        time.sleep(0.025 * number)
        parent.kill()
        parent.wait()
        count("kill -9 of waza beside a hostile agent")
    wait_until(lambda: not lair.pids())
    assert lair.alive() == set()


def wait_until(true):
    deadline = time.monotonic() + 10
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)


def is_there(pid):
    return b"waza.process.supervisor" in read(f"/proc/{pid}/cmdline")


def test_nothing_is_left_when_the_program_kills_its_supervisor(lair):
    script = f"bash {HOSTILE}/evil_agent.sh {lair.folder} & {lair.comet} {lair.wait_for_word} kill -9 $PPID; sleep 60"
    thread, results = in_thread("sh", "-c", script)
    lair.wait_for({*DAEMONS, "comet"})
    lair.give_word()
    thread.join()
    assert lair.alive() == set()
    assert lair.pids() == []
    assert "supervisor was killed" in results[0].trouble
    assert run_program(["true"], cwd="/", env=ENV, timeout_s=30).ok


def test_nothing_is_left_when_the_supervisor_of_supervisors_is_killed(lair):
    thread, results = in_thread(*lair.agent)
    lair.wait_for(DAEMONS)
    kill(zygotes()[0])
    thread.join()
    assert lair.alive() == set()
    assert lair.pids() == []
    assert "supervisor was killed" in results[0].trouble
    assert [run_program(["true"], cwd="/", env=ENV, timeout_s=30).ok for _ in range(3)] == [True] * 3


def test_idle_supervisors_that_are_killed_are_replaced():
    for _ in range(3):
        assert run_program(["true"], cwd="/", env=ENV, timeout_s=30).ok
        for pid in zygotes():
            kill(pid)
    assert run_program(["true"], cwd="/", env=ENV, timeout_s=30).ok


@pytest.mark.campaign
def test_a_program_that_stops_its_supervisor_is_ended_all_the_same(lair):
    thread, results = in_thread("sh", "-c", f"{lair.comet} kill -STOP $PPID; sleep 600", timeout_s=1)
    lair.wait_for({"comet"})
    thread.join()
    assert lair.alive() == set()
    assert "supervisor" in results[0].trouble


def test_helpers_that_finish_by_themselves_are_let_finish():
    script = "exec > >(sleep 0.05; cat); echo through the helper"
    done = run_program(["bash", "-c", script], cwd="/", env=ENV, timeout_s=30)
    assert (done.stdout.text, done.leftovers) == ("through the helper\n", 0)


def test_files_hold_still_once_a_program_has_ended(tmp_path):
    flip = "while :; do echo good > verdict; echo bad > verdict; done"
    for _ in range(5):
        done = run_program(["sh", "-c", f"({flip}) & sleep 0.05"], cwd=tmp_path, env=ENV, timeout_s=30)
        assert done.leftovers == 1
        before = (tmp_path / "verdict").stat().st_mtime_ns
        time.sleep(0.05)
        assert (tmp_path / "verdict").stat().st_mtime_ns == before


def test_a_bomb_of_processes_is_defused(lair):
    bomb = [sys.executable, "-I", "-S", "-c", "import os, time; [os.fork() for _ in range(8)]; time.sleep(60)"]
    done = run_program([*bomb, str(lair.folder)], cwd="/", env=ENV, timeout_s=60, limits=Limits(processes=60))
    assert "more than 60 processes" in done.trouble
    assert lair.pids() == []


def test_a_fork_of_waza_has_supervisors_of_its_own():
    assert run_program(["true"], cwd="/", env=ENV, timeout_s=30).ok
    ours = zygotes()
    pid = os.fork()
    if not pid:
        code = 9
        try:
            done = run_program(["sh", "-c", "exit 5"], cwd="/", env=ENV, timeout_s=30)
            code = 0 if done.exit_code == 5 and not set(zygotes()) & set(ours) else 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert run_program(["true"], cwd="/", env=ENV, timeout_s=30).ok


def test_both_ways_of_finding_children_agree():
    with subprocess.Popen(["sleep", "30"]) as child:
        assert child.pid in children_listed(os.getpid())
        assert sorted(children_scanned()(os.getpid())) == sorted(children_listed(os.getpid()))
        child.kill()
