"""`--max-cost` is enforced, or it is said that it could not be."""

import json
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from waza.cli import run_command
from waza.engines.base import ENGINES
from waza.model import Attempt, Grade, Result, Run, Trace, Usage
from waza.reports.json import JsonReport
from waza.runner.schedule import CostLimit
from waza.runs.canaries import Canary, canaries_as_data
from waza.runs.folder import read_run_json
from waza.runs.outcomes import outcomes_of
from waza.runs.store import RunFolder, newest_run, open_run, read_run, summary_of
from waza.runs.summary import summarize
from waza.server.index import Index
from waza.spending import Costs, spent

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
    assert said.count("task 't0': no cost was recorded, so the limit of $1.0000 may be exceeded") == 1
    assert "the limit of $1.0000 could not be enforced: 2 of 3 results have no cost" in said
    assert ran(capsys, folder) == (0, ""), "without a limit nobody asks"


def test_a_limit_over_known_costs_holds_without_a_word(suite, capsys):
    assert ran(capsys, suite(command(0.1, 0)), "--max-cost", "1") == (0, "")
    code, said = ran(capsys, suite(command(2, 0)), "--max-cost", "1")
    assert code == 3 and "$2.0000 spent" in said and "could not be enforced" not in said


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


def result_with(*details, cost=0.0, status="success", **given):
    grades = [Grade(name="g", type="prompt", status="passed", score=1.0, feedback="", details=told) for told in details]
    trace = Trace(input="x", output="y", status=status, usage=Usage(cost_usd=cost))
    return Result(task_id="t", trial=1, status="passed", trace=trace, grades=grades, **given)


def test_a_judge_without_prices_is_told_too():
    cost_limit = CostLimit(1.0)
    asked = {"type": "openai", "cost_usd": None, "cached": False}
    for judge in (asked, asked | {"type": "scripted"}, asked | {"cost_usd": 0.5}):
        cost_limit.spend(result_with({"judge": judge}))
    assert (cost_limit.unreported, cost_limit.spent) == (1, 0.5)


@pytest.mark.parametrize("wrong", [-0.5, float("nan"), float("inf"), 1e308, 10**400])
def test_a_cost_that_cannot_be_true_is_not_recorded(wrong):
    judge = {"type": "openai", "cost_usd": wrong, "cached": False}
    for found, known in (
        (result_with(cost=wrong), 0.0),
        (result_with(cost=wrong, status="error"), 0.0),
        (result_with({"judge": judge}, cost=0.25), 0.25),
    ):
        cost_limit = CostLimit(1.0)
        assert not cost_limit.spend(found)
        assert cost_limit.spent == known


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ("{executor: command, command: [cat]}", "`output_format: text` cannot report a cost"),
        ("{executor: openai, model: m, base_url: 'http://127.0.0.1:1/v1'}", "give the engine `prices`"),
        ("{executor: codex}", "codex does not report its cost"),
    ],
)
def test_a_limit_that_can_never_be_held_is_refused_before_anything_is_run(suite, capsys, config, why):
    folder = suite(f"config: {config}\n{GRADERS}tasks: [{{id: a, prompt: x}}]\n")
    for how in ([], ["--dry-run"]):
        code, said = ran(capsys, folder, "--max-cost", "1", *how)
        assert code == 2 and f"--max-cost cannot be enforced: {why}" in said
    assert not (folder / "runs").exists()


def test_a_run_with_a_control_arm_holds_to_the_same(suite, capsys):
    (folder := suite("skill: s\n" + command(None))).joinpath("skills/s").mkdir(parents=True)
    (folder / "skills/s/SKILL.md").write_text("---\nname: s\ndescription: d\n---\nDo it.\n")
    code, said = ran(capsys, folder, "--baseline", "--needs", "no-regression", "--max-cost", "1")
    assert code == 3 and "the limit of $1.0000 could not be enforced" in said
    text = (folder / "eval.yaml").read_text().replace("output_format: json", "output_format: text")
    (folder / "eval.yaml").write_text(text)
    assert ran(capsys, folder, "--baseline", "--max-cost", "1")[0] == 2


def test_every_agent_says_whether_it_tells_its_costs():
    silent = {name for name in ENGINES.built_in() if getattr(ENGINES.load(name), "has_costs", True) is False}
    assert silent == {"codex", "copilot", "copilot_sdk", "gemini", "qwen"}


def test_a_juror_whose_cost_is_not_known_is_not_hidden_by_the_sum_of_the_others():
    votes = [{"juror": name, "details": {"judge": {"cost_usd": cost}}} for name, cost in (("x", 0.1), ("y", None))]
    cost_limit = CostLimit(1.0)
    assert not cost_limit.spend(result_with({"jury": {"votes": votes}, "judge": {"type": "jury", "cost_usd": 0.1}}))
    assert (cost_limit.spent, cost_limit.unreported) == (0.1, 1)


@pytest.mark.parametrize(
    "ending",
    [
        "kill -9 $$",
        "kill -HUP $$",
        "exit 127",
        "exit 1",
        "kill -SEGV $$",
        "echo '}'",
        "sleep 9",
        "head -c 5000000 /dev/zero",
    ],
)
def test_what_an_agent_reported_counts_however_its_trial_ends_and_every_attempt_counts(suite, capsys, ending):
    """An agent that prints its cost and then breaks: 30 starts may not cost $30 under a limit of $2."""
    line = '{"output": "yes", "usage": {"cost_usd": 1, "input_tokens": 7, "output_tokens": 2}}'
    script = f"echo '{line}'; {ending}"
    config = {"executor": "command", "command": ["sh", "-c", script], "output_format": "jsonl", "max_attempts": 2}
    config |= {"timeout_seconds": 0.3} if "sleep" in ending else {}
    tasks = [{"id": f"t{number}", "prompt": "x"} for number in range(5)]
    folder = suite(json.dumps({"config": config, "tasks": tasks, "graders": [{"type": "text", "contains": ["yes"]}]}))
    code, said = ran(capsys, folder, "--max-cost", "1.5")
    assert "$2.0000 spent, the limit is $1.5000" in said and code in (1, 3), said
    run = open_run(newest_run(folder / "runs"))
    summary = summarize(run)
    starts = sum(outcome.attempts for outcome in outcomes_of(run.results))
    assert (starts, summary.cost_usd, summary.agent_tokens) == (2, 2.0, 18)
    assert {len(result.attempt_log) == result.attempts for result in run.results} == {True}
    assert "yes" in run.results[0].trace.output, "a paid answer is kept"
    told = json.loads((newest_run(folder / "runs") / "results.json").read_text())
    assert told["summary"]["costs"]["agent"]["cost_usd"] == told["summary"]["costs"]["total_usd"] == 2.0
    log = [one for task in told["tasks"] for trial in task["runs"] for one in trial["attempt_log"]]
    assert [one["costs"]["total_usd"] for one in log] == [1.0, 1.0]


def test_a_conversation_that_cannot_go_on_costs_what_its_first_prompts_did(suite, capsys):
    mock = {"turns": [{"output": "yes", "usage": {"cost_usd": 1.0}}, {"error": "gone"}]}
    task = {"id": "t", "inputs": {"prompt": "x", "follow_up_prompts": ["and?"]}, "mock": mock}
    other = {"id": "u", "prompt": "x", "mock": {"error": "gone", "usage": {"cost_usd": 1.0}}}
    text = {"config": {"executor": "mock"}, "tasks": [task, other], "graders": [{"type": "text", "contains": ["yes"]}]}
    folder = suite(json.dumps(text))
    code, said = ran(capsys, folder)
    assert code == 3, said
    run = open_run(newest_run(folder / "runs"))
    assert [outcome.costs.total_usd for outcome in outcomes_of(run.results)] == [1.0, 1.0]
    assert [result.status for result in run.results] == ["error", "error"]
    assert run.results[0].trace.turns[0].output == "yes"


amounts = st.one_of(st.none(), st.floats(0, 1000), st.sampled_from([0.1, 1e-9, 0.30000000000000004]))
tokens = st.one_of(st.none(), st.integers(0, 10**6))
askings = st.fixed_dictionaries(
    {"type": st.sampled_from(["openai", "scripted"]), "cost_usd": amounts, "cached": st.booleans()},
    optional={"requests": st.integers(1, 5), "requests_without_cost": st.integers(1, 3)},
)
spendings = st.builds(spent, amounts, tokens, tokens)
logs = st.lists(
    st.builds(Attempt, status=st.just("error"), costs=st.builds(Costs, agent=spendings, judge=spendings)),
    max_size=3,
)
usages = st.none() | st.builds(Usage, cost_usd=amounts, input_tokens=tokens, output_tokens=tokens)
results = st.lists(
    st.builds(
        lambda place, usage, details, log: Result(
            task_id=f"t{place % 3}",
            trial=place // 3 + 1,
            status="passed",
            trace=Trace(input="x", output="y", usage=usage),
            grades=[
                Grade(name="g", type="prompt", status="passed", score=1.0, feedback="", details=details),
            ],
            attempt_log=log,
            fingerprint="" if place % 5 else "of an older spec",
        ),
        st.integers(0, 8),
        usages,
        st.fixed_dictionaries({}, optional={"judge": askings, "judge_swapped": askings}),
        logs,
    ),
    max_size=12,
)
canaries = st.lists(
    st.builds(
        lambda spending: Canary(
            rubric="r", rubric_hash="h", golden="g", judge="openai", model="m", expected="pass", said="pass",
            passes=True, agrees=True, spending=spending,
        ),
        spendings,
    ),
    max_size=3,
)  # fmt: skip


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=results, more=results, asked=canaries)
def test_what_the_limit_counts_is_what_every_summary_shows(tmp_path_factory, first, more, asked):
    """Over any results: retried, replaced by a resume, of removed tasks, judged by several, with canaries."""
    parent = tmp_path_factory.mktemp("runs")
    spec = {"tasks": [{"id": "t0"}, {"id": "t1"}], "fingerprints": {"t0": "f", "t1": "f", "t2": "f"}}
    spec |= {"canaries": canaries_as_data(asked)}
    new = Run(id="", name="n", started_at="2026-01-01T00:00:00Z", engine="e", spec=spec)
    cost_limit = CostLimit(1.0)
    with RunFolder.create(parent, new) as folder:
        cost_limit.spend_on_canaries(folder.run)
        for result in first:
            folder.append(result)
            cost_limit.spend(result)
        folder.finish(summarize(open_run(folder.path)))
    assert summary_of(folder.path).summary.costs == cost_limit.costs
    resumed = CostLimit(1.0, read_run(folder.path))
    assert resumed.costs == cost_limit.costs
    with RunFolder.open(folder.path) as again:
        for result in more:
            again.append(result)
            resumed.spend(result)
        run = open_run(folder.path)
        assert summarize(run).costs == resumed.costs == summarize(read_run(folder.path)).costs
        again.finish(summarize(run))
    with closing(Index(lambda: [parent])) as index:
        index.refresh(now=True)
        [listed] = index.select()
        assert listed.summary.costs == resumed.costs
        assert summarize(index.filled(listed, read_run_json(folder.path))).costs == resumed.costs
    written = json.loads(JsonReport().text(run))["summary"]["costs"]
    assert written["total_usd"] == resumed.spent and written["without_cost"] == resumed.costs.without_cost


def test_the_control_arm_counts_in_the_limit_and_in_the_summary(suite, capsys):
    (folder := suite("skill: s\n" + command(0.25, 0.25))).joinpath("skills/s").mkdir(parents=True)
    (folder / "skills/s/SKILL.md").write_text("---\nname: s\ndescription: d\n---\nDo it.\n")
    _, said = ran(capsys, folder, "--baseline", "--needs", "no-regression", "--max-cost", "0.5")
    assert "$0.5000 spent" in said, said
    run = newest_run(folder / "runs")
    assert summarize(open_run(run)).cost_usd == summary_of(run).summary.cost_usd == 0.5
    ran(capsys, folder, "--baseline", "--resume", "--max-cost", "5")
    assert summarize(open_run(run)).cost_usd == summary_of(run).summary.cost_usd == 1.0


def test_a_graded_run_is_billed_for_its_grading_and_names_what_its_agents_had_cost(suite, capsys):
    folder = suite(command(0.5, 0.25))
    ran(capsys, folder)
    assert run_command(["grade", str(newest_run(folder / "runs"))]) == 0
    assert "$0.0000 (its agents $0.7500 before it was graded)" in capsys.readouterr().out.replace("\n", " ")
    graded = newest_run(folder / "runs")
    summary = summarize(open_run(graded))
    assert summary == summary_of(graded).summary and summary.costs == Costs()
    assert summary.agents_before.cost_usd == 0.75
    told = json.loads((graded / "results.json").read_text())["summary"]["costs"]
    assert (told["total_usd"], told["agent"]["count"], told["agents_before"]["cost_usd"]) == (0, 0, 0.75)
    assert [run_command(["gate", str(graded), "--max-cost", cost]) for cost in ("0.7", "0.8")] == [1, 0]
