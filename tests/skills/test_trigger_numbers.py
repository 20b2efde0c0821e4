"""Trigger tests in numbers: counts, weights and measures, errors, and when the controls make them worthless."""

import csv
import io
import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from trigger_suites import TESTS, suite

from waza.analysis.gate import Needs, gates
from waza.model import Result, Run, SkillInvocation, Trace
from waza.reports.csv import CsvReport
from waza.reports.json import JsonReport
from waza.reports.markdown import MarkdownReport
from waza.runner.request import request_for
from waza.runner.run import execute
from waza.runner.suite import Listeners
from waza.runs.summary import summarize
from waza.runs.triggers import (
    TriggerAnswer,
    TriggerPrompt,
    answers_of,
    recall_interval,
    summarize_triggers,
    trigger_numbers,
)
from waza.suites.load import load_spec

AGENT = """
import time, waza
def agent(prompt):
    if prompt == "late":
        time.sleep(2)
    if prompt == "crash":
        raise KeyError("no such key")
    used = [{"name": "explainer"}] if "xplain" in prompt else []
    return waza.Trace.from_json({"input": prompt, "output": "x", "skill_invocations": used, "tool_events": []})
"""
CASES = [
    json.loads(line)
    for line in (Path(__file__).parent.parent / "data/conformance/helpers_triggers.jsonl").read_text().splitlines()
]
COUNTS = ("true_positives", "false_positives", "true_negatives", "false_negatives")
MEASURES = ("precision", "recall", "f1", "accuracy")


def answer(should, did, confidence="high", number=1, phrasing=""):
    prompt = TriggerPrompt(id=f"p{number}", prompt="x", skill="s", should_trigger=should, confidence=confidence)
    return TriggerAnswer(prompt=prompt, trial=1, did_trigger=did)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_conformance(case):
    found = trigger_numbers(answer(c["should_trigger"], c["did_trigger"], c["confidence"]) for c in case["input"])
    if case["expected"] is None:
        assert found is None
    else:
        got = {name: getattr(found, name) for name in case["expected"]}
        assert got == pytest.approx(case["expected"], abs=1e-4)


ANSWERS = st.lists(
    st.builds(answer, st.booleans(), st.sampled_from([True, False, None]), st.sampled_from(["high", "medium"])),
    min_size=1,
    max_size=40,
)


@given(ANSWERS)
def test_counts_are_whole_and_add_up_and_measures_are_shares(answers):
    found = trigger_numbers(answers)
    assert sum(getattr(found, name) for name in COUNTS) == len(answers)
    assert found.errors == sum(a.did_trigger is None for a in answers)
    assert all(0.0 <= getattr(found, name) <= 1.0 for name in MEASURES)
    total = sum(1.0 if a.prompt.confidence == "high" else 0.5 for a in answers)
    assert sum(found.weighted.values()) == pytest.approx(total)


@given(ANSWERS)
def test_an_error_counts_as_a_wrong_answer_in_all_and_not_at_all_among_the_decided(answers):
    wrong = [answer(a.prompt.should_trigger, not a.prompt.should_trigger, a.prompt.confidence) for a in answers]
    worst = [w if a.did_trigger is None else a for a, w in zip(answers, wrong, strict=True)]
    whole, stated = trigger_numbers(answers), trigger_numbers(worst)
    assert [getattr(whole, name) for name in (*COUNTS, *MEASURES)] == [
        getattr(stated, name) for name in (*COUNTS, *MEASURES)
    ]
    decided = [a for a in answers if a.did_trigger is not None]
    assert trigger_numbers(answers, decided_only=True) == trigger_numbers(decided)


def run_of(used, *, trials=1, prompts=None, metrics=(), **trace):
    """A stored run: `used` maps a prompt's id to the skills used for it in each trial (None: not recorded)."""
    prompts = prompts or [
        {"id": "c", "prompt": "Use s", "skill": "s", "control": "explicit"},
        {"id": "u", "prompt": "2+2", "should_trigger": False, "control": "unrelated"},
        {"id": "yes", "prompt": "a", "skill": "s", "phrasing": "keyword"},
        {"id": "no", "prompt": "b", "skill": "s", "should_trigger": False},
    ]
    results = [
        Result(task_id=identity, trial=number, status="passed", trace=_trace(skills, **trace))
        for identity, each in used.items()
        for number, skills in enumerate(each, 1)
    ]
    spec = {
        "config": {"trials_per_task": trials},
        "triggers": {"prompts": prompts, "skills": ["s"]},
        "metrics": [{"name": "trigger_accuracy", "threshold": needed} for needed in metrics],
    }
    return Run(id="r", name="n", started_at="", engine="mock", spec=spec, triggers=results)


def _trace(skills, **more):
    if isinstance(skills, str):
        return Trace(input="", output="", status="error", error=skills)
    used = None if skills is None else [SkillInvocation(name=name) for name in skills]
    return Trace(input="", output="", skill_invocations=used, **more)


RIGHT = {"c": [["s"]], "u": [[]], "yes": [["s"]], "no": [[]]}


def test_a_run_with_every_answer_right_is_valid_and_passes():
    summary = summarize(run_of(RIGHT))
    assert summary.triggers.is_valid
    assert (summary.triggers.all.accuracy, summary.exit_code) == (1.0, 0)


def test_controls_count_in_no_number():
    found = summarize_triggers(run_of(RIGHT))
    assert (found.prompts, found.answers, found.all.true_positives, found.all.true_negatives) == (2, 2, 1, 1)


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (None, "skill use was not recorded"),
        ([], "no skill use was detected"),
        (["other"], "'other' was used instead"),
        ("the key was refused", "the key was refused"),
    ],
)
def test_a_run_whose_explicit_control_did_not_register_is_invalid_whatever_else_it_shows(seen, reason):
    summary = summarize(run_of(RIGHT | {"c": [seen]}, metrics=[0.1]))
    assert not summary.triggers.is_valid
    assert reason in summary.triggers.reasons[0]
    assert summary.exit_code == 3
    assert summary.metrics[0].value is None
    assert summary.metrics[0].reason.startswith("INVALID")


def test_a_control_that_registers_in_some_trials_is_told_of_and_the_run_is_valid():
    used = {"c": [["s"], []], "u": [[], []], "yes": [["s"], ["s"]], "no": [[], []]}
    found = summarize_triggers(run_of(used, trials=2))
    assert found.is_valid
    assert "registered in 1 of 2 trials" in found.warnings[0]


def test_a_detector_that_never_says_no_is_not_believed():
    always = {"c": [["s"]], "u": [["s"]], "yes": [["s"]], "no": [["s"]]}
    assert not summarize_triggers(run_of(always)).is_valid
    eager = summarize_triggers(run_of(always | {"no": [[]]}))
    assert eager.is_valid
    assert "nothing to do with the skill" in eager.warnings[0]


@pytest.mark.parametrize("seen", ["outage", None])
def test_an_unrelated_control_nobody_can_tell_of_is_told(seen):
    found = summarize_triggers(run_of(RIGHT | {"u": [seen, []]}, trials=2))
    why = "outage" if seen else "skill use was not recorded"
    told = "the control that has nothing to do with the skill could not be decided in 1 of 2 trials: "
    assert any(warning.startswith(told + why) for warning in found.warnings)
    assert not any(told in warning for warning in summarize_triggers(run_of(RIGHT)).warnings)


@pytest.mark.parametrize(
    ("used", "told"), [([], None), (None, None), (["s"], "tool"), (["other"], "tool"), ("by reading", "file")]
)
def test_results_say_by_what_skills_were_seen_and_nothing_where_none_was(used, told):
    read = [SkillInvocation(name="s", path="skills/s/SKILL.md")]
    run = run_of({"c": [[]], "u": [[]], "yes": [[] if told == "file" else used], "no": [[]]})
    if told == "file":
        run.triggers[2] = replace(run.triggers[2], trace=replace(run.triggers[2].trace, skill_invocations=read))
    tree = json.loads(b"".join(JsonReport().render(run)))
    assert tree["trigger_metrics"]["seen_by"] == told


def test_a_gate_that_is_missed_only_because_of_errors_is_undecided_and_one_missed_anyway_fails():
    unsure = run_of(RIGHT | {"yes": ["outage"]}, metrics=[0.9])
    assert summarize(unsure).exit_code == 3
    assert summarize(unsure).triggers.all.accuracy == 0.5
    assert summarize(unsure).triggers.decided.accuracy == 1.0
    missed = run_of(RIGHT | {"yes": ["outage"], "no": [["s"]]}, metrics=[0.9])
    assert summarize(missed).exit_code == 1
    met = run_of(RIGHT | {"yes": ["outage"]}, metrics=[0.5])
    assert summarize(met).exit_code == 0


def test_without_a_gate_trigger_tests_alone_need_every_answer_right():
    assert summarize(run_of(RIGHT | {"yes": [[]]})).exit_code == 1
    assert summarize(run_of(RIGHT | {"yes": ["outage"]})).exit_code == 3


def test_a_prompt_that_was_never_asked_is_no_error_and_keeps_gates_open():
    run = run_of({key: value for key, value in RIGHT.items() if key != "yes"}, metrics=[0.9])
    found = summarize_triggers(run)
    assert (found.is_valid, found.not_asked, found.answers) == (True, 1, 1)
    assert (found.all.errors, found.all.false_negatives, found.all.accuracy) == (0, 0, 1.0)
    assert (found.accuracy_low, found.accuracy_high) == (0.5, 1.0)
    assert (summarize(run).metrics[0].status, summarize(run).exit_code) == ("error", 3)
    assert [gate.status for gate in gates(run, Needs(trigger_accuracy=0.9))] == ["error", "error"]
    [gate] = gates(run, Needs(trigger_accuracy=0.9), allow_partial=True)
    assert (gate.status, gate.value) == ("passed", 1.0)
    assert summarize(replace(run, spec=run.spec | {"metrics": []})).exit_code == 3
    tree = json.loads(b"".join(JsonReport().render(run)))["trigger_metrics"]
    assert (tree["errors"], tree["not_asked"], tree["accuracy_low"]) == (0, 1, 0.5)
    rows = list(csv.DictReader(io.StringIO(b"".join(CsvReport().render(run)).decode())))
    assert [row["task"] for row in rows if row["status"] == "not asked"] == ["yes"]
    assert "not asked: 1 trial, which is in no number" in b"".join(MarkdownReport().render(run)).decode()


def test_a_run_that_ends_before_its_controls_shows_nothing():
    found = summarize_triggers(run_of({"no": [[]]}))
    assert found.reasons == ["the control that names 's' outright was not asked"]
    assert found.warnings == ["the control that has nothing to do with the skill was not asked"]
    once = summarize_triggers(run_of({"c": [["s"]], "u": [[]], "yes": [["s"]], "no": [[]]}, trials=2))
    assert (once.is_valid, once.warnings, once.not_asked) == (True, [], 2)


@given(st.lists(st.sampled_from(["right", "wrong", "error", "not asked"]), min_size=1, max_size=12), st.floats(0.05, 1))
def test_what_was_not_asked_could_still_turn_out_either_way(outcomes, needed):
    """A gate is decided only where every way in which the open prompts could be answered decides it alike."""
    prompts = [{"id": "c", "prompt": "Use s", "skill": "s", "control": "explicit"}]
    prompts += [{"id": f"p{place}", "prompt": f"{place}", "skill": "s"} for place in range(len(outcomes))]
    uses = {"right": [["s"]], "wrong": [[]], "error": ["outage"]}

    def run(outcomes):
        used = {f"p{place}": uses[one] for place, one in enumerate(outcomes) if one in uses}
        return run_of({"c": [["s"]]} | used, prompts=prompts, metrics=[needed])

    found = summarize_triggers(run(outcomes))
    assert (found.all.errors, found.not_asked) == (outcomes.count("error"), outcomes.count("not asked"))
    [metric] = summarize(run(outcomes)).metrics
    ends = [
        summarize(run([end if one == "not asked" else one for one in outcomes])).metrics[0].status
        for end in ("right", "wrong")
    ]
    if found.answers:
        assert metric.status == (ends[0] if ends[0] == ends[1] else "error")


@pytest.mark.parametrize("word", ["late", "crash"])
@pytest.mark.parametrize("policy", ["fail", "error", "grade"])
def test_a_prompt_that_failed_to_execute_is_undecided_while_the_run_goes_on(tmp_path, word, policy):
    (tmp_path / "agent.py").write_text(AGENT)
    tests = TESTS | {"should_not_trigger_prompts": [{"prompt": word}], "timeout_seconds": 0.3}
    tests |= {"should_trigger_prompts": [{"prompt": "Explain this code"}]}
    agent = {"executor": "python", "agent": "agent:agent", "on_agent_crash": policy}
    spec = load_spec(suite(tmp_path, tests=tests, rules=None, tasks=False, needs=None, **agent), trust=True)
    told = {}
    execute(request_for(spec), Listeners(on_result=lambda result: told.update({result.task_id: result})))
    early = told["trigger:should-not-1"]
    assert (early.status, "before any skill was used" in early.reason) == ("error", True)
    assert told["trigger:should-1"].status == "passed"


def test_silence_of_an_agent_that_never_had_the_skill_says_nothing():
    answers = answers_of(run_of(RIGHT | {"yes": [[]]}, available_skills=["another"]))
    by_id = {a.prompt.id: a for a in answers}
    assert by_id["yes"].did_trigger is None
    assert "did not have the skill 's'" in by_id["yes"].error


@pytest.mark.parametrize("status", ["timeout", "failure"])
@pytest.mark.parametrize("result", ["passed", "failed", "error"])
def test_an_agent_that_ends_early_before_any_skill_was_used_failed_to_execute(status, result):
    """Its silence is no answer, whatever `on_agent_crash` makes of the trial; a skill that was used is one."""

    def ended_early(used):
        run = run_of(used, metrics=[0.9])
        early = [
            replace(one, trace=replace(one.trace, status=status, error="exit 1"), status=result, reason="it broke")
            for one in run.triggers
            if one.task_id in ("yes", "no")
        ]
        return replace(run, triggers=[*run.triggers[:2], *early])

    silent = ended_early({"c": [["s"]], "u": [[]], "yes": [[]], "no": [[]]})
    found = summarize_triggers(silent)
    assert (found.all.errors, found.all.accuracy, found.decided) == (2, 0.0, None)
    assert (found.all.false_negatives, found.all.false_positives) == (1, 1)
    assert "before any skill was used: exit 1" in answers_of(silent)[3].error
    assert summarize(silent).exit_code == 3
    other = summarize_triggers(ended_early({"c": [["s"]], "u": [[]], "yes": [["s"]], "no": [["other"]]}))
    assert (other.all.errors, other.all.accuracy) == (0, 1.0)
    assert summarize_triggers(ended_early({"c": [["s"]], "u": [[]], "yes": [["other"]], "no": [["s"]]})).all.errors == 0


@given(st.sampled_from(["timeout", "failure"]), st.lists(st.sampled_from([[], ["s"], ["other"], None]), max_size=5))
def test_an_agent_that_ends_early_is_never_right_by_its_silence(status, uses):
    run = run_of({"no": uses}, trials=max(len(uses), 1), status=status)
    assert all(bool(a.skills) for a in answers_of(run) if a.is_right)


def test_what_an_invalid_run_did_not_ask_is_in_no_number():
    run = run_of({"c": [[], []], "u": [[], []], "yes": [["s"]]}, trials=2)
    found = summarize_triggers(run)
    assert not found.is_valid
    assert (found.answers, found.not_asked, found.all.errors, found.all.true_positives) == (1, 3, 0, 1)
    assert found.all.false_negatives == found.all.false_positives == 0
    tree = json.loads(b"".join(JsonReport().render(run)))["trigger_metrics"]
    assert (tree["errors"], tree["not_asked"], tree["answers"]) == (0, 3, 1)
    rows = list(csv.DictReader(io.StringIO(b"".join(CsvReport().render(run)).decode())))
    assert [row["status"] for row in rows].count("not asked") == 3
    assert "not asked: 3 trials" in b"".join(MarkdownReport().render(run)).decode()


def test_the_wording_ladder_counts_use_by_rung():
    prompts = [
        {"id": "c", "prompt": "Use s", "skill": "s", "control": "explicit"},
        {"id": "k", "prompt": "a", "skill": "s", "phrasing": "keyword"},
        {"id": "i", "prompt": "b", "skill": "s", "phrasing": "indirect"},
        {"id": "n", "prompt": "b", "skill": "s", "phrasing": "generic", "should_trigger": False},
    ]
    used = {"c": [["s"]] * 4, "k": [["s"]] * 4, "i": [["s"], [], None, []], "n": [[]] * 4}
    rungs = summarize_triggers(run_of(used, trials=4, prompts=prompts)).rungs
    assert [(r.phrasing, r.used, r.decided, r.errors) for r in rungs] == [("keyword", 4, 4, 0), ("indirect", 1, 3, 1)]


def test_trials_of_one_prompt_do_not_make_the_interval_narrower():
    once = summarize_triggers(run_of(RIGHT))
    often = summarize_triggers(run_of({key: value * 50 for key, value in RIGHT.items()}, trials=50))
    assert often.recall_ci == once.recall_ci


@pytest.mark.parametrize(("prompts", "trials", "spread"), [(40, 1, False), (12, 1, False), (20, 5, True)])
def test_the_interval_of_recall_holds_the_true_rate_of_a_synthetic_agent(prompts, trials, spread):
    """Seeds 0..999; with `spread` each prompt has a rate of its own, so its trials are alike."""
    held = 0
    for seed in range(1_000):
        random = Random(seed)
        rates = [random.betavariate(7, 3) if spread else 0.7 for _ in range(prompts)]
        answers = [
            answer(True, random.random() < rate, number=n) for n, rate in enumerate(rates) for _ in range(trials)
        ]
        interval = recall_interval(answers)
        held += interval.lower <= 0.7 <= interval.upper
    assert held >= 930
