"""Graders in Python files of the project: what they may be, and that a run says so; trust has tests of its own."""

import json

import pytest

import waza
from waza.errors import SpecError
from waza.suites.load import load_spec
from waza.suites.suite import grader_as_data

GRADER = """
import pathlib, waza
pathlib.Path(__file__).with_name("was-run").touch()

@waza.grader(weight=2)
def short(trace, limit: int = 3):
    "The answer is short."
    return len(trace.output.split()) <= limit
"""
SUITE = """
config: {executor: mock}
graders: [{type: ./graders/mine.py, config: {limit: 2}}]
tasks: [{id: a, prompt: x, mock: {output: one two three}}]
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "graders").mkdir()
    (tmp_path / "graders/mine.py").write_text(GRADER)
    (tmp_path / "eval.yaml").write_text(SUITE)
    return tmp_path


def refused(folder, **how):
    with pytest.raises(SpecError) as caught:
        load_spec(folder, **how)
    return str(caught.value)


def test_the_command_line_says_which_code_runs(waza, project):
    done = waza("check", project, "--allow-local-code")
    assert done.returncode == 0 and "note: runs code of this project: graders/mine.py" in done.stdout
    done = waza("run", project, "--trust", "--json")
    assert done.returncode == 1
    assert "runs code of this project: graders/mine.py" in done.stderr
    [grade] = json.loads(done.stdout)["tasks"][0]["runs"][0]["grades"]
    assert (grade["type"], grade["status"], grade["weight"]) == ("short", "failed", 2)
    [stored] = (path for path in (project / "runs").iterdir() if path.is_dir())
    done = waza("grade", stored, "--allow-local-code", "-q")
    assert done.returncode == 1 and "0 of 1 task passed" in done.stdout, done.stdout + done.stderr


def test_options_are_checked_like_any_graders(project):
    (project / "eval.yaml").write_text(SUITE.replace("limit: 2", "limti: 2"))
    assert "unknown key 'limti'; did you mean 'limit'?" in refused(project, trust=True)
    (project / "eval.yaml").write_text(SUITE.replace("limit: 2", "limit: many"))
    assert "a whole number is needed" in refused(project, trust=True)


TWO = GRADER + "\n\nclass LongGrader(waza.Grader):\n    def checks(self, trace):\n        yield waza.Check(True, 'x')\n"


def test_one_of_several_is_named(project):
    (project / "graders/mine.py").write_text(TWO)
    assert "holds several graders; name one, such as ./graders/mine.py:short" in refused(project, trust=True)
    for name, kind in (("short", "short"), ("LongGrader", "long")):
        spec = {"type": f"./graders/mine.py:{name}"}
        assert waza.load_grader(spec, base_dir=project, trust=True).type_name() == kind
    with pytest.raises(SpecError, match="did you mean 'short'"):
        waza.load_grader({"type": "./graders/mine.py:shrot"}, base_dir=project, trust=True)


@pytest.mark.parametrize(
    ("code", "fact"),
    [
        ("x = 1\n", "holds no grader"),
        ("import unheard_of\n", "cannot be imported: ModuleNotFoundError"),
        ("raise SystemExit(3)\n", "cannot be imported: SystemExit"),
        ("def broken(:\n", "cannot be imported: "),
        ("from waza import ContainsGrader\n", "holds no grader"),
    ],
)
def test_a_file_that_is_no_grader_is_refused(project, code, fact):
    (project / "graders/mine.py").write_text(code)
    assert fact in refused(project, trust=True)


@pytest.mark.parametrize(
    ("path", "fact"), [("../mine.py", "leaves the project's folder"), ("./none.py", "is not there")]
)
def test_only_files_of_the_project(project, path, fact):
    (project / ".waza.yaml").write_text("{}\n")
    (project / "eval.yaml").write_text(SUITE.replace("./graders/mine.py", path))
    assert fact in refused(project, trust=True)


def test_a_changed_file_is_another_grader_and_resume_sees_it(project):
    def stored():
        return grader_as_data(load_spec(project, trust=True).graders["a"][0])

    before = stored()
    assert stored() == before
    (project / "graders/mine.py").write_text(GRADER.replace("<=", "<"))
    assert stored() != before
