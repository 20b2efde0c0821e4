"""The GitHub Action and the workflow that uses it: their scripts run unchanged, with the variables that GitHub sets."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from waza.untrusted.yaml import read_yaml

ROOT = Path(__file__).parent.parent.parent
ACTION = read_yaml((ROOT / "action.yml").read_bytes(), "action.yml")
EXAMPLE = ROOT / "examples" / "github-actions" / "waza.yml"
SUITE = """\
config: {executor: mock}
graders: [{type: text, name: polite, config: {contains: [hello]}}]
tasks:
  - {id: greet, prompt: hi, mock: {output: "ANSWER"}}
"""
GH = """\
#!/bin/sh
printf '%s\\n' "$*" >> "$CALLS"
case "$*" in *--paginate*) printf '%s' "$FOUND"; exit 0;; esac
exit "${REFUSES:-0}"
"""


def step(name):
    return next(step for step in ACTION["runs"]["steps"] if step.get("name") == name)


def bash(script, folder, **environment):
    """Run a step's script as GitHub does."""
    path = f"{folder / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env=os.environ | {"PATH": path} | environment,
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.fixture
def workspace(tmp_path):
    """A checkout with a suite, and what a run of the step sees of GitHub."""

    def run(answer="hello you", **given):
        (tmp_path / "eval.yaml").write_text(SUITE.replace("ANSWER", answer))
        defaults = {"SUITE": ".", "ARGUMENTS": "", "BASE": "", "REPORTS": "out"}
        files = {name: str(tmp_path / name.lower()) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        return bash(step("Run the suite")["run"], tmp_path, **files, GITHUB_WORKSPACE=str(tmp_path), **defaults | given)

    return run


def test_a_suite_that_passes_leaves_every_report_and_a_summary(workspace, tmp_path):
    done = workspace()
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "comment.md",
        "junit.xml",
        "report.html",
        "results.json",
    ]
    assert (tmp_path / "github_output").read_text() == "exit-code=0\n"
    assert "1 of 1 task passed" in (tmp_path / "github_step_summary").read_text()


def test_a_suite_that_fails_fails_the_step_annotates_and_compares(workspace, tmp_path):
    workspace()
    shutil.copy(tmp_path / "out/results.json", tmp_path / "main.json")
    done = workspace("go away", BASE="main.json", ARGUMENTS="--trials=2\n\n--task\ngre*")
    assert done.returncode == 1
    assert (tmp_path / "github_output").read_text() == "exit-code=0\nexit-code=1\n"
    assert "::error file=eval.yaml,line=4,title=greet%3A failed::" in done.stderr
    assert "| ❌ | `greet` | `passed` | `failed` |" in (tmp_path / "out/comment.md").read_text()
    assert json.loads((tmp_path / "out/results.json").read_text())["config"]["runs_per_test"] == 2


def test_a_missing_base_is_reported_and_left_out(workspace):
    done = workspace(BASE="base/results.json")
    assert done.returncode == 0
    assert "nothing to compare with: there is no base/results.json" in done.stdout


@pytest.mark.parametrize("argument", ["--task=$(touch owned)", "--task=`touch owned`", "--task=a; touch owned"])
def test_an_input_is_never_a_command(workspace, tmp_path, argument):
    assert workspace(ARGUMENTS=argument).returncode == 2
    assert not (tmp_path / "owned").exists()


def test_no_script_has_an_input_of_github_s_written_into_it():
    workflow = read_yaml(EXAMPLE.read_bytes(), "waza.yml")
    steps = [*ACTION["runs"]["steps"], *workflow["jobs"]["evals"]["steps"]]
    scripts = [step["run"] for step in steps if "run" in step]
    assert len(scripts) == 4
    assert [script for script in scripts if "${{" in script] == []


def test_the_workflow_hands_the_action_only_inputs_it_has():
    workflow = read_yaml(EXAMPLE.read_bytes(), "waza.yml")
    (call,) = [step for step in workflow["jobs"]["evals"]["steps"] if step.get("uses", "").startswith("OWNER/waza@")]
    assert set(call["with"]) <= set(ACTION["inputs"])
    assert workflow["permissions"] == {"contents": "read", "actions": "read", "pull-requests": "write"}
    assert all(entry["description"] for entry in ACTION["inputs"].values())


class TestComment:
    @pytest.fixture
    def comment(self, tmp_path):
        """Run the step that comments, with a `gh` that records its arguments."""
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin/gh").write_text(GH)
        (tmp_path / "bin/gh").chmod(0o755)
        (tmp_path / "out").mkdir()
        (tmp_path / "out/comment.md").write_text("<!-- waza suite x -->\n## fine\n")
        calls = tmp_path / "calls"

        def run(found="", refuses="0"):
            given = {
                "COMMENTS": "repos/o/r/issues/7/comments",
                "COMMENT": "repos/o/r/issues/comments",
                "REPORTS": "out",
            }
            script = step("Comment on the pull request")["run"]
            done = bash(script, tmp_path, **given, GH_TOKEN="t", CALLS=str(calls), FOUND=found, REFUSES=refuses)
            assert done.returncode == 0, done.stderr
            return calls.read_text().splitlines()[-1], done.stdout

        return run

    def test_the_first_run_writes_one(self, comment):
        assert comment()[0] == "api --silent --method POST repos/o/r/issues/7/comments -F body=@out/comment.md"

    def test_the_next_run_brings_it_up_to_date(self, comment):
        assert (
            comment("41\n42\n")[0] == "api --silent --method PATCH repos/o/r/issues/comments/41 -F body=@out/comment.md"
        )

    def test_a_refused_comment_is_reported_and_fails_nothing(self, comment):
        assert "::warning::the comment could not be written" in comment(refuses="1")[1]
