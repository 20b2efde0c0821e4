"""`waza compare` and `waza gate` as a user meets them: real runs, documented exit codes."""

import json
import shutil
from types import SimpleNamespace

import pytest

from waza import run
from waza.cli import run_command
from waza.cli._screen import console

SUITE = """
name: shop
config: {{executor: mock}}
graders: [{{type: text, name: says_done, config: {{contains: [done]}}}}]
tasks:
{tasks}
"""


def write(folder, outputs):
    """Write a suite whose tasks answer so."""
    lines = [
        f'  - {{id: t{n}, prompt: hi, tags: [a], golden: {str(n == 0).lower()}, mock: {{output: "{output}", '
        f"tool_events: [{{tool_name: read, args: {{path: {output}}}}}]}}}}"
        for n, output in enumerate(outputs)
    ]
    (folder / "eval.yaml").write_text(SUITE.format(tasks="\n".join(lines)))


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A folder with two runs: in the first all eight tasks pass, in the second one."""
    folder = tmp_path_factory.mktemp("shop")
    for outputs in (["done"] * 8, ["done"] + ["sorry"] * 7):
        write(folder, outputs)
        run(folder)
    return folder


@pytest.fixture
def runs(stored, tmp_path, monkeypatch):
    """The names of both runs, which stand below the current folder."""
    shutil.copytree(stored, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    console.cache_clear()
    return sorted(path.name for path in (tmp_path / "runs").iterdir() if path.is_dir())


@pytest.fixture
def call(capsys):
    """Call the command line in this process."""

    def called(*arguments):
        capsys.readouterr()
        code = run_command([*map(str, arguments)])
        printed = capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=printed.out, stderr=printed.err)

    return called


def test_the_verdict_stands_first_then_the_flips_with_their_reasons(call, runs):
    done = call("compare", *runs)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[2] == "Worse: pass rate -87.5 points over 8 tasks (95 % interval -99.7 to -15.6), p = 0.0156."
    assert "7 regressed" in lines
    assert "✗ regressed  t1" in lines
    assert "first difference at call 1: read with other arguments" in done.stdout
    assert "path: done → sorry" in done.stdout
    assert "tasks passed           8 of 8  1 of 8" in done.stdout


def test_exit_codes_are_asked_for(call, runs, tmp_path):
    before, after = runs
    assert call("compare", before, after, "--fail-on", "worse").returncode == 1
    assert call("compare", after, before, "--fail-on", "worse").returncode == 0
    run(tmp_path)
    assert call("compare", after, "latest", "--fail-on", "worse").returncode == 0
    assert call("compare", after, "latest", "--fail-on", "unclear").returncode == 3


def test_json_markdown_and_a_page(call, runs, tmp_path):
    found = json.loads(call("compare", *runs, "--json").stdout)
    assert (found["verdict"]["word"], found["verdict"]["tasks"]) == ("worse", 8)
    assert found["tasks"][0]["details"]["checks"][0]["grader"] == "says_done"
    assert call("compare", *runs, "--format", "markdown").stdout.startswith("## `shop` · ")
    assert call("compare", *runs, "--format", "html", "-o", "out/page.html").returncode == 0
    assert "Content-Security-Policy" in (tmp_path / "out/page.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["OLDEST"], "there is no run of 'shop' before"),
        (["latest", "latest"], "the same run twice"),
        (["latest", "nope"], "no run 'nope'"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_sentence(call, runs, arguments, sentence):
    done = call("compare", *(word.replace("OLDEST", runs[0]) for word in arguments))
    assert done.returncode == 2
    assert sentence in done.stderr


def test_one_run_alone_is_compared_with_the_one_before_it(call, runs):
    assert call("compare").stdout == call("compare", *runs).stdout


def test_a_gate_is_met_missed_or_undecided(call, runs):
    before, after = runs
    assert call("gate", before, "--min-pass-rate", "0.9").returncode == 0
    assert call("gate", before, "--min-pass-rate", "0.9", "--sure").returncode == 3
    done = call("gate", after, "--min-pass-rate", "a=0.9", "--against", before)
    assert done.returncode == 1
    assert "✗ pass rate of a" in done.stdout
    assert "it fell, and chance alone would hardly do that" in done.stdout
    assert call("gate", after).returncode == 0  # the golden task passed
    assert call("gate", before, "--max-cost", "1").returncode == 3


def test_a_run_that_was_extended_is_named_and_can_be_looked_at_any_time(call, runs):
    assert "further trials" not in call("compare").stdout
    assert call("run", "-q", "--resume", "--trials", "3").returncode == 1
    done = " ".join(call("compare").stdout.split())
    assert f"run {runs[1]} got 16 further trials after it was complete" in done
    assert "8 tasks have more trials in one run" in done
    assert "got 16 further trials" in " ".join(call("gate", "--against", runs[0]).stderr.split())
    done = " ".join(call("compare", "--anytime").stdout.split())
    assert "over 8 pairs of trials in 8 tasks" in done and "further trials" not in done
    found = json.loads(call("compare", "--anytime", "--json").stdout)["verdict"]
    assert (found["word"], found["these_tasks"], found["anytime"]["pairs"]) == ("too little evidence", True, 8)


def test_gate_and_compare_name_their_questions(call, runs):
    assert "Question: did these very tasks get worse?" in call("gate", "--against", runs[0]).stdout
    done = call("gate", "--against", runs[0], "--tasks-like-these", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["question"].startswith("Question: did tasks like these get worse?")
    assert "Question: would tasks like these pass" in call("compare").stdout
    assert "Question: did these very tasks change?" in call("compare", "--these-tasks").stdout
    assert call("run", "-q").returncode == 1
    several = call("compare", *runs, "latest").stdout
    assert "p = 0.0312 (Holm over 2 comparisons)" in " ".join(several.split())


def test_a_gate_as_data_and_as_markdown(call, runs):
    found = json.loads(call("gate", runs[1], "--against", runs[0], "--json").stdout)
    statuses = {gate["name"]: gate["status"] for gate in found["gates"]}
    assert (found["exit_code"], statuses["golden tasks"]) == (1, "passed")
    assert statuses["pass rate against the baseline"] == "failed"
    assert "| ✗ `pass rate` |" in call("gate", runs[1], "--min-pass-rate", "0.9", "--format", "markdown").stdout


def test_a_gate_on_some_of_the_tasks_needs_a_word(call, runs, tmp_path):
    assert call("run", tmp_path, "-q", "--task", "t0").returncode == 0
    done = call("gate", "latest", "--min-pass-rate", "0.9")
    assert done.returncode == 3
    assert "7 of 8 tasks were not selected (--task t0)" in " ".join(done.stdout.split()) and "t1, t2, t3" in done.stdout
    told = json.loads(call("gate", "latest", "--min-pass-rate", "0.9", "--json").stdout)
    assert told["missing"][0]["tasks"] == [f"t{n}" for n in range(1, 8)]
    allowed = call("gate", "latest", "--min-pass-rate", "0.9", "--allow-partial")
    assert (allowed.returncode, "partial run: 7 of 8 tasks" in allowed.stderr) == (0, True)
    assert call("gate", "latest", "--against", runs[0], "--allow-partial").returncode == 0
    file = max((tmp_path / "runs").glob("*/results.json"))
    assert call("gate", shutil.copy(file, tmp_path / "elsewhere.json"), "--min-pass-rate", "0.9").returncode == 3
    run(tmp_path, tags=["a"], tasks=["t0"])
    assert call("gate", "latest", "--min-pass-rate", "0.9").returncode == 3


@pytest.mark.parametrize("threshold", ["1.5", "x", "a=", "a=2", "nan"])
def test_a_threshold_that_is_no_share_is_refused(call, runs, threshold):
    done = call("gate", "latest", "--min-pass-rate", threshold)
    assert done.returncode == 2
    assert "a share between 0 and 1 is needed" in done.stderr


def test_in_a_process_of_its_own(runs, waza, tmp_path):
    done = waza("compare", tmp_path / "runs" / runs[0], tmp_path / "runs" / runs[1], "--fail-on", "worse")
    assert (done.returncode, done.stderr) == (1, "")
