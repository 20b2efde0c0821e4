"""Controls that fail end the trigger tests: what they would come to means nothing, so nobody pays for it."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from trigger_suites import RULES, stored, suite

from waza.cli import run_command
from waza.model import Result, SkillInvocation, Task, Trace, Trial
from waza.runner.request import request_for, stored_form
from waza.runner.resume import Controls, resume
from waza.runner.run import execute
from waza.runner.suite import Listeners
from waza.runs.store import list_runs
from waza.runs.summary import summarize
from waza.runs.triggers import TriggerPrompt
from waza.suites.load import load_spec

BLIND = {"triggers": []}
CONTROLS = ["trigger:control-explicit", "trigger:control-unrelated"]


def asked(folder):
    return sorted({result.task_id for result in stored(folder).triggers})


@pytest.mark.parametrize("workers", ["1", "4"])
def test_no_prompt_is_asked_once_the_control_did_not_register(workers, tmp_path, capsys):
    assert run_command(["trigger", str(suite(tmp_path, rules=BLIND)), "--trials", "2", "--workers", workers]) == 3
    assert asked(tmp_path) == CONTROLS
    told = capsys.readouterr()
    assert "INVALID: the control that names 'explainer' outright did not register: no skill use was" in told.out
    why = (
        "stopped: trigger tests are INVALID, so their other prompts were not asked: the control that names 'explainer'"
    )
    assert why in " ".join(told.err.split())
    assert "--resume" in told.err and "not asked: 8 trials of the other prompts" in told.out


def test_proof_that_the_prompts_are_asked_where_the_control_registers(tmp_path):
    run_command(["trigger", str(suite(tmp_path)), "-q", "--trials", "2", "--workers", "4"])
    assert len(stored(tmp_path).triggers) == 12 and stored(tmp_path).complete


def test_a_control_that_registers_in_one_trial_is_enough(tmp_path):
    script = {"trigger:control-explicit": {"trials": [{"skill_invocations": []}, {"skill_invocations": ["explainer"]}]}}
    run_command(["trigger", str(suite(tmp_path, rules=RULES | {"tasks": script})), "-q", "--trials", "2"])
    assert stored(tmp_path).complete


@pytest.mark.parametrize("config", [{}, {"trials_per_task": "auto"}, {"workers": 3}])
def test_the_tasks_of_the_suite_are_run_all_the_same_and_that_is_said(config, tmp_path, capsys):
    assert run_command(["run", str(suite(tmp_path, rules=BLIND, **config)), "-q"]) == 3
    run = stored(tmp_path)
    assert (summarize(run).succeeded, asked(tmp_path), run.complete) == (1, CONTROLS, False)
    assert "the tasks were run all the same" in " ".join(capsys.readouterr().err.split())


def test_the_arm_with_the_skill_asks_no_further_prompt_either(tmp_path, capsys):
    run_command(["run", str(suite(tmp_path, rules=BLIND)), "-q", "--baseline"])
    assert asked(tmp_path) == CONTROLS
    assert "the tasks were run all the same" in " ".join(capsys.readouterr().err.split())


def test_a_resumed_run_asks_the_controls_again_and_believes_no_answer_given_beside_failed_ones(tmp_path):
    order = request_for(load_spec(suite(tmp_path, rules=BLIND)))
    first = execute(order, Listeners())
    found = resume(Path(first.folder), stored_form(order))
    assert found.done == {("t", 1)}
    seen = []
    execute(replace(order, resume=found), Listeners(on_start=lambda trial: seen.append(trial.task.id)))
    assert seen == CONTROLS, "they fail again, so nothing else is asked"
    suite(tmp_path)
    assert run_command(["run", str(tmp_path), "-q", "--resume", "--rerun-changed"]) == 0
    run = stored(tmp_path)
    assert (len(list_runs(tmp_path / "runs")), run.complete, len(run.triggers)) == (1, True, 6)


def test_proof_that_answers_beside_controls_that_registered_are_kept(tmp_path):
    order = request_for(load_spec(suite(tmp_path)))
    assert len(resume(Path(execute(order, Listeners()).folder), stored_form(order)).done) == 7


def test_the_reason_holds_nothing_an_agent_said(tmp_path, capsys):
    broken = {"tasks": {"trigger:*": {"error": "key sk-123 refused"}}}
    run_command(["trigger", str(suite(tmp_path, rules=broken)), "-q"])
    told = capsys.readouterr()
    assert "sk-123" in told.out and "sk-123" not in told.err


PROMPTS = [
    TriggerPrompt(id="a", prompt="Use one", skill="one", control="explicit"),
    TriggerPrompt(id="b", prompt="Use two", skill="two", control="explicit"),
    TriggerPrompt(id="p", prompt="Do it", skill="one"),
]


def result(task_id, used, number=1):
    trace = Trace(input="", output="", skill_invocations=[SkillInvocation(name=used)] if used else [])
    return Result(task_id=task_id, trial=number, trace=trace, status="passed")


async def waits(controls):
    """Whether a prompt has to wait now."""
    asking = asyncio.ensure_future(controls.allow(Trial(task=Task(id="p", prompt=""), number=1)))
    await asyncio.sleep(0)
    done = asking.done()
    asking.cancel()
    return not done


def test_a_prompt_waits_until_every_control_is_known_or_one_has_failed():
    async def look():
        controls = Controls(PROMPTS, 2)
        found = [await waits(controls)]
        for one in (result("a", "one"), result("b", "")):
            controls.record(one)
            found.append(await waits(controls))
        controls.record(result("b", "two", 2))
        return [*found, await waits(controls), controls.failed]

    assert asyncio.run(look()) == [True, True, True, False, []]


def test_a_run_that_is_to_stop_keeps_nobody_waiting():
    async def look():
        controls = Controls(PROMPTS)
        before = await waits(controls)
        controls.release()
        return before, await waits(controls)

    assert asyncio.run(look()) == (True, False)


@pytest.mark.timeout(30)
def test_a_run_that_stops_before_its_controls_are_heard_of_ends(tmp_path):
    order = request_for(load_spec(suite(tmp_path, fail_fast=True, workers=6)))
    listeners = Listeners(on_start=lambda trial: listeners.stop("enough") if trial.task.id == "t" else None)
    run = execute(order, listeners)
    assert not run.complete and len(run.triggers) < 3


def test_a_control_that_registered_once_is_not_failed_by_going_on_with_fewer_trials():
    control = TriggerPrompt(id="c", prompt="x", skill="s", control="explicit")
    traces = [Trace(input="", output="", skill_invocations=used) for used in ([], [SkillInvocation(name="s")])]
    heard = [Result(task_id="c", trial=n, status="failed", trace=trace) for n, trace in enumerate(traces, 1)]
    assert Controls([control], 1, heard).failed == []
    assert Controls([control], 1, heard[:1]).failed == ["s"]
