"""A run that is interrupted: clean on the first signal, at once on the second, nothing lost on kill -9."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from campaign import count, size
from waza.runner.baseline import with_baseline
from waza.runner.request import request_for, stored_form
from waza.runner.resume import resume
from waza.runner.run import execute
from waza.runner.suite import Listeners
from waza.runner.trial import CUT_SHORT
from waza.runs.outcomes import run_costs
from waza.runs.store import read_run
from waza.suites.load import load_spec

ENVIRONMENT = {**os.environ, "NO_COLOR": "1", "COLUMNS": "120"}


def start(folder, *arguments):
    command = [sys.executable, "-m", "waza", "run", str(folder), *arguments]
    own = {"XDG_CONFIG_HOME": os.environ["XDG_CONFIG_HOME"]}  # set after this file was imported
    return subprocess.Popen(
        command, cwd=folder, env=ENVIRONMENT | own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError("it did not happen in time")


def results_of(folder):
    """The (task, trial) pairs that are safe in the newest journal."""
    journals = sorted((folder / "runs").glob("*/journal.jsonl"))
    found = []
    for line in journals[-1].read_bytes().split(b"\n") if journals else []:
        if b'"kind":"result"' in line:
            try:
                result = json.loads(line[9:])["result"]
            except ValueError:
                continue
            if result.get("fingerprint") != CUT_SHORT:  # which is only there for its costs
                found.append((result["task_id"], result["trial"]))
    return found


@pytest.fixture
def slow(suite):
    return suite(
        """
        config: {executor: command, command: [sh, -c, "touch started; sleep 30"]}
        graders: [{type: text, config: {contains: ['yes']}}]
        tasks: [{id: quick, prompt: x, timeout_seconds: 0.3}, {id: slow, prompt: x}, {id: never, prompt: x}]
        """
    )


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=lambda v: str(v)
)
def test_the_second_signal_ends_at_once_keeps_results_and_says_how_to_go_on(slow, number, code):
    process = start(slow)
    wait_for(lambda: results_of(slow) == [("quick", 1)])
    time.sleep(0.3)
    process.send_signal(number)
    time.sleep(0.3)
    assert process.poll() is None, "the first signal lets running trials go on for a while"
    began = time.monotonic()
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == code, err
    assert time.monotonic() - began < 5
    assert "--resume" in err and "1 result kept" in err
    assert results_of(slow) == [("quick", 1)]
    assert json.loads(next((slow / "runs").glob("*/results.json")).read_text())["complete"] is False


def test_the_first_signal_lets_a_running_trial_end_and_starts_no_other(suite):
    folder = suite(
        """
        config: {executor: command, command: [sh, -c, "sleep 1; echo yes"]}
        graders: [{type: text, config: {contains: ['yes']}}]
        tasks: [{id: a, prompt: x}, {id: b, prompt: x}]
        """
    )
    process = start(folder)
    wait_for(lambda: list((folder / "runs").glob("*/journal.jsonl")))
    time.sleep(0.4)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130, err
    assert results_of(folder) == [("a", 1)]
    again = start(folder, "--resume")
    again.communicate(timeout=20)
    assert again.returncode == 0
    assert results_of(folder) == [("a", 1), ("b", 1)]


def normal(tree):
    """A results file without times and ids."""
    if isinstance(tree, dict):
        loose = ("duration", "timestamp", "eval_id", "started_at")
        return {key: normal(value) for key, value in tree.items() if not any(word in key for word in loose)}
    return [normal(item) for item in tree] if isinstance(tree, list) else tree


def kill_campaign(folder, kills, seed):
    """Kill -9 a run at random moments and resume it until it is complete; return how often trials were executed."""
    rng = random.Random(seed)
    acknowledged, ledger = set(), folder / "ledger"
    done = 0
    while True:
        process = start(folder, "--resume", "--workers", "4")
        if done < kills:
            time.sleep(0.3 + rng.random())
            process.kill()
        _, err = process.communicate(timeout=100)
        assert process.returncode in (0, -signal.SIGKILL), err
        done += process.returncode == -signal.SIGKILL
        now = results_of(folder)
        count("kill -9", process.returncode == -signal.SIGKILL)
        count("acknowledged results lost", len(acknowledged - set(now)))
        count("results written twice", len(now) - len(set(now)))
        assert acknowledged <= set(now), f"lost: {acknowledged - set(now)}"
        assert len(now) == len(set(now)), "a result was written twice"
        acknowledged = set(now)
        if process.returncode == 0:
            return done, [line for line in ledger.read_text().split("\n") if line]


AGENT = """
    import os, time
    def answer(prompt):
        with open(os.environ["LEDGER"], "a") as ledger:
            ledger.write(prompt + "\\n")
        time.sleep(0.2)
        return "yes " + prompt
    """


@pytest.mark.timeout(900)
def test_kill_9_at_random_moments_loses_nothing_and_repeats_only_what_was_in_flight(suite, tmp_path):
    tasks, kills = size(40, 100, 300), size(4, 15, 50)
    folder = suite(
        "config: {executor: python, agent: 'ledger_agent:answer'}\n"
        "graders: [{type: text, config: {contains: ['yes']}}]\n"
        "tasks:\n" + "".join(f"  - {{id: t{n:03}, prompt: t{n:03}}}\n" for n in range(tasks)),
        ledger_agent__py=AGENT,
    )
    ENVIRONMENT["LEDGER"] = str(folder / "ledger")
    done, executed = kill_campaign(folder, kills, seed=tasks)
    assert done == kills, "the run was over before it was killed often enough"
    assert set(executed) == {f"t{n:03}" for n in range(tasks)}
    assert len(executed) - tasks <= 4 * done, "more than the trials in flight were run again"
    interrupted = json.loads(next((folder / "runs").glob("*/results.json")).read_text())
    calm = start(folder)
    calm.communicate(timeout=200)
    straight = json.loads(sorted((folder / "runs").glob("*/results.json"))[-1].read_text())
    assert normal(interrupted) == normal(straight)
    assert interrupted["summary"]["succeeded"] == tasks


def test_agents_die_with_waza(suite, tmp_path):
    folder = suite(
        f"""
        config: {{executor: command, command: [sh, -c, "while :; do date +%s%N > {tmp_path}/alive; sleep 0.05; done"]}}
        graders: [{{type: text, config: {{contains: ['yes']}}}}]
        tasks: [{{id: a, prompt: x}}]
        """
    )
    process = start(folder)
    alive = tmp_path / "alive"
    wait_for(alive.exists)
    before = alive.read_text()
    wait_for(lambda: alive.read_text() not in ("", before))
    process.kill()
    process.communicate(timeout=20)
    time.sleep(1.0)
    last = alive.read_text()
    time.sleep(0.3)
    assert alive.read_text() == last


def test_two_runs_on_one_folder_get_one_sentence(slow):
    process = start(slow)
    try:
        wait_for(lambda: results_of(slow))
        second = start(slow, "--resume")
        _, err = second.communicate(timeout=20)
        assert second.returncode == 3
        assert len(err.strip().split("\n")) == 1, err
    finally:
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)


def test_the_run_folder_vanishing_is_one_sentence(slow):
    import shutil

    process = start(slow)
    wait_for(lambda: results_of(slow))
    shutil.rmtree(slow / "runs")
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    ended_already = -signal.SIGINT  # the second signal met a program whose work had ended
    assert process.returncode in (3, 130, ended_already), err
    assert "Traceback" not in err and not list(Path(slow).glob("crash-*"))


@pytest.mark.parametrize("with_control", [False, True])
def test_a_signal_is_seen_between_trials_of_an_agent_that_answers_at_once(suite, with_control):
    """Such a run waits for nothing, so the event loop has to be given its turn."""
    folder = suite(
        """
        skill: greet
        config: {executor: mock, trials_per_task: 3000}
        graders: [{type: text, config: {contains: ['yes']}}]
        tasks: [{id: a, prompt: x, mock: {output: 'yes'}}]
        """
    )
    (folder / "skills/greet").mkdir(parents=True)
    (folder / "skills/greet/SKILL.md").write_text("---\nname: greet\ndescription: greets people\n---\nSay hello.\n")
    done = []

    def on_done(result):
        done.append(result)
        if len(done) == 5:
            signal.raise_signal(signal.SIGTERM)

    order, listeners = request_for(load_spec(folder)), Listeners(on_done=on_done)
    if with_control:
        execute(with_baseline(order), listeners)
    else:
        execute(order, listeners)
    assert listeners.stop.signal == signal.SIGTERM
    assert 5 <= len(done) < 2_900


CLAUDE = """#!/bin/sh
if [ "$1" = --version ]; then echo 1; exit; fi
said='{"type":"assistant","message":{"id":"m","content":[],"usage":{"input_tokens":7,"output_tokens":3}}}'
echo '{"type":"system","subtype":"init","session_id":"s1"}'
echo "$said"
case "$*" in *--resume*) touch %s/started; sleep 60; esac
echo '{"type":"result","subtype":"success","result":"yes","session_id":"s1","total_cost_usd":0.25,
"usage":{"input_tokens":7,"output_tokens":3}}' | tr -d '\\n'
"""


def test_what_an_agent_reported_before_a_second_signal_ended_it_is_billed(suite, monkeypatch):
    """Its first prompt cost $0.25, its second one tokens so far; the trial is no result, and is run again."""
    folder = suite(
        """
        config: {executor: claude-code}
        graders: [{type: text, config: {contains: ['yes']}}]
        tasks: [{id: a, inputs: {prompt: x, follow_up_prompts: [again]}}]
        """
    )
    (folder / "claude").write_text(CLAUDE % folder)
    (folder / "claude").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def interrupt():
        wait_for((folder / "started").exists)
        time.sleep(0.3)
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)

    threading.Thread(target=interrupt).start()
    run = execute(request_for(load_spec(folder)), Listeners())
    costs = run_costs(read_run(run.folder))
    assert (len(run.results), run.complete, costs) == (0, False, run_costs(run))
    assert (costs.agent.cost_usd, costs.agent.input_tokens, costs.agent.without_cost) == (0.25, 14, 1)
    assert resume(Path(run.folder), stored_form(request_for(load_spec(folder)))).done == frozenset()
