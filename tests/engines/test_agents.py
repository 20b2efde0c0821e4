"""Real agent programs, driven end to end against a scripted model on loopback.

What is not installed is skipped, unless `WAZA_NEED_AGENTS` names it. `make agents` runs all of this for all of them.
"""

import json
import uuid
from pathlib import Path

import pytest
from agent_programs import ALL, CALCULATOR, QUICK, SKILL, Planted, address_for, agents, model_of, need, play, write
from scripted_model import SCRIPTS, TOKENS_IN, TOKENS_OUT, refuse, say, scripted_model, shell, tool

from waza.judges.rate_limits import FIRST_PAUSE_S, AgentPace

SUITE = """
name: report
skill: csv-report
config: {{executor: {name}, model: {model}, base_url: "{url}", skill_directories: [skills], timeout_seconds: 90}}
graders:
  - {{type: file, name: file, config: {{must_exist: [report.txt]}}}}
  - type: tool_calls
    name: tool_calls
    config: {{expect: [{{name: bash, args: {{command: {{contains: report.txt}}}}}}]}}
  - {{type: skill_invocation, name: skill, config: {{required_skills: [csv-report], mode: any_order}}}}
  - {{type: behavior, name: enough, config: {{max_tokens: {tokens}, required_tools: [bash]}}}}
  - {{type: behavior, name: too_few, config: {{max_tokens: {fewer}}}}}
tasks:
  - {{id: good, prompt: "Write the report. [[script:report]]"}}
  - {{id: bad, prompt: "Write the report. [[script:wrong]]"}}
"""
VERDICTS = {
    "good": {"file": "passed", "tool_calls": "passed", "skill": "passed", "enough": "passed", "too_few": "failed"},
    "bad": {"file": "failed", "tool_calls": "failed", "skill": "failed", "enough": "passed", "too_few": "passed"},
}
"""The report takes three answers of the model, so `max_tokens` tells whether all their tokens were counted."""


@pytest.fixture
def model():
    with scripted_model() as served:
        yield served


@pytest.fixture
def project(tmp_path):
    write(tmp_path / "skills/csv-report/SKILL.md", SKILL.format(name="csv-report"))
    write(tmp_path / "skills/csv-report/evals/answers.txt", "the answer")
    return tmp_path


@pytest.mark.parametrize("name", agents(*ALL))
def test_one_suite_gives_the_same_verdicts_on_every_agent(name, model, project, waza):
    need(name)
    tokens = 3 * (TOKENS_IN + TOKENS_OUT)
    about = {"name": name, "model": model_of(name), "url": address_for(name, model)}
    write(project / "eval.yaml", SUITE.format(**about, tokens=tokens, fewer=tokens - 1))
    done = waza("run", project, "-o", project / "results.json")
    assert done.returncode == 1, done.stdout + done.stderr
    results = json.loads((project / "results.json").read_text())
    assert verdicts(results) == VERDICTS, done.stdout


def verdicts(results):
    return {
        task["test_id"]: {name: _word(grade) for name, grade in task["runs"][0]["validations"].items()}
        for task in results["tasks"]
    }


def _word(grade):
    return grade.get("status") or ("passed" if grade["passed"] else "failed")


@pytest.mark.parametrize("name", agents(*ALL))
def test_nothing_of_the_users_own_home_reaches_a_trial(name, model, tmp_path, monkeypatch):
    need(name)
    planted = Planted(name, tmp_path / "home", model)
    monkeypatch.setenv("HOME", str(planted.home))
    for variable, value in planted.variables.items():
        monkeypatch.setenv(variable, value)
    assert play(name, model, ["talk"]).output == "Hello, I am a scripted model."
    assert planted.seen(model) == set()


@pytest.mark.parametrize("name", agents(*ALL))
def test_control_without_the_clean_room_it_would(name, model, tmp_path):
    """The proof that the test above can fail: the same home, handed to the agent on purpose."""
    need(name)
    planted = Planted(name, tmp_path / "home", model)
    play(name, model, ["talk"], environment={"HOME": str(planted.home)} | planted.variables)
    assert planted.seen(model) == planted.kinds


@pytest.mark.parametrize("name", agents(*ALL))
def test_an_agent_out_of_time_leaves_what_it_did_and_nothing_running(name, tmp_path):
    need(name)
    mark = f"300.{uuid.uuid4().int % 10**12:012}"
    forever = f'python3 -c "import time; time.sleep({mark})"'
    scripts = {"hang": [shell("echo begun > begun.txt"), shell(forever), say("Never said.")]}
    with scripted_model(scripts) as model:
        for limit_s in (4, 15, 60):  # the first is enough unless the machine is busy
            trace = play(name, model, ["hang"], timeout_s=limit_s)
            if len(trace.tool_events) == 2:
                break
    first, second = trace.tool_events
    assert (trace.status, trace.output) == ("timeout", "")
    assert first.success and "begun.txt" in json.dumps(first.args)
    assert mark in json.dumps(second.args) and not second.success
    assert second.extra["unfinished"] is True and second.error.startswith("unfinished")
    assert not _running(mark)


def _running(mark):
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _is_there(path)]
    return [line for line in lines if mark.encode() in line]


def _is_there(path):
    try:
        path.read_bytes()
        return True
    except OSError:
        return False


@pytest.mark.parametrize("name", agents(*ALL))
def test_a_key_that_is_refused_is_an_error_and_no_failure(name, model):
    need(name)
    trace = play(name, model, ["refused"], **QUICK.get(name, {}))
    assert trace.status == "error" and trace.output == ""
    assert "401" in trace.error or "invalid api key" in trace.error


@pytest.mark.parametrize("name", agents(*QUICK, sample=("codex",)))
def test_a_vendors_rate_limit_makes_all_agents_wait(name):
    need(name)
    with scripted_model({"limited": [refuse(429, "scripted: rate limit reached")]}) as model:
        trace = play(name, model, ["limited"], **QUICK[name])
    assert trace.status == "error" and AgentPace().record(trace) == pytest.approx(FIRST_PAUSE_S, abs=0.1)


@pytest.mark.parametrize("name", agents(*ALL))
def test_a_follow_up_prompt_goes_on_with_the_session(name, model):
    need(name)
    trace = play(name, model, ["remember", "recall"])
    assert (trace.status, trace.output) == ("success", "It was blue.")
    assert len({turn.session_id for turn in trace.turns}) == 1 and trace.session_id
    assert [turn.usage.input_tokens for turn in trace.turns] == [2 * TOKENS_IN] * 2
    assert "script:remember" in json.dumps(model.requests[-1]["body"]), "the model sees what was said before"


@pytest.mark.campaign
@pytest.mark.parametrize("name", agents(*(name for name in ALL if name != "pi")))
def test_mcp_servers_of_the_suite_are_there(name, model):
    need(name)
    server = {"command": "python3", "args": [CALCULATOR]}
    trace = play(name, model, ["servers"], mcp_servers={"calculator": server})
    calls = [event for event in trace.tool_events if event.tool_name.endswith("add")]
    assert [(call.success, "the sum is 5" in json.dumps(call.result)) for call in calls] == [(True, True)]


@pytest.mark.campaign
@pytest.mark.parametrize("name", agents(*ALL))
def test_the_skill_is_in_the_home_and_not_in_the_workspace_and_its_evals_are_nowhere(name, model, project):
    need(name)
    left = []

    def look(room):
        left.extend(path.name for path in (*room.workspace.rglob("*"), *room.home.rglob("answers.txt")))

    write(project / "house.md", "The house-rule is politeness.")
    given = {"skill_directories": ["skills"], "instruction_files": ["house.md"]}
    trace = play(name, model, ["report"], project=project, look=look, **given)
    assert [skill.name for skill in trace.skill_invocations] == ["csv-report"]
    assert left == ["report.txt"]
    assert any("house-rule" in json.dumps(request["body"]) for request in model.requests)


@pytest.mark.campaign
@pytest.mark.parametrize("name", agents(*ALL))
def test_a_prompt_is_only_a_prompt_whatever_it_looks_like(name):
    need(name)
    with scripted_model(SCRIPTS) as model:
        prompt = "--help $(touch pwned) `id` \"'\\ é\nsecond line"
        trace = play(name, model, [f"talk]] {prompt} [[script:talk"])
        said = json.dumps([request["body"] for request in model.requests], ensure_ascii=False)
    assert trace.output == "Hello, I am a scripted model."
    assert json.dumps(prompt, ensure_ascii=False)[1:-1] in said


@pytest.mark.campaign
@pytest.mark.parametrize("name", agents(*ALL))
def test_an_agent_that_may_only_read_changes_nothing(name, model):
    need(name)
    left = []
    trace = play(
        name, model, ["hello"], permission_mode="read", look=lambda room: left.extend(room.workspace.rglob("*"))
    )
    assert left == [] and trace.status in ("success", "error")


WRITES = {
    "claude-code": tool("Write", {"file_path": "made.txt", "content": "made"}),
    "claude-agent-sdk": tool("Write", {"file_path": "made.txt", "content": "made"}),
    "copilot": tool("create", {"path": "made.txt", "file_text": "made"}),
    "copilot-sdk": tool("create", {"path": "made.txt", "file_text": "made"}),
    "gemini": tool("write_file", {"file_path": "made.txt", "content": "made"}),
    "opencode": tool("write", {"filePath": "made.txt", "content": "made"}),
    "pi": tool("write", {"path": "made.txt", "content": "made"}),
    "qwen": tool("write_file", {"file_path": "{workspace}/made.txt", "content": "made"}),
}
"""How each agent changes a file with a tool of its own."""
PROGRAM = 'python3 -c \'open("by-program.txt", "w")\''
"""Not `touch`: Claude Code takes commands that only move, make or remove files of the workspace for edits."""


@pytest.mark.parametrize("name", agents(*WRITES, sample=("claude-code",)))
def test_an_agent_that_may_only_edit_changes_files_and_starts_nothing(name):
    need(name)
    left = []
    with scripted_model({"edit": [WRITES[name], shell(PROGRAM), say("Done.")]}) as model:
        look = lambda room: left.extend(path.name for path in room.workspace.rglob("*"))  # noqa: E731
        play(name, model, ["edit"], permission_mode="edits", look=look)
    assert left == ["made.txt"]


@pytest.mark.campaign
def test_codex_that_may_only_edit_keeps_its_commands_to_the_workspace():
    need("codex")
    outside = Path(f"/var/waza-{uuid.uuid4().hex}")
    left = []
    with scripted_model({"edit": [shell("echo made > made.txt"), shell(f"touch {outside}"), say("Done.")]}) as model:
        look = lambda room: left.extend(path.name for path in room.workspace.rglob("*"))  # noqa: E731
        trace = play("codex", model, ["edit"], permission_mode="edits", look=look)
    assert left == ["made.txt"] and not outside.exists()
    first, *others = [event.success for event in trace.tool_events]
    assert first and not any(others), "a command that codex itself refuses to start is not in its stream"
