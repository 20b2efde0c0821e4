"""A repository cannot consent for itself: nothing of it is imported or started before its user trusts the folder."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest

import waza as waza_face
from waza.cli.serve import StoredReviewQueue
from waza.errors import SpecError
from waza.files.trust import config_folder

CODE = "import pathlib\npathlib.Path({ran!r}, {name!r}).touch()\n"
GRADER = "import waza\n@waza.grader\ndef short(trace, limit: int = 3):\n    return len(trace.output) <= limit\n"
AGENT = "def answer(prompt):\n    return 'hi'\n"
SKILL = '---\nname: explainer\ndescription: "Explains. USE FOR: explain this code. DO NOT USE FOR: poems."\n---\n# E\n'
SHADOWS = ("sitecustomize", "usercustomize", "conftest", "setup", "json", "typing", "yaml", "rich", "msgspec", "re2")
IMPORTED = {"grader", "agent"}
STARTED = {"hook", "task-hook", "program", "script"}


@pytest.fixture
def canaries(tmp_path):
    """A repository that says yes to everything, with a canary in each place where code of it could run."""
    ran, repo = tmp_path / "ran", tmp_path / "repo"
    for folder in (ran, repo / "graders", repo / "skills/explainer/scripts", repo / "canary.egg-info"):
        folder.mkdir(parents=True)

    def plant(path, name, code=""):
        (repo / path).write_text(CODE.format(ran=str(ran), name=name) + code)

    def shell(name):
        return {"command": f"sh -c 'touch {ran / name}'"}

    plant("graders/mine.py", "grader", GRADER)
    plant("my_agent.py", "agent", AGENT)
    plant("graders/check.py", "script", "print('{\"passed\": true}')\n")
    plant("canary_plugin.py", "plugin", GRADER)
    for name in SHADOWS:
        plant(f"{name}.py", name)
    (repo / "canary.egg-info/PKG-INFO").write_text("Metadata-Version: 2.1\nName: canary\nVersion: 1\n")
    groups = ("graders", "engines", "judges", "reports")
    points = "".join(f"[waza.{group}]\ncanary = canary_plugin:short\n" for group in groups)
    (repo / "canary.egg-info/entry_points.txt").write_text(points)
    (repo / ".git").mkdir()
    (repo / ".waza.yaml").write_text("allow_local_code: true\n")
    (repo / ".env").write_text(f"WAZA_TRUST=1\nXDG_CONFIG_HOME={repo}\n")
    (repo / "waza").mkdir()
    (repo / "waza/trust.json").write_text(json.dumps({"version": 1, "folders": {str(repo): {"files": None}}}))
    (repo / "skills/explainer/SKILL.md").write_text(SKILL)
    plant("skills/explainer/scripts/run.py", "skill")
    suite = {
        "name": "canaries",
        "skill": "explainer",
        "config": {"executor": "python", "agent": "my_agent:answer"},
        "hooks": {"before_run": [shell("hook")], "before_task": [shell("task-hook")]},
        "graders": [
            {"type": "./graders/mine.py", "name": "mine", "config": {"limit": 9}},
            {"type": "program", "name": "p", "config": {"command": "sh", "args": ["-c", f"touch {ran / 'program'}"]}},
            {"type": "script", "name": "s", "config": {"script": "graders/check.py"}},
        ],
        "tasks": [{"id": "a", "prompt": "x", "mock": {"output": "hi"}}],
    }
    (repo / "eval.yaml").write_text(json.dumps(suite))
    tests = {"should_trigger_prompts": [{"prompt": "Explain"}], "should_not_trigger_prompts": [{"prompt": "Poem"}]}
    (repo / "trigger_tests.yaml").write_text(json.dumps({"skill": "explainer"} | tests))
    (repo / "evals").mkdir()
    (repo / "evals/evaldeck.yaml").write_text("agent: {module: my_agent, function: answer}\ntest_dir: ../cases\n")
    (repo / "cases").mkdir()
    (repo / "cases/a.yaml").write_text("name: a\ninput: x\nexpected: {output_contains: [hi]}\n")
    return repo, ran


def names(ran):
    found = {path.name for path in ran.iterdir()}
    for path in ran.iterdir():
        path.unlink()
    return found


@pytest.fixture
def user(tmp_path):
    """The environment of a user who has trusted nothing yet."""
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


@contextmanager
def untrusting(user, monkeypatch):
    """Let this process be one of that user."""
    with monkeypatch.context() as patched:
        for name, value in user.items():
            patched.setenv(name, value)
        config_folder.cache_clear()
        yield
    config_folder.cache_clear()


LOOKING = [
    ("check",),
    ("check", "--strict"),
    ("check", "--json"),
    ("check", "--oracles"),
    ("check", "evals/evaldeck.yaml"),
    ("list", "tasks"),
    ("list", "tasks", "evals"),
    ("list", "graders"),
    ("list", "engines"),
    ("list", "judges"),
    ("list", "reports"),
    ("list", "runs"),
    ("run", "--dry-run"),
    ("run", "--dry-run", "--baseline"),
    ("run", "--dry-run", "--update-snapshots"),
    ("run", "evals", "--dry-run"),
    ("trigger", "--dry-run"),
    ("trigger", "--dry-run", "--catalogue", "skills"),
    ("schema", "eval"),
    ("docs", "--help"),
    ("suggest", "explainer"),
    ("rubric", "list"),
    ("new", "task", "another"),
    ("runs", "list"),
    ("trend",),
    ("show",),
    ("show", "latest", "--json"),
    ("show", "latest", "--task", "a", "--trial", "1", "-v"),
    ("review", "--list"),
    ("compare",),
    ("calibrate",),
]


def test_nothing_of_a_folder_that_is_not_trusted_runs_where_one_only_looks(canaries, user, waza, monkeypatch):
    repo, ran = canaries
    monkeypatch.chdir(repo)
    for number in (1, 2):
        done = waza("run", "--trust", "-q", env=user)
        assert done.returncode == 3, done.stdout + done.stderr  # its trigger tests cannot be decided
        assert names(ran) == IMPORTED | STARTED, f"run {number}: each canary can be seen"
    for command in LOOKING:
        done = waza(*command, env=user)
        assert names(ran) == set(), command
        assert "Traceback" not in done.stderr and done.returncode != 4, (command, done.stderr)
    with untrusting(user, monkeypatch):
        for folder in (path for path in (repo / "runs").iterdir() if path.is_dir()):
            StoredReviewQueue(repo).pile(folder, [])
            assert StoredReviewQueue(repo).settle(folder) == 0
        with pytest.raises(SpecError, match="is not trusted"):
            waza_face.load_grader({"type": "./graders/mine.py"}, base_dir=repo)
        with pytest.raises(SpecError, match="is not trusted"):
            waza_face.run(repo, trust=False)
        with pytest.raises(SpecError, match="is not trusted"):
            waza_face.load_expected({"graders": [{"type": "./graders/mine.py"}]}, base_dir=repo)
        assert names(ran) == set(), "the dashboard, and calls from Python"
    for command in (("run",), ("grade", "latest"), ("run", "evals"), ("trigger",)):
        done = waza(*command, env=user)
        assert done.returncode == 2, command
        assert "is not trusted" in done.stderr and f"waza trust {repo}" in done.stderr, (command, done.stderr)
        assert names(ran) == set(), command


def test_a_package_in_the_folder_that_waza_is_started_in_is_no_plug_in(canaries, user):
    """`python -m` puts the current folder on the path that plug-ins are looked for on."""
    repo, ran = canaries
    for name in SHADOWS:
        (repo / f"{name}.py").unlink()  # Python itself would import these before waza begins
    command = [sys.executable, "-m", "waza", "list", "reports"]
    done = subprocess.run(command, cwd=repo, env=os.environ | user, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "junit" in done.stdout, done.stderr
    assert "canary" not in done.stdout and names(ran) == set()
    found = "from importlib.metadata import entry_points; print(entry_points(group='waza.reports'))"
    seen = subprocess.run([sys.executable, "-c", found], cwd=repo, capture_output=True, text=True, timeout=60)
    assert "canary_plugin" in seen.stdout, "the test can fail"


@pytest.fixture
def project(tmp_path, waza, monkeypatch):
    """A small project with a grader and an agent of its own, and a user who has trusted nothing yet."""
    folder = tmp_path / "work" / "a project"
    (folder / "graders").mkdir(parents=True)
    (folder / "graders/mine.py").write_text(GRADER)
    (folder / "my_agent.py").write_text(AGENT)
    (folder / ".waza.yaml").write_text("{}\n")
    (folder / "eval.yaml").write_text(
        "config: {executor: python, agent: 'my_agent:answer'}\n"
        "graders: [{type: ./graders/mine.py, name: mine}]\ntasks: [{id: a, prompt: x}]\n"
    )
    monkeypatch.chdir(folder)
    return folder


def test_a_run_names_all_that_it_would_import_and_what_to_do(project, user, waza):
    monthly = waza("run", env=user)
    assert monthly.returncode == 2 and monthly.stdout == ""
    first, second = monthly.stderr.splitlines()
    assert first.startswith("eval.yaml:2:12: graders[0].type: './graders/mine.py' is Python of this project and is not")
    assert second.startswith("eval.yaml:1:28: config.agent: 'my_agent:answer' is Python of this project and is not")
    assert f"waza trust '{project}'" in first and "--trust" in first
    assert waza("run", "--trust", "-q", env=user).returncode == 0
    assert waza("run", env=user).returncode == 2, "--trust is for one call"
    assert waza("run", "--engine", "mock", "--dry-run", env=user).stderr.count("not checked") == 1
    assert waza("trust", env=user).returncode == 0
    assert waza("run", "-q", env=user).returncode == 0


def test_check_reports_what_it_did_not_check(project, user, waza):
    done = waza("check", env=user)
    assert done.returncode == 0 and "eval.yaml: ok, 1 task; 2 not checked" in done.stdout
    assert done.stdout.count("not checked: './graders/mine.py'") == done.stdout.count("not checked: 'my_agent:ans") == 1
    assert waza("check", "--strict", env=user).returncode == 2
    found = [json.loads(line) for line in waza("check", "--json", env=user).stdout.splitlines()]
    assert [problem["severity"] for problem in found] == ["not checked", "not checked"]
    done = waza("list", "tasks", env=user)
    assert "mine" in done.stdout and "not checked: './graders/mine.py'" in done.stderr
    (project / "eval.yaml").write_text((project / "eval.yaml").read_text().replace("mine.py", "none.py"))
    assert "'./graders/none.py' is not there" in waza("check", env=user).stdout


def test_in_a_trusted_folder_check_finds_mistakes_in_the_use_of_local_code(project, user, waza):
    text = (project / "eval.yaml").read_text()
    (project / "eval.yaml").write_text(text.replace("name: mine", "config: {limti: 1}"))
    assert waza("check", env=user).returncode == 0
    done = waza("check", "--trust", env=user)
    assert done.returncode == 2
    assert "did you mean 'limit'?" in done.stdout


def test_the_old_key_of_a_project_is_reported_once_and_does_nothing(project, user, waza):
    (project / ".waza.yaml").write_text("allow_local_code: true\n")
    (project / "more").mkdir()
    (project / "more/eval.yaml").write_text("config: {executor: mock}\ngraders: [{type: ../graders/mine.py}]\n"
                                            "tasks: [{id: a, prompt: x}]\n")  # fmt: skip
    (project / "eval.yaml").rename(project / "graders/eval.yaml")
    done = waza("check", env=user)
    assert done.stdout.count("allow_local_code: warning: has no effect") == 1 and "waza trust" in done.stdout
    assert waza("run", "graders", env=user).returncode == 2
    waza("trust", env=user)
    assert "allow_local_code: note: has no effect" in waza("check", env=user).stdout


def test_trust_covers_what_is_below_and_links_are_resolved(project, user, waza, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(project.parent)
    done = waza("trust", tmp_path / "link" / project.name / "graders", env=user)
    assert f"trusted: {project} and everything below it" in done.stdout, "the project's root, whole"
    assert waza("check", tmp_path / "link" / project.name, env=user).stdout.count("not checked") == 0
    assert f"{project}  (since 20" in waza("trust", "--list", env=user).stdout
    inner = project / "vendored"
    (inner / ".git").mkdir(parents=True)
    (inner / "eval.yaml").write_text(
        "config: {executor: mock}\ngraders: [{type: ./g.py}]\ntasks: [{id: a, prompt: x}]\n"
    )
    (inner / "g.py").write_text(GRADER)
    assert "not checked" not in waza("check", inner, env=user).stdout
    refused = waza("trust", "--remove", inner, env=user)
    assert refused.returncode == 2 and f"it is trusted as a part of {project}" in refused.stderr
    assert waza("trust", "--remove", project / "graders", env=user).returncode == 0
    assert "no folder is trusted" in waza("trust", "--list", env=user).stdout
    assert "not checked" in waza("check", inner, env=user).stdout
    assert waza("trust", "/", env=user).returncode == 2
    assert waza("trust", "gone", env=user).returncode == 2
    (odd := tmp_path / os.fsdecode(b"\xff")).mkdir()
    monkeypatch.chdir(odd)
    assert "not UTF-8" in waza("trust", env=user).stderr
    other = tmp_path / "work" / "a project 2"
    waza("trust", project, env=user)
    project.rename(other)
    monkeypatch.chdir(other)
    assert "2 not checked" in waza("check", other, env=user).stdout, "a moved folder, and one whose name begins alike"


def test_changed_files_are_reported_and_not_refused(project, user, waza):
    (project / ".venv/lib").mkdir(parents=True)
    (project / ".venv/lib/x.py").touch()
    assert "2 Python files noted" in waza("trust", env=user).stdout
    assert "not as they were" not in waza("check", env=user).stdout
    (project / "my_agent.py").write_text(AGENT + "#\n")
    (project / "helper.py").touch()
    (project / ".venv/lib/y.py").touch()
    told = "Python files are not as they were when"
    done = waza("run", "-q", env=user)
    assert done.returncode == 0 and told in done.stderr
    assert "changed my_agent.py; added helper.py; `waza trust` records" in done.stderr
    done = waza("check", "--strict", env=user)
    assert done.returncode == 0 and f"note: {told}" in done.stdout
    waza("trust", env=user)
    assert told not in waza("check", env=user).stdout


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX modes")
def test_a_record_that_cannot_be_believed_trusts_nothing_and_says_so(project, user, waza, tmp_path):
    waza("trust", env=user)
    record = tmp_path / "config/waza/trust.json"
    assert record.stat().st_mode & 0o777 == 0o600 and record.parent.stat().st_mode & 0o077 == 0
    good = record.read_bytes()
    for content in (b"", b"\xff", good[:-9], b"[]", b"{}x", good.replace(b'"version": 1', b'"version": 9')):
        record.write_bytes(content)
        done = waza("check", env=user)
        assert done.returncode == 0 and "2 not checked" in done.stdout and str(record) in done.stdout, content
        assert waza("run", env=user).returncode == 2
    record.write_bytes(good)
    record.chmod(0o666)
    assert f"chmod 600 {record}" in waza("run", env=user).stderr
    record.chmod(0o600)
    assert waza("run", "-q", env=user).returncode == 0
    record.write_bytes(good[:-9])
    assert waza("trust", "--list", env=user).returncode == 3
    assert waza("trust", env=user).returncode == 0
    assert waza("run", "-q", env=user).returncode == 0
    assert [path.read_bytes() for path in record.parent.glob("trust.damaged*")] == [good[:-9]]


def test_a_relative_configuration_folder_is_ignored(project, user, waza, tmp_path):
    """It would lead into the project."""
    (project / "config/waza").mkdir(parents=True)
    (project / "config/waza/trust.json").write_text(json.dumps({"folders": {str(project): {}}}))
    env = user | {"XDG_CONFIG_HOME": "config", "HOME": str(tmp_path)}
    assert waza("run", env=env).returncode == 2
    assert waza("run", "-q", env=env | {"XDG_CONFIG_HOME": str(project / "config")}).returncode == 0, (
        "the test can fail"
    )
