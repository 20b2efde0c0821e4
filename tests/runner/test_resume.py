"""Going on with a run: what is done stays done, what changed is told, what is missing is run."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from waza.errors import StoreError, UsageError
from waza.runner.request import request_for, stored_form
from waza.runner.resume import AFFECTS, JUDGE, PACE, changes, resume
from waza.runs.store import RunFolder
from waza.suites.load import load_spec
from waza.suites.shapes import ConfigShape

SUITE = """
config:
  {executor: command, command: [sh, -c, 'cat >> "$LEDGER"; echo >> "$LEDGER"; echo yes'], pass_environment: [LEDGER]}
graders: [{type: text, name: says_yes, config: {contains: ['yes']}}]
tasks:
  - {id: a, prompt: a}
  - {id: b, prompt: b}
"""


@pytest.fixture
def ran(waza, tmp_path):
    """Write the suite; `ran(*arguments)` runs it and returns the process and the prompts agents were started with."""
    (tmp_path / ".waza.yaml").touch()
    (tmp_path / "eval.yaml").write_text(SUITE)
    ledger = tmp_path / "ledger"

    def call(*arguments):
        ledger.write_text("")
        done = waza("run", *arguments, env={"LEDGER": str(ledger)})
        return done, ledger.read_text().split()

    return call


def test_resume_of_a_complete_run_runs_nothing_and_keeps_the_exit_code(ran, tmp_path):
    ran()
    done, started = ran("--resume", "-o", "copy.json")
    assert (done.returncode, started) == (0, [])
    assert "is complete; nothing was run" in done.stderr
    assert json.loads((tmp_path / "copy.json").read_text())["summary"]["succeeded"] == 2


def test_resume_without_a_run_starts_one(ran):
    done, started = ran("--resume")
    assert (done.returncode, started) == (0, ["a", "b"])
    assert "no run of this suite yet" in done.stderr


def test_resume_runs_only_what_is_missing(ran):
    ran("--trials", "1")
    done, started = ran("--resume", "--trials", "3")
    assert (done.returncode, started) == (0, ["a", "a", "b", "b"])


def test_a_changed_prompt_is_refused_and_named_and_rerun_changed_runs_just_that(ran, tmp_path):
    ran()
    (tmp_path / "eval.yaml").write_text(SUITE.replace("prompt: b", "prompt: bb"))
    done, started = ran("--resume")
    assert (done.returncode, started) == (2, [])
    assert "b: prompt changed since" in done.stderr and "--rerun-changed" in done.stderr
    done, started = ran("--resume", "--rerun-changed")
    assert (done.returncode, started) == (0, ["bb"])


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("contains: ['yes']", "contains: ['y']", "graders"),
        ("echo yes'", "echo  yes'", "config.command"),
        ("executor: command,", "executor: command, model: m2,", "config.model"),
        ("prompt: a}", "prompt: a, inputs: {environment: {X: y}}}", "environment"),
        ("prompt: a}", "prompt: a, timeout_seconds: 3}", "timeout_s"),
    ],
)
def test_everything_that_changes_results_is_noticed(ran, tmp_path, old, new, field):
    ran()
    (tmp_path / "eval.yaml").write_text(SUITE.replace(old, new))
    done, _ = ran("--resume")
    assert field in done.stderr


def test_fixture_bytes_count(ran, tmp_path):
    (tmp_path / "fixtures").mkdir()
    (tmp_path / "fixtures/data.txt").write_text("one")
    (tmp_path / "eval.yaml").write_text(SUITE.replace("prompt: a}", "prompt: a, inputs: {files: [{path: data.txt}]}}"))
    ran()
    assert ran("--resume")[0].returncode == 0
    (tmp_path / "fixtures/data.txt").write_text("two")
    done, _ = ran("--resume")
    assert "a: files changed since" in done.stderr


def test_pace_and_words_for_readers_may_change(ran, tmp_path):
    ran()
    text = SUITE.replace("executor: command,", "executor: command, parallel: true, workers: 3, fail_fast: true,")
    (tmp_path / "eval.yaml").write_text(
        text.replace("prompt: a}", "prompt: a, description: d, tags: [t], golden: true}")
    )
    done, started = ran("--resume", "--workers", "2", "-v")
    assert (done.returncode, started) == (0, [])


def test_added_tasks_run_and_removed_ones_are_named(ran, tmp_path):
    ran()
    (tmp_path / "eval.yaml").write_text(SUITE.replace("{id: a, prompt: a}", "{id: c, prompt: c}"))
    done, started = ran("--resume")
    assert (done.returncode, started) == (0, ["c"])
    assert "no longer in the suite, left out of the report: a" in done.stderr
    assert "2 of 2 tasks passed" in done.stdout


def test_a_run_can_be_named_and_an_unknown_one_is_refused(ran):
    done, _ = ran()
    run = re.search(r"waza show (\S+)\)", done.stdout)[1]
    assert ran("--resume", run[:15])[0].returncode == 0
    done, _ = ran("--resume", "19990101")
    assert done.returncode == 2 and "no run '19990101'" in done.stderr


def test_every_setting_is_either_pace_or_affects_results():
    assert set(ConfigShape.model_fields) == PACE | AFFECTS | JUDGE
    assert not PACE & AFFECTS and not JUDGE & (PACE | AFFECTS)


def test_trials_whose_agent_could_not_run_can_be_run_again(waza, tmp_path):
    (tmp_path / ".waza.yaml").touch()
    text = "config: {executor: command, command: [./agent.sh]}\ngraders: [{type: text, config: {contains: ['yes']}}]\n"
    (tmp_path / "eval.yaml").write_text(text + "tasks: [{id: a, prompt: x}]\n")
    agent = tmp_path / "agent.sh"
    agent.write_text("#!/bin/sh\nexit 127\n")
    agent.chmod(0o755)
    assert waza("run").returncode == 3
    agent.write_text("#!/bin/sh\necho yes\n")
    assert waza("run", "--resume").returncode == 3
    assert waza("run", "--resume", "--rerun-errors").returncode == 0


def test_nothing_changed_means_no_changes(tmp_path):
    (tmp_path / "eval.yaml").write_text(SUITE)
    data = load_spec(tmp_path).as_data()
    assert list(changes(data, data)) == []


def test_max_cost_stops_cleanly_and_resume_goes_on(waza, tmp_path):
    (tmp_path / ".waza.yaml").touch()
    tasks = "".join(
        f"  - {{id: t{n}, prompt: x, mock: {{output: 'yes', usage: {{cost_usd: 0.4}}}}}}\n" for n in range(5)
    )
    text = "config: {executor: mock}\ngraders: [{type: text, config: {contains: ['yes']}}]\ntasks:\n" + tasks
    (tmp_path / "eval.yaml").write_text(text)
    done = waza("run", "--max-cost", "1")
    assert done.returncode == 3
    assert "$1.2000 spent, the limit is $1.0000" in done.stderr and "--resume" in done.stderr
    assert "3 of 3 decided tasks passed" in done.stdout
    advice = done.stderr.split("continue with:")[1]
    assert "--resume" in advice and "--max-cost" not in advice, "a limit that is reached would end it at once"
    done = waza("run", "--resume")
    assert done.returncode == 0 and "5 of 5 tasks passed" in done.stdout


def test_an_interrupted_rerun_of_changed_tasks_leaves_no_stale_result(ran, tmp_path):
    from waza.runs.store import read_run

    ran()
    (tmp_path / "eval.yaml").write_text(SUITE.replace("prompt: b", "prompt: bb"))
    done, started = ran("--resume", "--rerun-changed", "--task", "a")
    assert started == [], "only the unchanged task was chosen, so nothing ran"
    [folder] = [path for path in (tmp_path / "runs").iterdir() if path.is_dir()]
    assert [result.task_id for result in read_run(folder).results] == ["a"], (
        "the result of the old prompt must not count"
    )
    done, started = ran("--resume")
    assert (done.returncode, started) == (0, ["bb"])


def test_resume_goes_on_with_the_trials_and_tasks_the_run_was_started_with(ran):
    ran("--trials", "2", "--task", "a")
    done, started = ran("--resume")
    assert (done.returncode, started) == (0, [])
    assert "1 of 1 task passed" in done.stdout


def test_a_filter_on_resume_keeps_the_other_tasks_of_the_run(ran):
    ran()
    done, started = ran("--resume", "--task", "a")
    assert (done.returncode, started) == (0, [])
    assert "2 of 2 tasks passed" in done.stdout


def test_a_run_of_another_suite_is_refused(ran, waza, tmp_path):
    done, _ = ran()
    run = re.search(r"waza show (\S+)\)", done.stdout)[1]
    (tmp_path / "other.yaml").write_text(SUITE)
    done = waza("run", "other.yaml", "--resume", run, env={"LEDGER": str(tmp_path / "ledger")})
    assert done.returncode == 2 and "is not a run of this suite" in done.stderr


def test_what_was_not_graded_is_run_again_with_graders(ran):
    assert ran("--skip-graders")[0].returncode == 0
    done, started = ran("--resume")
    assert (done.returncode, started) == (0, ["a", "b"])
    assert "2 of 2 tasks passed" in done.stdout


def test_of_two_that_resume_a_run_the_second_runs_nothing_again(tmp_path):
    """The run is locked before it is read, so nobody goes on from what another is about to add to."""
    (tmp_path / ".waza.yaml").touch()
    agent = 'cat >> "$LEDGER"; echo >> "$LEDGER"; sleep 0.3; echo yes'
    (tmp_path / "eval.yaml").write_text(SUITE.replace('cat >> "$LEDGER"; echo >> "$LEDGER"; echo yes', agent))
    ledger = tmp_path / "ledger"
    environment = os.environ | {"LEDGER": str(ledger), "NO_COLOR": "1", "COLUMNS": "300"}

    def started(*arguments):
        command = [sys.executable, "-m", "waza", "run", *arguments]
        return subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=-1, stderr=-1, text=True)

    started("--task", "a").communicate()
    ledger.write_text("")
    both = [started("--resume", "--trials", "3") for _ in range(2)]
    said = [process.communicate(timeout=60)[1] for process in both]
    assert sorted(ledger.read_text().split()) == ["a", "a"], said
    codes = [process.returncode for process in both]
    assert 0 in codes
    if codes != [0, 0]:  # else the second came when the first was done
        refused = said[codes.index(next(code for code in codes if code))]
        assert re.search(r"another run is writing it \(process \d+ on .*, since 20.*\); wait for it or end it", refused)


def test_a_run_is_held_from_the_moment_it_is_read_for_a_resume(ran, tmp_path):
    ran()
    (folder,) = (tmp_path / "runs").glob("2*")
    spec = load_spec(tmp_path)
    found = resume(folder, stored_form(request_for(spec)))
    with pytest.raises(StoreError, match=f"another run is writing it .process {os.getpid()} on"):
        RunFolder.open(folder)
    found.kept.close()
    with pytest.raises(UsageError, match="not a run of this suite"):
        resume(folder, stored_form(request_for(replace(spec, file=tmp_path / "other.yaml"))))
    RunFolder.open(folder).close()  # refused ones hold nothing


def test_a_result_that_the_agent_writes_into_the_journal_does_not_count(ran, waza, tmp_path):
    """It is well-formed and its checksum is right; show, gate, list and --resume report it and leave it out."""
    forger = """
import json, os, pathlib, sys, zlib
journal = next(pathlib.Path(os.environ["LEDGER"]).parent.glob("runs/2*/journal.jsonl"))
trace = {"input": "b", "output": "yes"}
grades = [{"name": "says_yes", "type": "text", "status": "passed", "score": 1.0, "feedback": ""}]
for trial in (1, 2):
    result = {"task_id": "b", "trial": trial, "status": "passed", "trace": trace, "grades": grades}
    payload = json.dumps({"kind": "result", "result": result}).encode().replace(b": ", b":").replace(b", ", b",")
    with journal.open("ab") as file:
        file.write(b"%08x %b\\n" % (zlib.crc32(payload), payload))
print("no")
"""
    (tmp_path / "forger.py").write_text(forger)
    suite = SUITE.split("graders:")[1]
    command = json.dumps([sys.executable, str(tmp_path / "forger.py")])
    config = f"config: {{executor: command, command: {command}, pass_environment: [LEDGER]}}"
    (tmp_path / "eval.yaml").write_text(f"{config}\ngraders:{suite}")
    done, _ = ran("--task", "b")
    assert done.returncode == 1
    assert "another program wrote into it during the run" in " ".join(done.stderr.split())
    ignored = "altered: 2 records that this run did not write were ignored"
    shown = waza("show")
    assert ignored in " ".join(shown.stdout.split())
    assert "0 of 1" in shown.stdout
    gate = waza("gate", "--min-pass-rate", "1", "--allow-partial", "--json")
    assert gate.returncode == 1
    assert json.loads(gate.stdout)["integrity"] == ignored
    assert ignored in json.loads(waza("show", "--json").stdout)["summary"]["warnings"]
    assert "(altered)" in waza("runs").stdout
    done, _ = ran("--resume", "--trials", "2")
    assert "2 records that this run did not write were ignored" in " ".join(done.stderr.split())
    assert json.loads(waza("show", "--json").stdout)["tasks"][0]["runs"][1]["status"] == "failed"
