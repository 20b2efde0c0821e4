"""Suites with judged graders: which judge is asked, what is refused before, and what an outage leaves behind."""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest
from model_server import FAIL, PASS, Connection, ModelServer, OpenAI, Said, http, serving

from waza.cli import run_command
from waza.files.paths import SpecFolder
from waza.files.trust import cache_folder, config_folder
from waza.judges.openai import OpenaiJudge
from waza.runs.store import read_run
from waza.runs.summary import summarize
from waza.suites.judges import untrusted_host

SUITE = """
    name: judged
    config:
      executor: mock
      judge: {judge}
    tasks:
      - {{id: one, prompt: first, mock: {{output: hello one}}}}
      - {{id: two, prompt: second, mock: {{output: hello two}}}}
      - {{id: three, prompt: third, mock: {{output: hello three}}}}
    graders:
      - {{type: text, name: greets, contains: [hello]}}
      - {{type: prompt, name: polite, prompt: Is it polite?}}
"""
GOOD = http(200, OpenAI().whole(Said(PASS)))


def told(server, **settings):
    """The judge's settings for a suite, as YAML."""
    base = {"type": "openai", "model": "judge-1", "base_url": f"{server.url}/v1", "stream": False}
    return json.dumps(base | {"retries": 0, "max_wait_seconds": 0.01} | settings)


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def waza(tmp_path, monkeypatch, capsys):
    """Call the command line in this process: a vendor's SDK takes most of a second to load."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments, env=None):
        for name, value in (env or {}).items():
            monkeypatch.setenv(name, value)
        capsys.readouterr()
        code = run_command(list(arguments))
        return Done(code, *capsys.readouterr())

    return call


@pytest.fixture
def suite(tmp_path):
    def write(text=SUITE, project="", **named):
        (tmp_path / ".waza.yaml").write_text(project)
        (tmp_path / "eval.yaml").write_text(textwrap.dedent(text.format(**named) if named else text))
        return tmp_path

    return write


def the_run(done):
    return re.search(r"waza show (\S+)\)", done.stdout)[1]


def test_a_judge_is_asked_from_a_process_of_its_own_too(suite, tmp_path):
    with serving(GOOD) as server:
        suite(judge=told(server))
        done = subprocess.run([sys.executable, "-m", "waza", "run", str(tmp_path)], capture_output=True, timeout=100)
    assert (done.returncode, len(server.requests)) == (0, 3), done.stderr


def stored(folder: Path, run: str):
    return read_run(folder / "runs" / run)


def test_a_judged_suite_runs_and_says_who_judged_it(waza, suite):
    with serving(GOOD) as server:
        folder = suite(judge=told(server, prices={"input": 1.0, "output": 1.0}))
        done = waza("run", str(folder), "--workers", "3")
    assert done.returncode == 0, done.stderr
    run = stored(folder, the_run(done))
    grades = [grade for result in run.results for grade in result.grades if grade.name == "polite"]
    assert [grade.status for grade in grades] == ["passed"] * 3 and len(server.requests) == 3
    assert grades[0].details["judge"]["cost_usd"] == pytest.approx(137 / 1e6)
    assert run.spec["judge"]["model"] == "judge-1" and set(run.spec["judged"]) == {"one", "two", "three"}


def test_what_was_judged_before_is_not_paid_for_again(waza, suite):
    with serving(GOOD) as server:
        folder = suite(judge=told(server))
        first = waza("run", str(folder))
        assert "from cache" not in first.stdout
        second = waza("run", str(folder))
        waza("grade", the_run(first))
        assert len(server.requests) == 3
        assert "3 verdicts of 3 from cache; --no-judge-cache asks again" in second.stdout
        results = folder / "runs" / the_run(second) / "results.json"
        assert json.loads(results.read_text())["summary"]["verdicts_from_cache"] == 3
        assert not [path for path in folder.rglob("*") if "cache" in path.name], "nothing is kept in the project"
        for entry in (cache_folder() / "verdicts").rglob("*.json"):
            entry.write_bytes(entry.read_bytes().replace(b"grade_pass", b"grade_fail"))
        third = waza("run", str(folder))
        assert (third.returncode, len(server.requests)) == (0, 6)
        assert "3 entries of the judge cache not signed with your key and ignored" in third.stdout
        waza("grade", the_run(first), "--no-judge-cache")
        assert len(server.requests) == 9


def slow(to: Connection) -> None:
    to.closing.wait(0.2)
    GOOD(to)


def test_the_time_of_a_trial_is_the_agent_s_however_long_the_judge_takes(waza, suite):
    with serving(slow) as server:
        folder = suite(judge=told(server))
        cold = stored(folder, the_run(waza("run", str(folder))))
        warm = stored(folder, the_run(waza("run", str(folder))))
        again = waza("show", cold.id, "--task", "one").stdout
    assert len(server.requests) == 3
    trees = [json.loads((folder / "runs" / run.id / "results.json").read_text()) for run in (cold, warm)]
    for run, tree, judged_ms in zip((cold, warm), trees, (600, 0), strict=True):
        summary = summarize(run)
        assert summary.duration_ms < 150 and summary.judge_duration_ms >= judged_ms
        assert tree["summary"]["duration_ms"] == round(summary.duration_ms)
        trials = [trial for task in tree["tasks"] for trial in task["runs"]]
        assert all(trial["duration_ms"] < 100 and trial["judge_duration_ms"] >= judged_ms / 3 for trial in trials)
        assert all(trial["total_duration_ms"] >= trial["judge_duration_ms"] for trial in trials)
    assert "of judging" in again
    growth = waza("gate", warm.id, "--against", cold.id, "--max-duration-growth", "100", "--json")
    assert {gate["name"]: gate["status"] for gate in json.loads(growth.stdout)["gates"]}[
        "duration a trial against the baseline"
    ] == "passed"


def outage_after(number):
    """A server that answers so many requests, and then is out of order."""

    def answer(to: Connection, asked=[]):  # noqa: B006  one list for all requests
        asked.append(1)
        (GOOD if len(asked) <= number else http(503, b"down"))(to)

    return answer


def test_an_outage_leaves_the_judged_grades_open_and_resume_asks_only_for_them(waza, suite):
    with serving(outage_after(1)) as server:
        folder = suite(judge=told(server))
        done = waza("run", str(folder), "--no-judge-cache")
        assert done.returncode == 3, done.stdout
        name = the_run(done)
        before = stored(folder, name).results
        assert [grade.status for result in before for grade in result.grades] == [
            *("passed", "passed"),
            *("passed", "error"),
            *("passed", "error"),
        ]
        server.tell(GOOD)
        again = waza("grade", "--resume", name, "--no-judge-cache")
        assert again.returncode == 0, again.stdout + again.stderr
        assert len(server.requests) == 2
        after = stored(folder, name).results
        assert all(grade.status == "passed" for result in after for grade in result.grades)
        assert after[0] == before[0]
        costs = summarize(stored(folder, name)).costs
        assert (costs.judge.total_tokens, costs.agent.count) == (3 * 137, 3), "nothing is counted twice"
        once_more = waza("grade", "--resume", name, "--no-judge-cache")
        assert once_more.returncode == 0 and len(server.requests) == 2


def test_resume_with_another_judge_mixes_nothing(waza, suite):
    with serving(outage_after(1)) as server:
        folder = suite(judge=told(server))
        name = the_run(waza("run", str(folder)))
        suite(judge=told(server, model="judge-2"))
        done = waza("grade", "--resume", name)
        assert done.returncode == 2 and "another judge" in done.stderr


def test_a_judge_that_never_answered_may_be_replaced(waza, suite):
    closed = ModelServer()
    closed.close()
    folder = suite(judge=told(closed))
    done = waza("run", str(folder))
    assert done.returncode == 3
    with serving(GOOD) as server:
        suite(judge=told(server))
        again = waza("grade", "--resume", the_run(done))
    assert again.returncode == 0, again.stdout + again.stderr
    run = stored(folder, the_run(done))
    assert len(run.results) == 3 and all(result.status == "passed" for result in run.results)


def test_resume_after_the_graders_changed_is_refused(waza, suite):
    with serving(http(503, b"")) as server:
        folder = suite(judge=told(server))
        name = the_run(waza("run", str(folder)))
        suite(SUITE.replace("Is it polite?", "Is it kind?"), judge=told(server))
        done = waza("grade", "--resume", name)
    assert done.returncode == 2 and "changed since" in done.stderr


def test_another_judge_makes_other_results_and_only_for_judged_tasks(waza, suite):
    text = SUITE.replace("{{id: two,", "{{id: two, expected: {{graders: [greets]}},")
    with serving(GOOD) as server:
        folder = suite(text, judge=told(server))
        name = the_run(waza("run", str(folder)))
        suite(text, judge=told(server, model="judge-2", accept_models=["*"]))
        done = waza("run", str(folder), "--resume", name)
        assert done.returncode == 2 and "one: judge; three: judge changed" in done.stderr
        suite(text, judge=told(server, retries=3))
        assert waza("run", str(folder), "--resume", name).returncode == 0


def test_without_a_judge_check_warns_and_run_refuses_before_any_agent(waza, suite):
    folder = suite(SUITE.replace("      judge: {judge}\n", "").replace("{{", "{").replace("}}", "}"))
    checked = waza("check", str(folder))
    assert checked.returncode == 0 and "need a judge" in checked.stdout
    done = waza("run", str(folder))
    assert done.returncode == 2 and "need a judge" in done.stderr and not (folder / "runs").exists()
    assert waza("run", str(folder), "--skip-graders").returncode in (0, 3)


def test_a_key_that_is_not_set_is_told_before_any_agent_runs(waza, suite):
    folder = suite(judge="{type: openai, model: m, api_key_env: NO_SUCH_VARIABLE}")
    done = waza("run", str(folder))
    assert done.returncode == 2 and "NO_SUCH_VARIABLE is not set" in done.stderr and not (folder / "runs").exists()
    assert waza("check", str(folder)).returncode == 0


@pytest.mark.parametrize(
    ("judge", "words"),
    [
        ("{type: opnai}", "unknown judge 'opnai'; did you mean 'openai'?"),
        ("{type: openai, modle: m}", "unknown key 'modle'; did you mean 'model'?"),
        ("{type: openai, api_key: sk-123456789}", "a key is never in a file"),
        ("{type: openai, retries: many}", "config.judge.retries: a whole number is needed"),
        ("{type: scripted, replies_file: nowhere.yaml}", "'nowhere.yaml' is not there"),
    ],
)
def test_wrong_settings_are_refused_where_they_stand(waza, suite, judge, words):
    folder = suite(judge=judge)
    done = waza("check", str(folder))
    assert done.returncode == 2 and words in done.stdout.replace("\n", " "), done.stdout
    assert "eval.yaml:5" in done.stdout


def test_wrong_settings_of_the_project_are_told_there(waza, suite):
    text = SUITE.replace("      judge: {judge}\n", "").replace("{{", "{").replace("}}", "}")
    folder = suite(text, "defaults: {}\njudge:\n  type: openai\n  retries: many\n")
    done = waza("check", str(folder))
    assert done.returncode == 2 and ".waza.yaml:4:3: judge.retries: a whole number is needed" in done.stdout


def test_the_project_names_the_judge_and_the_suite_and_the_call_change_it(waza, suite):
    text = SUITE.replace("      judge: {judge}\n", "      judge_model: judge-of-the-suite\n")
    with serving(GOOD) as server:
        project = f"judge: {told(server, accept_models=['*'])}\n"
        folder = suite(text.replace("{{", "{").replace("}}", "}"), project)
        waza("run", str(folder))
        assert {request["model"] for request in server.requests} == {"judge-of-the-suite"}
        server.tell(GOOD)
        waza("run", str(folder), "--judge-model", "judge-of-the-call")
        assert {request["model"] for request in server.requests} == {"judge-of-the-call"}


def test_the_key_stays_out_of_every_file(waza, suite):
    key = "wz-6f1c8a9b2d3e4f50"

    def telling(to: Connection):
        http(401, {"error": {"message": f"Incorrect API key provided: {to.headers['authorization']}"}})(to)

    with serving(telling) as server:
        folder = suite(judge=told(server, api_key_env="MY_JUDGE"))
        done = waza("run", str(folder), env={"MY_JUDGE": key})
    assert done.returncode == 3 and "401" in done.stdout
    assert key not in done.stdout + done.stderr
    for file in folder.rglob("*"):
        assert not file.is_file() or key.encode() not in file.read_bytes(), file


def test_check_live_asks_the_judge_and_says_what_it_found(waza, suite):
    with serving(GOOD, http(200, OpenAI().whole(Said(FAIL))), http(404, b"{}")) as server:
        folder = suite(judge=told(server))
        good, odd, gone = (waza("check", "--live", str(folder)) for _ in range(3))
        assert len(server.requests) == 3
    assert good.returncode == 0 and "answered in" in good.stdout and "judge-1" in good.stdout
    assert odd.returncode == 0 and "called a right answer wrong" in odd.stdout
    assert gone.returncode == 3 and "404" in gone.stdout


@pytest.fixture
def no_trust(tmp_path, monkeypatch):
    """Let no folder be trusted."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    config_folder.cache_clear()
    yield
    config_folder.cache_clear()


def test_a_key_is_not_sent_to_a_host_that_a_project_names_by_commands_that_run_nothing_of_it(
    waza, suite, tmp_path, no_trust
):
    (tmp_path / ".waza.yaml").write_text("judge: {base_url: 'https://gateway.test/v1', model: m, api_key_env: MY_KEY}")
    folder = suite(judge='{base_url: "https://gateway.test/v1", model: m, api_key_env: MY_KEY, retries: 0}')
    live = waza("check", "--live", str(folder), env={"MY_KEY": "wz-6f1c8a9b2d3e4f50"})
    told = "names gateway.test as the judge's server, with the key in MY_KEY, and the folder"
    assert live.returncode == 3 and told in live.stdout and "waza trust" in live.stdout
    rubric = waza("rubric", "test", "helpfulness", "--suite", str(folder))
    card = waza("judge", "card", "helpfulness", "--suite", str(folder))
    assert (rubric.returncode, card.returncode) == (2, 2) and told in rubric.stderr and told in card.stderr


@pytest.mark.parametrize(
    ("url", "may"),
    [
        ("", True),
        ("https://api.openai.com/v1", True),
        ("https://api.anthropic.com", True),
        ("http://127.0.0.1:8000/v1", True),
        ("http://[::1]:8000/v1", True),
        ("http://localhost:11434/v1", True),
        ("https://localhost.gateway.test/v1", False),
        ("https://api.openai.com.gateway.test/v1", False),
        ("http://10.0.0.1/v1", False),
    ],
)
def test_which_addresses_a_project_may_name(url, may, tmp_path, no_trust):
    judge = OpenaiJudge(model="m", base_url=url)
    assert (untrusted_host(judge, SpecFolder(tmp_path)) == "") is may
    assert untrusted_host(judge, SpecFolder(tmp_path, trust=True)) == ""


def test_recordings_are_judged_too(waza, suite):
    with serving(GOOD) as server:
        folder = suite(judge=told(server))
        traces = [{"task_id": "one", "input": "first", "output": f"hello {n}"} for n in range(20)]
        (folder / "traces.jsonl").write_text("\n".join(map(json.dumps, traces)))
        done = waza("grade", "traces.jsonl", "--eval", ".", "--task", "one")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(server.requests) == 20


def test_a_run_is_compared_with_another(waza, suite):
    text = SUITE.replace("prompt: Is it polite?", "prompt: Which is better?, mode: pairwise")

    def knowing(to: Connection):
        asked = to.body["messages"][1]["content"]
        a, b = asked.split("## Output A")[1].split("## Output B")
        winner = "A" if "better" in a else "B" if "better" in b else "tie"
        verdict = {"winner": winner, "magnitude": "much-better", "reasoning": "it says so"}
        http(200, OpenAI().whole(Said(("set_pairwise_winner", verdict))))(to)

    with serving(knowing) as server:
        folder = suite(text, judge=told(server))
        first = waza("run", str(folder))
        assert first.returncode == 3 and "--against" in first.stdout
        suite(text.replace("hello one", "hello better one"), judge=told(server))
        second = waza("run", str(folder), "--against", the_run(first))
    assert second.returncode == 0, second.stdout + second.stderr
    grades = [result.grades[1] for result in stored(folder, the_run(second)).results]
    assert [grade.details["pairwise"]["winner"] for grade in grades] == ["candidate", "tie", "tie"]
    assert "polite: won 1, tied 2, lost 0; win rate 100 % (95 % interval 3–100 %)" in second.stdout
    assert "the same winner in both orders in 3 of 3 (100 %)" in second.stdout
    results = json.loads((folder / "runs" / the_run(second) / "results.json").read_text())
    rate = results["summary"]["pairwise"][0]
    assert (rate["wins"], rate["compared"], rate["consistent_share"]) == (1, 3, 1.0)
    assert stored(folder, the_run(second)).results[0].trace.baseline_output == "hello one"


def test_the_source_context_is_a_text_or_a_file(waza, suite):
    text = """
        name: sourced
        config:
          executor: mock
          judge: {judge}
          canaries: 0
        tasks:
          - {{id: text, prompt: a, mock: {{output: x}}, inputs: {{context: {{source: The sky is green.}}}}}}
          - {{id: file, prompt: b, mock: {{output: x}}, inputs: {{context: {{source: facts.txt}}}}}}
          - {{id: none, prompt: c, mock: {{output: x}}}}
        graders:
          - {{type: prompt, name: grounded, rubric: groundedness}}
    """
    with serving(GOOD) as server:
        folder = suite(textwrap.dedent(text), judge=told(server))
        (folder / "facts.txt").write_text("The sea is red.")
        done = waza("run", str(folder))
        suite(textwrap.dedent(text).replace("facts.txt", "fact.txt"), judge=told(server))
        wrong = waza("check", str(folder))
    assert wrong.returncode == 2 and "task 'file': inputs.context.source: 'fact.txt' is not there" in wrong.stdout
    asked = json.dumps(server.requests)
    assert "The sky is green." in asked and "The sea is red." in asked and len(server.requests) == 2
    assert done.returncode == 3 and "inputs.context.source" in done.stdout.replace("\n", " ")


PAID = """
    name: paid
    config:
      executor: command
      command: [sh, -c, "echo ran >> ../../../../started; echo hello"]
      judge: {judge}
      canaries: 0
    tasks:
      - {{id: one, prompt: first}}
      - {{id: two, prompt: second}}
    graders:
      - {{type: prompt, name: polite, prompt: Is it polite?}}
"""


@pytest.fixture
def paid(suite, tmp_path):
    """A suite whose agent leaves a line in a file each time it is started."""
    started = tmp_path / "started"

    def write(judge):
        started.unlink(missing_ok=True)
        folder = suite(PAID.replace("../../../../started", str(started)), judge=judge)
        return folder, lambda: started.read_text().count("ran") if started.exists() else 0

    return write


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"api_key_env": "MY_JUDGE"}, "is the key in MY_JUDGE right?"), ({}, "name its variable in api_key_env")],
    ids=["wrong", "missing"],
)
def test_a_wrong_or_missing_key_is_found_by_one_request_before_the_first_agent_starts(waza, paid, settings, words):
    with serving(http(401, {"error": {"message": "Incorrect API key"}})) as server:
        folder, starts = paid(told(server, retries=4, **settings))
        done = waza("run", str(folder), env={"MY_JUDGE": "wz-6f1c8a9b2d3e4f50"})
        assert (done.returncode, len(server.requests), starts()) == (2, 1, 0), done.stdout + done.stderr
    assert words in done.stderr.replace("\n", " ") and "401" in done.stderr and not (folder / "runs").exists()


def test_a_key_that_was_right_before_is_not_probed_again_and_what_the_probe_cost_counts(waza, paid):
    prices = {"input": 1.0, "output": 1.0}
    with serving(GOOD) as server:
        folder, starts = paid(told(server, api_key_env="MY_JUDGE", prices=prices))
        first = waza("run", str(folder), env={"MY_JUDGE": "wz-6f1c8a9b2d3e4f50"})
        assert (first.returncode, len(server.requests), starts()) == (0, 3, 2), "a probe and two verdicts"
        costs = summarize(stored(folder, the_run(first))).costs
        assert (costs.judge.count, costs.judge.cost_usd) == (3, pytest.approx(3 * 137 / 1e6))
        waza("run", str(folder))
        assert len(server.requests) == 3
        waza("run", str(folder), env={"MY_JUDGE": "wz-00000000000000000"})
        assert len(server.requests) == 4, "another key is probed"
        assert server.headers[-1]["authorization"] == "Bearer wz-00000000000000000"


def test_a_judge_that_is_down_does_not_keep_agents_from_running(waza, paid):
    with serving(http(503, b"down")) as server:
        folder, starts = paid(told(server))
        done = waza("run", str(folder))
        assert (done.returncode, starts()) == (3, 2)
        assert "judge judge-1 did not answer before the first trial" in done.stdout.replace("\n", " ")


def test_grading_with_a_wrong_key_is_refused_before_anything_is_stored(waza, suite):
    with serving(GOOD) as server:
        folder = suite(judge=told(server))
        name = the_run(waza("run", str(folder)))
        server.tell(http(403, b"no"))
        suite(judge=told(server, api_key_env="MY_JUDGE"))
        runs = sorted((folder / "runs").iterdir())
        done = waza("grade", name, "--no-judge-cache", env={"MY_JUDGE": "wz-6f1c8a9b2d3e4f50"})
        assert (done.returncode, len(server.requests)) == (2, 1), done.stdout + done.stderr
    assert sorted((folder / "runs").iterdir()) == runs


def test_the_rest_of_a_run_is_undecided_with_one_sentence_when_its_judge_fails_every_time(waza, suite):
    tasks = "\n".join(f"      - {{{{id: t{n}, prompt: p, mock: {{{{output: hello {n}}}}}}}}}" for n in range(12))
    text = re.sub(r"      - \{\{id: one.*?(?=    graders)", lambda _: tasks.lstrip("\n") + "\n", SUITE, flags=re.S)
    with serving(http(503, b"down")) as server:
        folder = suite(text, judge=told(server, retries=4))
        done = waza("run", str(folder))
        assert (done.returncode, len(server.requests)) == (3, 4), done.stdout + done.stderr
    grades = [result.grades[1] for result in stored(folder, the_run(done)).results]
    assert len(grades) == 12 and len({grade.feedback for grade in grades[1:]}) == 1
    assert "not asked again in this run" in grades[-1].feedback


def test_a_resumed_run_is_probed_only_if_agents_are_left_to_run(waza, paid):
    with serving(GOOD) as server:
        folder, starts = paid(told(server, api_key_env="MY_JUDGE"))
        name = the_run(waza("run", str(folder), "--task", "one", env={"MY_JUDGE": "wz-6f1c8a9b2d3e4f50"}))
        server.tell(http(401, b"no"))
        wrong = {"MY_JUDGE": "wz-00000000000000000"}
        done = waza("run", str(folder), "--task", "one", "--resume", name, env=wrong)
        assert (done.returncode, len(server.requests)) == (0, 0), done.stdout + done.stderr
        done = waza("run", str(folder), "--resume", name, "--trials", "2", env=wrong)
        assert (done.returncode, len(server.requests), starts()) == (2, 1, 1), done.stdout + done.stderr
        server.tell(GOOD)
        assert waza("run", str(folder), "--resume", name, "--trials", "2", env=wrong).returncode == 0 and starts() == 2
    assert summarize(stored(folder, name)).costs.judge.count == 3, "two probes, and one verdict for equal outputs"
