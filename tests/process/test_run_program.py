"""One program: how it is started, what it gets, how its end is told."""

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from waza.process.run_program import Limits, base_environment, run_process, run_program

pytestmark = pytest.mark.skipif(os.name == "nt", reason="programs are not contained on Windows")


def run(*argv, cwd="/", env=None, timeout_s=30, **options):
    environment = base_environment({}, home=None) if env is None else env
    return run_program(list(map(str, argv)), cwd=cwd, env=environment, timeout_s=timeout_s, **options)


def sh(script, **options):
    return run("sh", "-c", script, **options)


def python(script, **options):
    return run(sys.executable, "-I", "-S", "-c", textwrap.dedent(script), **options)


def executable(path, content):
    path.write_text(content)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


# how it ends


def test_a_program_that_ends_well_is_ok():
    done = sh("cat; echo oops >&2", stdin=b"hello")
    assert (done.ok, done.exit_code, done.signal, done.trouble) == (True, 0, None, "")
    assert (done.stdout.text, done.stderr.text) == ("hello", "oops\n")
    assert (done.leftovers, done.timed_out, done.isolation) == (0, False, "none")
    assert done.duration_ms > 0


@pytest.mark.parametrize("code", [1, 2, 77, 125])
def test_a_code_of_its_own_is_the_programs_verdict_and_no_trouble(code):
    done = sh(f"exit {code}")
    assert (done.exit_code, done.ok, done.trouble) == (code, False, "")


@pytest.mark.parametrize(
    ("script", "trouble"),
    [
        ("exit 126", "cannot be executed"),
        ("exit 127", "was not found"),
        ("kill -SEGV $$", "SIGSEGV"),
        ("kill -KILL $$", "SIGKILL"),
    ],
)
def test_an_end_that_is_no_verdict_is_trouble(script, trouble):
    done = sh(script)
    assert trouble in done.trouble
    assert not done.ok


def test_a_signal_is_told_apart_from_an_exit_code():
    done = sh("kill -TERM $$")
    assert (done.exit_code, done.signal) == (None, signal.SIGTERM)


def test_a_program_out_of_time_is_ended_and_what_it_printed_is_kept():
    done = sh("echo begun; sleep 60", timeout_s=0.3)
    assert (done.timed_out, done.stdout.text, done.ok) == (True, "begun\n", False)
    assert "time limit" in done.trouble
    assert 300 <= done.duration_ms < 8_000


def test_a_program_that_cleans_up_when_asked_to_end_gets_to_do_it():
    done = python(
        """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("saved")))
        print("ready", flush=True)
        time.sleep(60)
        """,
        timeout_s=1,
    )
    assert (done.timed_out, done.stdout.text) == (True, "ready\nsaved\n")


def test_a_program_that_stops_itself_is_ended():
    done = sh("kill -STOP $$", timeout_s=0.3)
    assert done.timed_out


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf")])
def test_a_time_limit_that_is_none_is_refused(timeout_s):
    with pytest.raises(ValueError, match="time limit"):
        sh("true", timeout_s=timeout_s)


def test_a_limit_of_nothing_is_refused():
    with pytest.raises(ValueError, match="above 0"):
        sh("true", limits=Limits(processes=0))


# how it starts


def test_a_name_is_looked_up_on_the_path_that_the_program_gets(tmp_path):
    executable(tmp_path / "here", "#!/bin/sh\necho found\n")
    assert run("here", env={"PATH": f"/nowhere:{tmp_path}"}).stdout.text == "found\n"


def test_a_name_that_is_not_found_says_where_it_was_looked_for():
    done = run("no-such-program", env={"PATH": "/usr/bin:/bin"})
    assert done.error == "'no-such-program' was not found on PATH (/usr/bin:/bin)"
    assert (done.trouble, done.exit_code, done.ok) == (done.error, None, False)


def test_the_folder_it_starts_in_is_not_searched_for_it(tmp_path):
    executable(tmp_path / "planted", "#!/bin/sh\necho hijacked\n")
    for path in (".", "", ":", f".:{tmp_path}/bin"):
        assert "not found" in run("planted", cwd=tmp_path, env={"PATH": path}).error


def test_a_relative_path_starts_in_the_folder(tmp_path):
    executable(tmp_path / "tool", "#!/bin/sh\npwd\n")
    assert run("./tool", cwd=tmp_path).stdout.text.strip() == str(tmp_path)


def test_what_cannot_be_executed_says_why(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("hello")
    cases = {
        plain: "not executable",
        tmp_path: "not executable",
        tmp_path / "absent": "No such file",
        executable(tmp_path / "text", "hello"): "first line",
        executable(tmp_path / "lost", "#!/no/such/interpreter\n"): "interpreter",
    }
    for path, reason in cases.items():
        done = run(path)
        assert reason in done.error, path
        assert done.exit_code is None


def test_a_folder_that_is_not_there_is_named(tmp_path):
    assert f"'{tmp_path}/absent'" in sh("true", cwd=tmp_path / "absent").error


def test_no_shell_reads_the_arguments():
    assert run("echo", "$(id); `id`", "a b", "*").stdout.text == "$(id); `id` a b *\n"


@pytest.mark.parametrize("argument", ["a\0b", "\ud800"])
def test_an_argument_that_no_program_can_get_is_an_error_not_an_exception(argument):
    assert "could not be started" in run("echo", argument).error
    assert "could not be started" in run(argument).error


def test_bytes_that_are_not_unicode_arrive_as_they_are():
    assert run("printf", "%s", os.fsdecode(b"\xff\xfe")).stdout.text == "\ufffd\ufffd"


def test_a_variable_that_cannot_be_one_is_an_error():
    assert "cannot be the name" in run("/bin/true", env={"A=B": "1"}).error


def test_more_arguments_than_the_system_takes_are_an_error():
    assert "too long" in run("true", "x" * 3_000_000).error


def test_the_worker_is_as_good_as_new_after_a_start_that_failed():
    assert "No such file" in run("/no/such/program").error
    assert sh("true").ok


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_signals_are_at_their_default():
    ignored = int(sh("grep SigIgn /proc/self/status").stdout.text.split()[1], 16)
    assert ignored & 0x7FFFFFFF == 0


# its streams


def test_a_program_that_never_reads_its_input_cannot_hold_us_up():
    assert sh("true", stdin=b"x" * 50_000_000).ok
    assert sh("exec <&-; sleep 0.1", stdin=b"x" * 50_000_000).ok
    assert sh("sleep 60", stdin=b"x" * 50_000_000, timeout_s=0.3).timed_out


def test_a_program_that_reads_slowly_gets_all_of_its_input():
    assert sh("sleep 0.2; wc -c", stdin=b"x" * 3_000_001).stdout.text.strip() == "3000001"


def test_input_and_output_larger_than_any_pipe_do_not_wait_for_each_other():
    done = run("cat", stdin=b"0123456789" * 300_000, limits=Limits(output_bytes=None))
    assert done.stdout.text == "0123456789" * 300_000


def test_without_input_there_is_an_end_at_once():
    assert sh("cat; echo end").stdout.text == "end\n"


def test_a_program_that_closes_its_output_early_is_waited_for():
    done = sh("exec >&- 2>&-; sleep 0.2; exit 7")
    assert done.exit_code == 7


def test_there_is_no_terminal_to_ask_for_a_password():
    done = sh("read -r answer < /dev/tty && echo asked")
    assert (done.stdout.text, done.timed_out) == ("", False)


def test_output_that_never_ends_is_cut_by_the_time_limit():
    done = run("yes", timeout_s=0.5)
    assert done.timed_out
    assert done.stdout.omitted_bytes > 0
    assert done.stdout.text.startswith("y\ny\n")


def test_head_and_tail_of_both_streams_are_kept():
    done = python(
        "import sys\nfor i in range(50_000): print('out', i); print('err', i, file=sys.stderr)",
        limits=Limits(output_bytes=10_000),
    )
    for name, stream in (("out", done.stdout), ("err", done.stderr)):
        assert stream.head.startswith(f"{name} 0\n{name} 1\n")
        assert stream.tail.endswith(f"{name} 49999\n")
        assert f"{stream.omitted_bytes} bytes omitted" in stream.text


PEAK = """
import resource, sys
from waza.process.run_program import base_environment, run_program
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
run = lambda command: run_program(command, cwd="/", env=base_environment({}, home=None), timeout_s=300)
run(["true"])
before = peak()
done = run(["head", "-c", sys.argv[1], "/dev/zero"])
assert done.ok and done.stdout.total_bytes == int(sys.argv[1]), done
len(done.stdout.text)
print((peak() - before) * (1 if sys.platform == "darwin" else 1024))
"""


def peak_growth(count):
    done = subprocess.run([sys.executable, "-c", PEAK, str(count)], capture_output=True, text=True, timeout=300)
    assert not done.stderr
    return int(done.stdout)


def test_a_flood_of_output_costs_little_memory():
    assert peak_growth(200_000_000) < 64 << 20


@pytest.mark.campaign
def test_a_gigabyte_of_output_costs_little_memory():
    assert peak_growth(1 << 30) < 64 << 20


def test_whoever_else_holds_the_output_is_not_waited_for(tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{tmp_path}/s")
        listener.listen()
        listener.settimeout(30)
        held = []

        def take_hold():
            with listener.accept()[0] as giver:
                held.extend(socket.recv_fds(giver, 1, 1)[1])

        thread = threading.Thread(target=take_hold)
        thread.start()
        script = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({f'{tmp_path}/s'!r}); "
        done = python(script + "socket.send_fds(s, [b'x'], [1]); print('mine')")
        thread.join()
    os.close(held[0])
    assert (done.stdout.text, done.ok) == ("mine\n", True)


def test_output_can_be_watched_as_it_comes():
    async def watch():
        seen = []
        done = await run_process(
            ["sh", "-c", "echo one; sleep 0.3; echo two"],
            cwd="/",
            env=base_environment({}, home=None),
            timeout_s=30,
            on_output=lambda chunk: seen.append((chunk, threading.current_thread())),
        )
        return seen, done

    seen, done = asyncio.run(watch())
    assert [chunk for chunk, _ in seen] == [b"one\n", b"two\n"]
    assert {thread for _, thread in seen} == {threading.main_thread()}
    assert done.stdout.text == "one\ntwo\n"


# what it may use


def test_memory_is_limited():
    hungry = "x = bytearray(600_000_000); print('had it')"
    assert python(hungry).stdout.text == "had it\n"
    done = python(hungry, limits=Limits(memory_bytes=300_000_000))
    assert "MemoryError" in done.stderr.text


def test_the_size_of_a_file_is_limited(tmp_path):
    copy = ("dd", "if=/dev/zero", "of=big", "bs=64k", "count=32")
    assert run(*copy, cwd=tmp_path).ok
    done = run(*copy, cwd=tmp_path, limits=Limits(file_bytes=1_000_000))
    assert done.signal == signal.SIGXFSZ
    assert (tmp_path / "big").stat().st_size <= 1_000_000


def test_the_number_of_processes_is_limited_for_root_too():
    many = "for i in $(seq 40); do sleep 60 & done; wait"
    done = sh(many, limits=Limits(processes=20), timeout_s=60)
    assert "more than 20 processes" in done.trouble
    assert not done.timed_out


def test_a_limit_can_not_be_raised_again():
    if os.getuid() == 0:
        pytest.skip("root may raise any limit")
    done = sh("ulimit -f unlimited", limits=Limits(file_bytes=1_000_000))
    assert done.exit_code != 0


def test_there_are_no_core_files():
    assert sh("ulimit -c").stdout.text == "0\n"


# its environment


def test_secrets_and_hijackers_of_our_own_environment_stay_out(monkeypatch):
    hijackers = ["PYTHONPATH", "PYTHONSTARTUP", "LD_PRELOAD", "LD_AUDIT", "BASH_ENV", "ENV", "NODE_OPTIONS", "PERL5OPT"]
    hijackers += ["RUBYOPT", "GIT_DIR", "GIT_CONFIG_GLOBAL", "GIT_SSH_COMMAND", "SSH_AUTH_SOCK", "JAVA_TOOL_OPTIONS"]
    for name in [*hijackers, "OPENAI_API_KEY", "MY_TOKEN", "CI", "GITHUB_TOKEN"]:
        monkeypatch.setenv(name, "canary")
    done = run("env")
    assert "canary" not in done.stdout.text
    assert "canary" in run("env", env=dict(os.environ)).stdout.text


def test_what_is_declared_gets_in_and_wins(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/ours")
    env = base_environment({"PYTHONPATH": "/declared", "TERM": "xterm", "TOKEN": "x"}, home=None)
    assert (env["PYTHONPATH"], env["TERM"], env["TOKEN"]) == ("/declared", "xterm", "x")


def test_nothing_in_it_waits_for_a_person():
    env = base_environment({}, home=None)
    assert (env["TERM"], env["PAGER"], env["GIT_PAGER"], env["GIT_TERMINAL_PROMPT"]) == ("dumb", "cat", "cat", "0")


def test_a_private_home_holds_temporary_files_too(tmp_path):
    env = base_environment({}, home=tmp_path)
    assert sh("echo $HOME; dirname $(mktemp)", env=env).stdout.text == f"{tmp_path}\n{tmp_path}\n"


def test_language_and_time_zone_are_ours(monkeypatch):
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    env = base_environment({}, home=None)
    assert (env["LC_ALL"], env["TZ"]) == ("de_DE.UTF-8", "Asia/Tokyo")


# many


def test_many_programs_at_once_do_not_mix_up():
    with ThreadPoolExecutor(20) as pool:
        texts = list(pool.map(lambda number: run("cat", stdin=b"%d" % number).stdout.text, range(150)))
    assert texts == [str(number) for number in range(150)]


def test_many_programs_at_once_beside_an_event_loop():
    async def one(number):
        env = base_environment({}, home=None)
        command = ["sh", "-c", "cat; exit $1", "sh", str(number)]
        done = await run_process(command, cwd="/", env=env, stdin=b"%d" % number, timeout_s=60)
        return done.stdout.text, done.exit_code

    async def all_of_them():
        return await asyncio.gather(*map(one, range(40)))

    assert asyncio.run(all_of_them()) == [(str(number), number) for number in range(40)]


def test_different_limits_do_not_mix_up():
    sizes = [1 << 20, 2 << 20, 3 << 20] * 4
    with ThreadPoolExecutor(6) as pool:
        seen = pool.map(lambda size: sh("ulimit -f", limits=Limits(file_bytes=size)).stdout.text, sizes)
    assert [int(text) * 512 for text in seen] == sizes


CROWDED = """
import os, resource
from waza.process.run_program import base_environment, run_program
run = lambda: run_program(["true"], cwd="/", env=base_environment({}, home=None), timeout_s=30)
assert run().ok
highest = max(map(int, os.listdir("/dev/fd")))
for room in range(8):
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + room, 4096))
    done = run()
    assert done.ok or "ulimit -n" in done.error, done
    print(done.ok)
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
assert run().ok
"""


def test_running_out_of_descriptors_is_an_error_not_an_exception_and_passes():
    done = subprocess.run([sys.executable, "-c", CROWDED], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert {"True", "False"} == set(done.stdout.split())


@pytest.mark.skipif(sys.platform != "linux", reason="counts in /proc")
def test_descriptors_and_processes_stay_flat():
    def counts():
        ours = len(os.listdir("/proc/self/fd"))
        zygote = next(iter(supervisors()))
        below = [zygote, *children(zygote)]
        zombies = sum("\nState:\tZ" in Path(f"/proc/{pid}/status").read_text() for pid in below)
        return ours, len(below), zombies, sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in below)

    sh("sleep 0 & exit 0")
    before = counts()
    for number in range(300):
        sh(f"sleep 0 & exit {number % 3}", stdin=b"x")
    assert counts() == before


def supervisors():
    for pid in children(os.getpid()):
        if b"waza.process.supervisor" in Path(f"/proc/{pid}/cmdline").read_bytes():
            yield pid


def children(pid):
    return [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]
