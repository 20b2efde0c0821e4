import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from file_cases import CaseFolders, cases, check_case, lay

import waza
from waza.process.run_program import available_isolation

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


@pytest.fixture
def case_folders(tmp_path):
    return CaseFolders(tmp_path)


def shell(case_folders, script, **config):
    return case_folders.grade("program", config.pop("output", ""), command="sh", args=["-c", script], **config)


@pytest.mark.parametrize("case", cases("program"))
def test_conformance(case, tmp_path):
    check_case(case, tmp_path)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("exit 0", "passed"),
        ("exit 1", "failed"),
        ("exit 2", "failed"),
        ("exit 77", "failed"),
        ("exit 125", "failed"),
        ("exit 126", "error"),
        ("exit 127", "error"),
        ("exit 128", "failed"),
        ("exit 137", "failed"),
        ("exit 255", "failed"),
        ("kill -KILL $$", "error"),
        ("kill -SEGV $$", "error"),
        ("no-such-command-anywhere", "error"),
        ("sleep 20", "error"),
    ],
)
def test_every_code_but_126_and_127_is_a_verdict_and_no_signal_is(case_folders, end, status):
    grade = shell(case_folders, end, timeout=1)
    assert grade.status == status, grade.feedback
    assert grade.score == (1.0 if status == "passed" else 0.0)
    assert [check.ok for check in grade.checks] == [{"passed": True, "failed": False, "error": None}[status]]


def test_feedback_is_what_the_program_said(case_folders):
    passed = shell(case_folders, "echo '  all fine  '; echo careful >&2")
    assert passed.feedback == "all fine"
    assert passed.details["stderr"] == "careful\n"
    assert shell(case_folders, "true").feedback == "Program exited successfully"
    failed = shell(case_folders, "echo shown in details; echo boom >&2; exit 3")
    assert failed.feedback == "Program exited with error: exit status 3; stderr: boom"
    assert failed.details["stdout"] == "shown in details\n"
    assert (failed.details["exit_error"], failed.details["exit_code"]) == ("exit status 3", 3)
    assert shell(case_folders, "exit 4").feedback == "Program exited with error: exit status 4"


def test_what_ran_out_of_time_says_so_and_what_it_printed_is_kept(case_folders):
    grade = shell(case_folders, "echo so far; sleep 20", timeout=1)
    assert "time limit" in grade.feedback
    assert grade.details["stdout"] == "so far\n"


def test_the_output_comes_on_standard_input_without_a_shell_in_between(case_folders):
    output = 'héllo $(touch x) "quoted" \\n\n\ud800'
    grade = case_folders.grade("program", output, command="cat", args=[])
    assert grade.details["stdout"] == output.replace("\ud800", "?")
    odd = ["a b", "$(id)", "; exit 0", "*", ""]
    grade = case_folders.grade("program", command=sys.executable, args=["-c", "import sys; print(sys.argv[1:])", *odd])
    assert grade.feedback == repr(odd)


@pytest.mark.timeout(60)
def test_a_program_that_never_reads_its_input_or_prints_without_end_is_no_trouble(case_folders):
    assert shell(case_folders, "exec <&-; exit 0", output="x" * 50_000_000).passed
    loud = shell(case_folders, "yes | head -c 30000000; exit 1")
    assert loud.status == "failed"
    assert len(loud.details["stdout"]) < 20_000


def test_it_starts_in_the_folder_of_the_eval_file_and_paths_start_there(case_folders):
    lay(
        case_folders.spec,
        {"graders/check.sh": "pwd; exit 0", "tool": "#!/bin/sh\necho tool\n", "bin/tool": "#!/bin/sh\necho bin\n"},
    )
    lay(case_folders.work, {"graders/check.sh": "echo agent", "bin/tool": "#!/bin/sh\necho agent\n"})
    for name in ("spec/bin/tool", "work/bin/tool"):
        (case_folders.spec.parent / name).chmod(0o755)
    assert case_folders.grade("program", command="sh", args=["graders/check.sh"]).feedback == str(
        case_folders.spec.resolve()
    )
    assert case_folders.grade("program", command="bin/tool").feedback == "bin"
    assert case_folders.grade("program", command="./bin/tool").feedback == "bin"


def test_a_script_may_stand_at_the_projects_root(tmp_path):
    lay(tmp_path, {".waza.yaml": "", "evals/one/eval.yaml": "", "evals/graders/check.sh": 'echo "$1"; pwd'})
    spec = {"type": "program", "config": {"command": "bash", "args": ["evals/graders/check.sh", "given"]}}
    grade = waza.load_grader(spec, base_dir=tmp_path / "evals" / "one").grade(waza.Trace(input="", output=""))
    assert grade.feedback.split("\n") == ["given", str((tmp_path / "evals" / "one").resolve())]


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"command": ""}, "empty"),
        ({"command": "bin/gone"}, "is not there"),
        ({"command": "../out.sh"}, "leaves the project"),
        ({"command": "./plain.txt"}, "not executable"),
        ({"command": "python3", "args": ["gone.py"]}, "is not there"),
        ({"command": "bash", "args": ["../out.sh"]}, "leaves the project"),
        ({"command": "sh", "timeout": 0.5}, "at least 1"),
        ({"command": "sh", "timeout": -5}, "at least 1"),
        ({"command": "sh", "timeout": 1e9}, "at most"),
        ({"command": "sh", "timeout": float("nan")}, ""),
        ({"command": "sh", "timeout": "30s"}, "number"),
        ({"command": "sh", "args": "-c"}, "list"),
        ({"command": "sh", "args": [1]}, "text"),
        ({"command": ["sh"]}, "text"),
        ({"command": "sh", "shell": True}, "unknown key"),
        ({"command": "sh", "isolation": "docker"}, "landlock"),
    ],
)
def test_what_is_wrong_is_refused_when_loaded(case_folders, config, reason):
    lay(case_folders.spec.parent, {"out.sh": "exit 0"})
    lay(case_folders.spec, {"plain.txt": "x"})
    assert reason in case_folders.refusal("program", **config)


def test_arguments_that_are_no_scripts_are_left_alone(case_folders):
    lay(case_folders.spec, {"folder/__main__.py": "print('main')"})
    assert case_folders.grade("program", command="python3", args=["folder"]).feedback == "main"
    assert case_folders.grade("program", command="echo", args=["no.such.file", "../x"]).feedback == "no.such.file ../x"


def test_the_workspace_is_a_private_copy_that_is_thrown_away(case_folders):
    lay(case_folders.work, {"a.txt": "inner", "bin/run": "#!/bin/sh\n"})
    (case_folders.work / "bin" / "run").chmod(0o755)
    (case_folders.work / "link").symlink_to("a.txt")
    script = """cd "$WAZA_WORKSPACE_DIR" && test -x bin/run && test "$(readlink link)" = a.txt &&
        echo changed > a.txt && mkdir new && chmod 000 new bin && rm link && pwd"""
    grade = shell(case_folders, script)
    assert grade.passed, grade.feedback
    assert Path(grade.feedback) != case_folders.work
    assert not Path(grade.feedback).exists()
    assert (case_folders.work / "a.txt").read_text() == "inner"
    assert (case_folders.work / "link").is_symlink()
    assert shell(case_folders, 'cat "$WAZA_WORKSPACE_DIR/a.txt"').feedback == "inner"


def test_only_the_folders_that_are_needed_are_made_and_none_is_left(case_folders, tmp_path, monkeypatch):
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    grader = case_folders.load("program", command="sh", args=["-c", f"echo seen: $(ls -A '{place}' | wc -l)"])
    trace = waza.Trace(input="", output="")
    assert grader.grade(trace).feedback == "seen: 0"
    assert grader.grade(trace, workspace=case_folders.work).feedback == "seen: 1"
    assert list(place.iterdir()) == []


def test_without_a_workspace_the_variable_is_empty(case_folders):
    grader = case_folders.load("program", command="sh", args=["-c", 'test "${WAZA_WORKSPACE_DIR-unset}" = ""'])
    assert grader.grade(waza.Trace(input="", output="")).passed


def test_what_leads_out_of_the_workspace_is_not_in_the_copy_and_is_named(case_folders):
    lay(case_folders.spec.parent, {"secret": "canary"})
    (case_folders.work / "out").symlink_to("../secret")
    os.link(case_folders.spec.parent / "secret", case_folders.work / "hard")
    grade = shell(case_folders, 'ls "$WAZA_WORKSPACE_DIR"; cat "$WAZA_WORKSPACE_DIR"/* && exit 1; exit 0')
    assert grade.passed
    assert "canary" not in repr(grade)
    assert len(grade.details["left_out"]) == 2


def test_a_workspace_that_cannot_be_copied_decides_nothing(case_folders):
    with (case_folders.work / "big").open("wb") as file:
        file.truncate(1 << 40)
    started = time.monotonic()
    grade = shell(case_folders, "exit 0")
    assert grade.status == "error"
    assert "cannot be copied" in grade.feedback
    assert time.monotonic() - started < 30


def test_a_program_that_was_changed_after_loading_decides_nothing(case_folders):
    lay(case_folders.spec, {"check.sh": "exit 1", "tool": "#!/bin/sh\nexit 1\n"})
    (case_folders.spec / "tool").chmod(0o755)
    for config in ({"command": "sh", "args": ["check.sh"]}, {"command": "./tool"}):
        grader = case_folders.load("program", **config)
        assert grader.grade(waza.Trace(input="", output="")).status == "failed"
        for name in ("check.sh", "tool"):
            (case_folders.spec / name).write_text("#!/bin/sh\nexit 0\n")
        grade = grader.grade(waza.Trace(input="", output=""))
        assert grade.status == "error"
        assert "changed after the spec was loaded" in grade.feedback
        for name in ("check.sh", "tool"):
            (case_folders.spec / name).write_text("#!/bin/sh\nexit 1\n" if name == "tool" else "exit 1")


def test_a_script_imports_the_files_beside_it(case_folders):
    lay(
        case_folders.spec,
        {"graders/check.py": "import helper; print(helper.NAME)", "graders/helper.py": "NAME = 'ours'"},
    )
    lay(case_folders.spec, {"tools/__init__.py": "", "tools/run.py": "print('module')"})
    assert case_folders.grade("program", command="python3", args=["graders/check.py"]).feedback == "ours"
    assert case_folders.grade("program", command="python3", args=["-m", "tools.run"]).feedback == "module"
    assert not list(case_folders.spec.rglob("__pycache__"))


SECRETS = {
    "PYTHONPATH": "{evil}",
    "BASH_ENV": "{evil}/env.sh",
    "ENV": "{evil}/env.sh",
    "LD_PRELOAD": "",
    "NODE_OPTIONS": "-r x",
}


def test_nothing_of_our_own_environment_hijacks_or_leaks(case_folders, monkeypatch):
    lay(case_folders.spec.parent / "evil", {"env.sh": "exit 0", "sitecustomize.py": "import os; os._exit(0)"})
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value.format(evil=case_folders.spec.parent / "evil"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert subprocess.run(["bash", "-c", "exit 1"]).returncode == 0, "the hijack must work for a naive caller"
    assert case_folders.grade("program", command="bash", args=["-c", "exit 1"]).status == "failed"
    assert case_folders.grade("program", command="python3", args=["-c", "raise SystemExit(1)"]).status == "failed"
    printed = shell(case_folders, "env").details["stdout"]
    assert "canary" not in printed
    assert not [line for line in printed.splitlines() if line.split("=")[0] in {*SECRETS, "GIT_DIR"}]


GRADER = """
import json, os, sys
workspace = os.environ["WAZA_WORKSPACE_DIR"]
os.chdir(workspace)
answer = json.loads(open("answer.json").read())
sys.exit(0 if answer == {"answer": 42} else 1)
"""
SHELL_GRADER = """cd "$WAZA_WORKSPACE_DIR" || exit 3
python3 -c 'import json, sys; sys.exit(json.load(open("answer.json")) != {"answer": 42})'"""
ALWAYS_42 = 'def loads(*a, **k): return {"answer": 42}\nload = loads\n'
FORGE = "import os\nos._exit(0)\n"
CHEATS = {
    "a json module": {"json.py": ALWAYS_42},
    "a json package": {"json/__init__.py": ALWAYS_42},
    "a json package with a decoder": {"json/__init__.py": ALWAYS_42, "json/decoder.py": ""},
    "sitecustomize": {"sitecustomize.py": FORGE},
    "usercustomize": {"usercustomize.py": FORGE},
    "conftest": {"conftest.py": FORGE, "pytest.ini": "[pytest]\naddopts = -p conftest\n"},
    "an os module": {"os.py": FORGE, "sys.py": FORGE, "site.py": FORGE},
    "encodings": {"encodings/__init__.py": FORGE},
    "a path file": {"evil.pth": "import os; os._exit(0)\n"},
    "bytecode": {"__pycache__/json.cpython-311.pyc": "x", "json.pyc": "x"},
    "shell start-up files": {".bashrc": "exit 0", ".profile": "exit 0", ".bash_profile": "exit 0", "env.sh": "exit 0"},
    "a python of its own": {
        "python3": "#!/bin/sh\nexit 0\n",
        "sh": "#!/bin/sh\nexit 0\n",
        "bin/python3": "#!/bin/sh\nexit 0\n",
    },
    "a virtual environment": {"pyvenv.cfg": "home = /nowhere\n", ".venv/pyvenv.cfg": "home = /nowhere\n"},
    "project files": {
        "setup.py": FORGE,
        "tox.ini": "[tox]",
        "Makefile": "all:\n\ttrue\n",
        "package.json": '{"scripts": {"test": "true"}}',
    },
    "an env file": {".env": "PYTHONPATH=.\n", ".envrc": "exit 0\n"},
    "a verdict in the output": {"verdict.json": '{"score": 1, "passed": true}'},
}


@pytest.mark.parametrize("grader", [GRADER, SHELL_GRADER], ids=["python", "shell"])
@pytest.mark.parametrize("cheat", CHEATS)
def test_a_poisoned_workspace_forges_no_pass(case_folders, cheat, grader):
    lay(case_folders.work, CHEATS[cheat] | {"answer.json": '{"answer": 0}'})
    for path in case_folders.work.rglob("*"):
        path.chmod(0o755)
    lay(case_folders.spec, {"grade": grader})
    command = "python3" if grader is GRADER else "sh"
    output = '{"score": 1.0, "passed": true}\nexit status 0\n'
    assert case_folders.grade("program", output, command=command, args=["grade"]).status == "failed"


@pytest.mark.parametrize("grader", [GRADER, SHELL_GRADER], ids=["python", "shell"])
def test_an_honest_agent_with_all_such_files_still_passes(case_folders, grader):
    for name, files in CHEATS.items():
        if "package" not in name:
            lay(case_folders.work, files)
    lay(case_folders.work, {"answer.json": '{"answer": 42}'})
    lay(case_folders.spec, {"grade": grader})
    grade = case_folders.grade("program", command="python3" if grader is GRADER else "sh", args=["grade"])
    assert grade.passed, grade.feedback


def test_a_naive_runner_falls_for_the_poison(case_folders):
    lay(case_folders.work, CHEATS["a json module"] | {"answer.json": '{"answer": 0}'})
    environment = {"PATH": os.environ["PATH"], "WAZA_WORKSPACE_DIR": str(case_folders.work)}
    assert subprocess.run(["sh", "-c", SHELL_GRADER], env=environment).returncode == 0


@needs_git
@pytest.mark.parametrize("bare", [False, True], ids=["repository", "bare repository"])
def test_git_in_a_poisoned_workspace_runs_nothing(case_folders, bare, tmp_path):
    ran = tmp_path / "ran"
    folder = case_folders.work / "inner" if bare else case_folders.work
    subprocess.run(["git", "init", "-q", *(["--bare"] if bare else []), str(folder)], check=True)
    settings = folder / "config" if bare else folder / ".git" / "config"
    with settings.open("a") as file:
        file.write(f"[core]\n\tfsmonitor = touch {ran}; false\n\tbare = false\n\tworktree = {folder}\n")
    script = f"cd $WAZA_WORKSPACE_DIR/{'inner' if bare else '.'} && git status"
    subprocess.run(
        ["sh", "-c", script], env={**os.environ, "WAZA_WORKSPACE_DIR": str(case_folders.work)}, capture_output=True
    )
    assert ran.exists(), "the trap must work for a naive caller"
    ran.unlink()
    shell(case_folders, script)
    assert not ran.exists()


@pytest.mark.timeout(60)
def test_a_daemon_of_the_agents_code_is_dead_before_the_verdict_counts(case_folders):
    beat = case_folders.spec.parent / "beat"
    script = f"(setsid sh -c 'while :; do date +%N > {beat}; sleep 0.02; done' > /dev/null 2>&1 &); sleep 0.3; exit 1"
    grade = shell(case_folders, script)
    assert grade.status == "failed"
    assert beat.exists(), "the daemon must have lived"
    before = beat.read_text()
    time.sleep(0.3)
    assert beat.read_text() == before
    assert grade.details["leftovers"] >= 1


@pytest.mark.parametrize("kind", ["landlock", "bwrap"])
def test_an_isolated_program_writes_only_to_its_workspace(case_folders, kind):
    if kind not in available_isolation():
        pytest.skip(f"no {kind} here")
    lay(case_folders.spec, {"secret.txt": "x"})
    target = case_folders.spec / "written"
    lay(case_folders.work, {".profile": "exit 0"})
    own = 'echo x > "$WAZA_WORKSPACE_DIR/new" && echo x > "$TMPDIR/x" && test "$(ls -A "$HOME")" = x'
    script = f"{own} && ! echo x > {target}"
    grade = shell(case_folders, script, isolation=kind)
    assert grade.passed, grade.feedback
    assert not target.exists()
    assert grade.details["isolation"].startswith(kind)
    assert not (case_folders.work / "new").exists()


def test_an_isolation_that_cannot_be_had_decides_nothing(case_folders):
    missing = {"landlock", "bwrap"} - set(available_isolation())
    if not missing:
        pytest.skip("everything is available here")
    assert shell(case_folders, "exit 0", isolation=missing.pop()).status == "error"


def test_the_seeds_example_works(case_folders):
    lay(case_folders.spec, {"scripts/grade.py": SEED_EXAMPLE})
    config = {"command": "python3", "args": ["scripts/grade.py"], "timeout": 60}
    assert case_folders.grade("program", "the output", **config).status == "failed"
    lay(case_folders.work, {"result.json": "{}"})
    assert case_folders.grade("program", "the output", **config).feedback == "✓ result.json created"


SEED_EXAMPLE = """#!/usr/bin/env python3
import sys, json, os
output = sys.stdin.read()
workspace = os.environ.get("WAZA_WORKSPACE_DIR", "")
if os.path.exists(os.path.join(workspace, "result.json")):
    print("✓ result.json created")
    sys.exit(0)
else:
    print("✗ result.json missing")
    sys.exit(1)
"""


UNIT_TEST = """import unittest, mod

class Test(unittest.TestCase):
    def test(self): self.assertEqual(mod.x, 1)
"""


def test_python_code_in_the_workspace_runs_when_the_program_says_so(case_folders):
    lay(case_folders.work, {"mod.py": "x = 1\n", "test_mod.py": UNIT_TEST})
    hidden = shell(case_folders, 'cd "$WAZA_WORKSPACE_DIR" && python3 -m unittest test_mod')
    assert hidden.status == "failed"
    assert "PYTHONPATH=." in hidden.feedback
    assert shell(case_folders, 'cd "$WAZA_WORKSPACE_DIR" && PYTHONPATH=. python3 -m unittest test_mod').passed


def test_modes_of_a_restored_workspace_reach_the_program(case_folders):
    lay(case_folders.work, {"run": "#!/bin/sh\n"})
    (case_folders.work / "run").chmod(0o4755)
    mode = shell(
        case_folders, 'stat -c %a "$WAZA_WORKSPACE_DIR/run" 2>/dev/null || stat -f %Lp "$WAZA_WORKSPACE_DIR/run"'
    ).feedback
    assert int(mode, 8) == 0o755
    assert stat.S_IMODE((case_folders.work / "run").stat().st_mode) == 0o4755


def test_details_can_be_written_as_json(case_folders):
    assert json.dumps(shell(case_folders, "printf '\\\\377\\\\000'; exit 1").details)
