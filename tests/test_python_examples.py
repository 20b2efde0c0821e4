"""The examples for people who live in Python, each as its reader would run it."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import waza as waza_face

ANNOUNCED = any(entry.value == "waza.pytest_plugin" for entry in entry_points(group="pytest11"))

GUIDE = Path(__file__).parent.parent / "docs" / "guide" / "python.md"


def blocks(*languages):
    found = re.findall(r"^```(\w+)\n(.*?)^```", GUIDE.read_text(), re.S | re.M)
    return [(language, block) for language, block in found if language in languages]


def test_every_block_of_the_guide_runs_in_order_and_prints_what_it_says(capsys):
    names, shown = {}, 0
    for language, block in blocks("python", "text"):
        if language == "python":
            capsys.readouterr()
            exec(compile(block, "python.md", "exec"), names)
        else:
            assert capsys.readouterr().out == block
            shown += 1
    assert shown == 3


def test_every_yaml_block_of_the_guide_loads(tmp_path):
    (_, local), (_, talk) = blocks("yaml")
    (tmp_path / "graders").mkdir()
    (tmp_path / "graders/mine.py").write_text(
        "import waza\n@waza.grader\ndef short(trace, limit: int = 50):\n    return len(trace.output) < limit\n"
    )
    indented = "\n".join(f"    {line}" for line in talk.strip().split("\n"))
    (tmp_path / "eval.yaml").write_text(f"{local}\ntasks:\n  -{indented[3:]}\n")
    spec = waza_face.load_spec(tmp_path, allow_local_code=True)
    assert [grader.name for grader in spec.graders["refund"]][-1] == "refunds@2"


@pytest.fixture
def example(examples, tmp_path, monkeypatch):
    """A copy of one example, so that nothing is left in the original."""

    def copy(name):
        folder = tmp_path / name
        shutil.copytree(examples / name, folder, ignore=shutil.ignore_patterns("runs", "__pycache__", ".pytest_cache"))
        monkeypatch.chdir(folder)
        return folder

    return copy


def python(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=100, env=os.environ | environment
    )


def test_the_notebook_runs_cell_by_cell_under_an_event_loop(example, capsys):
    notebook = json.loads((example("notebook-trace") / "grade_a_trace.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]

    async def kernel():
        names = {}
        for cell in cells:
            exec(cell, names)
        return names

    names = asyncio.run(kernel())
    assert names["grades"].passed
    assert names["strict"].status == "failed"
    assert "Required tool not called: confirm" in capsys.readouterr().out


def test_the_recorded_agent_grades_itself_and_runs_as_a_suite(example, waza):
    folder = example("recorded-agent")
    done = python("agent.py")
    assert (done.returncode, done.stdout) == (0, "passed\n"), done.stderr
    done = waza("run", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 2 tasks passed" in done.stdout and "12 tokens" in done.stdout


def test_the_pytest_suite(example):
    example("pytest-suite")
    plugin = ("-p", "no:hypothesispytest", *(() if ANNOUNCED else ("-p", "waza.pytest_plugin")))
    done = python("-m", "pytest", "-q", *plugin)
    assert done.returncode == 0 and "8 passed" in done.stdout, done.stdout + done.stderr


def test_the_grader_package(example, waza, tmp_path):
    """As `pip install` would lay it out: the module, and its entry points beside it."""
    folder = example("grader-package")
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    name, version = project["project"]["name"].replace("-", "_"), project["project"]["version"]
    site = tmp_path / "site"
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    for module in project["tool"]["setuptools"]["py-modules"]:
        shutil.copy(folder / f"{module}.py", site)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"{key} = {value}" for key, value in project["project"]["entry-points"]["waza.graders"].items()]
    (info / "entry_points.txt").write_text("\n".join(["[waza.graders]", *lines]))
    installed = {"PYTHONPATH": str(site)}
    done = waza("run", folder / "suite.yaml", "--json", env=installed)
    assert done.returncode == 0, done.stdout + done.stderr
    grades = json.loads(done.stdout)["tasks"][0]["runs"][0]["grades"]
    assert [(grade["type"], grade["status"]) for grade in grades][:2] == [
        ("reading_level", "passed"),
        ("no_shouting", "passed"),
    ]
    suite = folder / "suite.yaml"
    suite.write_text(suite.read_text().replace("max_words: 6", "max_wrods: 6"))
    assert "did you mean 'max_words'?" in waza("check", suite, env=installed).stdout
