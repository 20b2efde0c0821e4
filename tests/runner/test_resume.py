"""Going on with a run: what is done stays done, what changed is told, what is missing is run."""

import json
import re

import pytest

from waza.runner.resume import AFFECTS, JUDGE, PACE, changes
from waza.spec.load import load_spec
from waza.spec.shapes import ConfigShape

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
    assert "3 of 5 tasks passed" in done.stdout
    advice = done.stderr.split("go on with:")[1]
    assert "--resume" in advice and "--max-cost" not in advice, "a limit that is reached would end it at once"
    done = waza("run", "--resume")
    assert done.returncode == 0 and "5 of 5 tasks passed" in done.stdout


def test_an_interrupted_rerun_of_changed_tasks_leaves_no_stale_result(ran, tmp_path):
    from waza.results.store import read_run

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
