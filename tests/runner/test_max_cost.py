"""`--max-cost` is enforced, or it is said that it could not be."""

import json

import pytest

from waza.cli import run_command
from waza.engines._base import ENGINES
from waza.model import Grade, Result, Trace, Usage
from waza.runner.purse import Purse

GRADERS = "graders: [{type: text, config: {contains: ['yes']}}]\n"


def command(*costs):
    """Return a suite whose agent prints a trace with the cost that its prompt names, or none."""
    config = "config: {executor: command, command: [cat], output_format: json}\n"
    traces = [
        '{"output": "yes"}' if cost is None else f'{{"output": "yes", "usage": {{"cost_usd": {cost}}}}}'
        for cost in costs
    ]
    tasks = "".join(f"  - {{id: t{number}, prompt: {json.dumps(trace)}}}\n" for number, trace in enumerate(traces))
    return f"{config}{GRADERS}tasks:\n{tasks}"


def ran(capsys, folder, *arguments):
    capsys.readouterr()
    code = run_command(["run", str(folder), "-q", "--workers", "1", *arguments])
    return code, capsys.readouterr().err.replace("\n", " ")


def test_results_without_a_cost_are_told_once_and_at_the_end_and_the_run_is_not_all_right(suite, capsys):
    folder = suite(command(None, 0.1, None))
    code, said = ran(capsys, folder, "--max-cost", "1")
    assert code == 3
    assert said.count("task 't0': no cost was recorded, so the limit of $1.0000 may not hold") == 1
    assert "the limit of $1.0000 could not be held: 2 of 3 results have no cost" in said
    assert ran(capsys, folder) == (0, ""), "without a limit nobody asks"


def test_a_limit_over_known_costs_holds_without_a_word(suite, capsys):
    assert ran(capsys, suite(command(0.1, 0)), "--max-cost", "1") == (0, "")
    code, said = ran(capsys, suite(command(2, 0)), "--max-cost", "1")
    assert code == 3 and "$2.0000 spent" in said and "could not be held" not in said


def test_a_limit_that_was_reached_before_a_resume_starts_nothing(suite, capsys):
    folder = suite(command(0.5, 0.5, 0.5))
    ran(capsys, folder, "--max-cost", "0.5")
    code, said = ran(capsys, folder, "--resume", "--max-cost", "0.5")
    assert code == 3 and "$0.5000 spent, the limit is $0.5000; 1 result kept" in said
    assert ran(capsys, folder, "--resume", "--max-cost", "5")[0] == 0


def test_results_of_the_run_it_goes_on_with_count(suite, capsys):
    folder = suite(command(None, 0.1))
    ran(capsys, folder, "--task", "t0")
    code, said = ran(capsys, folder, "--resume", "--task", "t*", "--max-cost", "1")
    assert code == 3 and "1 of 2 results have no cost" in said


def test_an_agent_that_could_not_run_has_no_cost_to_tell(suite, capsys):
    text = f"config: {{executor: mock}}\n{GRADERS}tasks: [{{id: a, prompt: x, mock: {{error: no agent}}}}]\n"
    assert "no cost" not in ran(capsys, suite(text), "--max-cost", "1")[1]


def test_a_mock_costs_nothing(suite, capsys):
    text = f"config: {{executor: mock}}\n{GRADERS}tasks: [{{id: a, prompt: x, mock: {{output: 'yes'}}}}]\n"
    assert ran(capsys, suite(text), "--max-cost", "1") == (0, "")


def test_a_judge_without_prices_is_told_too():
    purse = Purse(1.0, is_free=True)
    asked = {"type": "openai", "cost_usd": None, "cached": False}
    for details in ({"judge": asked}, {"judge": asked | {"type": "scripted"}}, {"judge": asked | {"cost_usd": 0.5}}):
        grade = Grade(name="g", type="prompt", status="passed", score=1.0, feedback="", details=details)
        trace = Trace(input="x", output="y")
        purse.spend(Result(task_id="t", trial=1, status="passed", trace=trace, grades=[grade]))
    assert (purse.untold, purse.spent) == (1, 0.5)


@pytest.mark.parametrize("wrong", [-0.5, float("nan"), float("inf")])
def test_a_cost_that_cannot_be_true_is_not_recorded(wrong):
    judge = {"type": "openai", "cost_usd": wrong, "cached": False}
    grade = Grade(name="g", type="prompt", status="passed", score=1.0, feedback="", details={"judge": judge})
    cases = [(status, Usage(cost_usd=wrong), []) for status in ("success", "error")]
    for status, usage, grades in [*cases, ("success", Usage(cost_usd=0.25), [grade])]:
        purse = Purse(1.0, is_free=True)
        trace = Trace(input="x", output="y", status=status, usage=usage)
        assert not purse.spend(Result(task_id="t", trial=1, status="passed", trace=trace, grades=grades))
        assert purse.spent == (usage.cost_usd or 0.0)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ("{executor: command, command: [cat]}", "`output_format: text` has no place for a cost"),
        ("{executor: openai, model: m, base_url: 'http://127.0.0.1:1/v1'}", "give the engine `prices`"),
        ("{executor: codex}", "codex does not say what it costs"),
    ],
)
def test_a_limit_that_can_never_be_held_is_refused_before_anything_is_run(suite, capsys, config, why):
    folder = suite(f"config: {config}\n{GRADERS}tasks: [{{id: a, prompt: x}}]\n")
    for how in ([], ["--dry-run"]):
        code, said = ran(capsys, folder, "--max-cost", "1", *how)
        assert code == 2 and f"--max-cost cannot be held: {why}" in said
    assert not (folder / "runs").exists()


def test_a_run_with_a_control_arm_holds_to_the_same(suite, capsys):
    (folder := suite("skill: s\n" + command(None))).joinpath("skills/s").mkdir(parents=True)
    (folder / "skills/s/SKILL.md").write_text("---\nname: s\ndescription: d\n---\nDo it.\n")
    code, said = ran(capsys, folder, "--baseline", "--needs", "no-regression", "--max-cost", "1")
    assert code == 3 and "the limit of $1.0000 could not be held" in said
    text = (folder / "eval.yaml").read_text().replace("output_format: json", "output_format: text")
    (folder / "eval.yaml").write_text(text)
    assert ran(capsys, folder, "--baseline", "--max-cost", "1")[0] == 2


def test_every_agent_says_whether_it_tells_its_costs():
    silent = {name for name in ENGINES.built_in() if getattr(ENGINES.load(name), "has_costs", True) is False}
    assert silent == {"codex", "copilot", "copilot_sdk", "gemini", "qwen"}


def test_a_juror_whose_cost_is_not_known_is_not_hidden_by_the_sum_of_the_others():
    votes = [{"juror": name, "details": {"judge": {"cost_usd": cost}}} for name, cost in (("x", 0.1), ("y", None))]
    details = {"jury": {"votes": votes}, "judge": {"type": "jury", "cost_usd": 0.1}}
    grade = Grade(name="g", type="prompt", status="passed", score=1.0, feedback="", details=details)
    purse = Purse(1.0, is_free=True)
    assert not purse.spend(
        Result(task_id="t", trial=1, status="passed", trace=Trace(input="", output=""), grades=[grade])
    )
    assert (purse.spent, purse.untold) == (0.1, 1)
