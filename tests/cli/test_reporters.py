"""`--reporter` as a user meets it: always written, one per model, never at the cost of the run."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from waza.cli import run_command

SUITE = """\
name: suite
config: {executor: mock}
graders:
  - {type: text, name: says_hello, config: {contains: [hello]}}
tasks:
  - {id: good, prompt: hi, mock: {output: "hello you"}}
  - {id: bad, prompt: hi, mock: {output: "bye"}}
"""
GOOD = SUITE.replace('"bye"', '"hello too"')
KINDS = ("csv", "github", "html", "json", "junit", "markdown", "table")


@pytest.fixture
def suite(tmp_path):
    def write(text=SUITE):
        (tmp_path / "eval.yaml").write_text(text)

    write()
    return write


def runs(folder):
    return sorted(folder.glob("runs/*/run.json"))


def test_every_report_is_written_also_when_tests_fail(waza, suite, tmp_path):
    done = waza("run", *(f"--reporter={kind}:out/report.{kind}" for kind in KINDS))
    assert done.returncode == 1
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [f"report.{kind}" for kind in KINDS]
    assert "1 of 2 tasks passed" in done.stdout
    assert "junit: out/report.junit" in done.stdout
    cases = ElementTree.parse(tmp_path / "out/report.junit").getroot().findall("testsuite/testcase")
    assert [(case.get("name"), case.get("file"), case.get("line")) for case in cases] == [
        ("good", "eval.yaml", "6"),
        ("bad", "eval.yaml", "7"),
    ]
    assert (tmp_path / "out/report.junit").stat().st_mode & 0o777 == 0o644


def test_without_a_path_a_report_stands_in_the_run_folder(waza, suite, tmp_path):
    waza("run", *(f"--reporter={kind}" for kind in KINDS))
    names = {path.name for path in runs(tmp_path)[0].parent.iterdir()}
    assert {"junit.xml", "report.html", "report.md", "report.txt", "results.csv", "results.json", "comment.md"} <= names


def test_grade_and_show_write_them_too(waza, suite, tmp_path):
    waza("run")
    assert waza("grade", "latest", "--reporter", "junit:graded.xml").returncode == 1
    done = waza("show", "--reporter", "junit:shown.xml", "--reporter", "html:shown.html")
    assert (done.returncode, done.stdout) == (0, "junit: shown.xml\nhtml: shown.html\n")
    for name in ("graded.xml", "shown.xml"):
        assert ElementTree.parse(tmp_path / name).getroot().get("failures") == "1"


def test_a_dash_prints_the_report_and_nothing_else(waza, suite):
    done = waza("run", "--reporter", "csv:-")
    assert done.returncode == 1
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [row["status"] for row in rows] == ["passed", "failed"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--reporter", "junti"], "unknown report 'junti'; did you mean 'junit'?"),
        (["--reporter", "junit:"], "--reporter junit:: the path is missing"),
        (["--reporter", "junit:."], "is a folder; name a file in it"),
        (["--reporter", "csv:a", "--reporter", "html:./a"], "two reports cannot both be written to"),
        (["--reporter", "csv:-", "--reporter", "html:-"], "cannot both be written to standard output"),
        (["--reporter", "csv:-", "--json"], "cannot both be written to standard output"),
        (["--reporter", "github", "--base", "nowhere"], "no run 'nowhere'"),
        (["--reporter", "github", "--base", "eval.yaml"], "eval.yaml: is not a results.json"),
        (["--base", "latest"], "--base needs --reporter"),
    ],
)
def test_a_wrong_call_is_refused_before_anything_runs(suite, tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert run_command(["run", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert runs(tmp_path) == []


def test_each_model_has_a_file_of_its_own_with_a_harmless_name(waza, suite, tmp_path):
    models = ["../a b", "A:B", "a/b"]
    arguments = [word for model in models for word in ("--model", model)]
    waza("run", *arguments, "--reporter", "junit:out/j.xml", "-o", "out/r.json")
    found = {path.name: path for path in (tmp_path / "out").iterdir()}
    junit = ["j_..-a-b.xml", "j_A-B.xml", "j_a-b-2.xml"]
    assert sorted(found) == sorted([*junit, "r_..-a-b.json", "r_A-B.json", "r_a-b-2.json"])
    written = [ElementTree.parse(found[name]).getroot().find("testsuite").get("name") for name in junit]
    assert written == [f"suite [{model}]" for model in models]


@pytest.mark.parametrize(("text", "code"), [(SUITE, 1), (GOOD, 3)])
def test_a_report_that_cannot_be_written_costs_nothing_else(waza, suite, tmp_path, text, code):
    suite(text)
    (tmp_path / "file").write_text("in the way")
    done = waza("run", "--reporter", "junit:file/j.xml", "--reporter", "csv:r.csv")
    assert done.returncode == code
    (told,) = [line for line in done.stderr.splitlines() if "no junit report" in line]
    again = re.search(r"write it again with: waza (show \S+ --reporter junit)$", told)[1]
    assert (tmp_path / "r.csv").is_file()
    assert "of 2 tasks passed" in done.stdout
    assert waza(*again.split()).returncode == 0
    assert (runs(tmp_path)[0].parent / "junit.xml").is_file()


def test_a_report_of_another_package_that_breaks_does_not_look_like_a_bug_of_ours(waza, suite, tmp_path):
    (tmp_path / "site" / "teller-1.dist-info").mkdir(parents=True)
    (tmp_path / "site/teller-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: teller\nVersion: 1\n")
    (tmp_path / "site/teller-1.dist-info/entry_points.txt").write_text(
        "[waza.reports]\nshout = teller:Shout\nbroken = teller:Broken\n"
    )
    (tmp_path / "site/teller.py").write_text(
        "from waza.reports.base import Report\n\n"
        'class Shout(Report):\n    """Loud."""\n    file = "shout.txt"\n'
        "    def render(self, run, before=None):\n        yield run.name.upper().encode()\n\n"
        'class Broken(Report):\n    """Broken."""\n'
        "    def render(self, run, before=None):\n        raise KeyError('x')\n"
    )
    environment = {"PYTHONPATH": str(tmp_path / "site")}
    assert "Loud." in waza("list", "reports", env=environment).stdout
    done = waza("run", "--reporter", "broken:b", "--reporter", "shout:s", env=environment)
    assert done.returncode == 1
    assert "no broken report in b: it failed with KeyError: 'x'" in done.stderr
    assert (tmp_path / "s").read_text() == "SUITE"
    assert not list(tmp_path.glob("crash-*"))


def test_reports_compare_with_a_run_or_with_a_results_file(suite, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    suite(GOOD)
    run_command(["run", "-o", "main.json"])
    base = runs(tmp_path)[0].parent.name
    suite()
    for named in (base, "main.json", f"runs/{base}", f"runs/{base}/results.json", "latest"):
        run_command(["run", "--reporter", "github:c.md", "--base", named])
        text = (tmp_path / "c.md").read_text()
        if named != "latest":
            assert "| ❌ | `bad` | `passed` | `failed` |" in text, named
        else:
            assert "No task changed its status." in text


def test_github_hears_of_the_line_in_the_suite_and_the_summary(waza, suite, tmp_path):
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/late.yaml").write_text("# a comment\nid: late\nprompt: hi\nmock: {output: no}\n")
    (tmp_path / "eval.yaml").write_text(SUITE + '  - "tasks/*.yaml"\n')
    summary = {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"), "GITHUB_WORKSPACE": str(tmp_path)}
    done = waza("run", "--json", "--reporter", "github:comment.md", env=summary)
    json.loads(done.stdout)
    assert [line.split(",title")[0] for line in done.stderr.splitlines() if line.startswith("::")] == [
        "::error file=eval.yaml,line=7",
        "::error file=tasks/late.yaml,line=2",
    ]
    assert (tmp_path / "summary.md").read_text() == (tmp_path / "comment.md").read_text()


def test_a_line_that_moves_is_not_another_suite(waza, suite, tmp_path):
    waza("run")
    suite("# a comment\n" + SUITE)
    done = waza("run", "--resume")
    assert "is complete; nothing was run" in done.stderr
    waza("run")
    prints = [json.loads(path.read_text())["fingerprint"] for path in runs(tmp_path)]
    assert len(prints) == 2 and len(set(prints)) == 1


def test_an_interrupted_run_has_its_reports(suite, tmp_path):
    suite(
        "config: {executor: command, command: [sh, -c, 'echo {prompt}; sleep {prompt}'], parallel: false}\n"
        "graders: [{type: text, name: any, config: {contains: ['0']}}]\n"
        "tasks: [{id: quick, prompt: '0'}, {id: slow, prompt: '60'}]\n"
    )
    process = subprocess.Popen([sys.executable, "-m", "waza", "run", "--reporter", "junit:j.xml"], cwd=tmp_path,
                               stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip
    deadline = time.monotonic() + 60
    while '"quick"' not in "".join(path.read_text() for path in tmp_path.glob("runs/*/journal.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.2)
    for _ in range(2):
        os.kill(process.pid, signal.SIGINT)
        time.sleep(0.5)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    cases = ElementTree.parse(tmp_path / "j.xml").getroot().findall("testsuite/testcase")
    assert [(case.get("name"), case.find("error") is not None) for case in cases] == [("quick", False), ("slow", True)]
    assert "--reporter junit:j.xml" in err


def test_a_large_run_is_written_a_trial_at_a_time(waza, suite, tmp_path):
    tasks = "\n".join(f'  - {{id: t{number}, prompt: hi, mock: {{output: "hello"}}}}' for number in range(300))
    suite(SUITE.split("tasks:")[0] + f"tasks:\n{tasks}\n")
    done = waza("run", "-q", *(f"--reporter={kind}:out.{kind}" for kind in KINDS))
    assert done.returncode == 0, done.stderr
    assert len(Path(tmp_path / "out.csv").read_text().splitlines()) == 301


@pytest.mark.parametrize("job", ["true", ""])
def test_in_a_job_of_github_s_no_text_of_an_agent_s_is_a_command(waza, suite, job):
    suite(SUITE.replace('"bye"', '"::error::owned\\n  ::add-mask::o\\n##[error]owned x::y"'))
    waza("run")
    done = waza("show", "--task", "bad", "-v", env={"GITHUB_ACTIONS": job})
    obeyed = [line for line in done.stdout.splitlines() if line.lstrip().startswith("::") or "##[" in line]
    assert bool(obeyed) == (not job)
    assert "x::y" in done.stdout and "owned" in done.stdout
