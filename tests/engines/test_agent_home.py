"""What every agent program is given and what its output comes to, with small programs in an agent's place."""

import asyncio
import json
import os
import subprocess
import sys

import pytest
from pydantic import ValidationError

from waza.engines._start import McpServer
from waza.engines.base import ENGINES
from waza.engines.claude_code import ClaudeCodeEngine
from waza.engines.codex import CodexEngine
from waza.engines.pi import PiEngine
from waza.errors import EngineError, SpecError
from waza.files.paths import SpecFolder
from waza.files.trial_folder import make_trial_folder
from waza.model import Task, Trial

AGENTS = ("claude-code", "codex", "copilot", "copilot-sdk", "gemini", "opencode", "pi", "qwen")
DONE = '{"type": "result", "subtype": "success", "is_error": false, "session_id": "s1", "result": "done"}'


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Put a Python program under an agent's name on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def make(name, code):
        path = folder / name
        path.write_text(f"#!{sys.executable}\nimport json, os, sys, time\nfrom pathlib import Path\n{code}\n")
        path.chmod(0o755)

    return make


def play(name, *, project=".", look=None, timeout_s=30, follow_ups=(), **options):
    task = Task(id="t", prompt="Say hello", timeout_s=timeout_s, follow_up_prompts=list(follow_ups))
    engine = ENGINES.load(name).model_validate({"folder": SpecFolder(project)} | options)
    with make_trial_folder(task) as room:
        trace = asyncio.run(engine.run(Trial(task=task, model="m1"), room))
        if look:
            look(room)
    return trace


ECHO = f"""
print(json.dumps({{"type": "system", "subtype": "init", "session_id": "s1", "model": "m1"}}))
said = json.dumps({{"argv": sys.argv[1:], "env": dict(os.environ), "stdin": sys.stdin.read(), "cwd": os.getcwd()}})
print(json.dumps({json.loads(DONE)} | {{"result": said}}))
"""


# Finding the program


@pytest.mark.parametrize("name", AGENTS)
def test_a_missing_program_is_told_before_the_first_trial_with_how_to_get_it(name, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match=r"was not found on PATH; install it: npm install -g "):
        asyncio.run(ENGINES.load(name)().start())


def test_a_program_that_does_not_start_is_told_before_the_first_trial(program):
    program("codex", "sys.exit('needs a newer Node')")
    with pytest.raises(EngineError, match=r"codex: `--version` does not work: needs a newer Node; install it again"):
        asyncio.run(CodexEngine().start())


def test_the_list_of_engines_says_what_is_installed_and_how_to_get_the_rest(waza, tmp_path, program):
    program("codex", "")
    listed = waza("list", "engines", "--json", env={"PATH": os.environ["PATH"].split(":")[0]})
    programs = {row["engine"]: row["program"] for row in map(json.loads, listed.stdout.splitlines())}
    assert programs["codex"] == "codex is installed" and programs["mock"] == ""
    assert programs["pi"] == "not installed: npm install -g @mariozechner/pi-coding-agent"


# The clean room


def test_only_credentials_of_that_agent_and_declared_variables_are_passed(program, monkeypatch):
    program("claude", ECHO)
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "MY_TOKEN", "OTHER", "CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, f"value of {name}")
    told = json.loads(play("claude-code", pass_environment=["MY_TOKEN"], environment={"MODE": "test"}).output)
    env = told["env"]
    assert env["ANTHROPIC_API_KEY"] == "value of ANTHROPIC_API_KEY" and env["MY_TOKEN"] == "value of MY_TOKEN"
    assert env["MODE"] == "test" and "OPENAI_API_KEY" not in env and "OTHER" not in env
    for name in ("HOME", "CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        assert env[name].startswith(env["HOME"]) and env["HOME"] != os.environ["HOME"]
    assert told["stdin"] == "Say hello" and "Say hello" not in told["argv"]


def test_the_vendors_credential_is_not_sent_to_another_server(program, monkeypatch):
    program("claude", ECHO)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "the vendor's")
    monkeypatch.setenv("OURS", "our own")
    env = json.loads(play("claude-code", base_url="http://127.0.0.1:9", api_key_env="OURS").output)["env"]
    assert env["ANTHROPIC_API_KEY"] == "our own" and "the vendor's" not in env.values()
    env = json.loads(play("claude-code", base_url="http://127.0.0.1:9").output)["env"]
    assert env["ANTHROPIC_API_KEY"] == "no-key-needed"


def test_skills_are_copied_without_the_suite_that_tests_them(program, tmp_path):
    program("claude", ECHO)
    for path in ("SKILL.md", "scripts/run.sh", "evals/answers.txt", "eval.yaml"):
        file = tmp_path / "skills/report" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    held = []

    def look(room):
        held.extend(sorted(p.relative_to(room.home).as_posix() for p in room.home.rglob("*") if p.is_file()))

    play("claude-code", project=tmp_path, skill_directories=["skills"], look=look)
    assert [path for path in held if "skills" in path] == [
        ".claude/skills/report/SKILL.md",
        ".claude/skills/report/scripts/run.sh",
    ]


# What its output comes to


def test_what_was_told_before_the_time_ran_out_is_there_and_what_came_after_is_not(program):
    call = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "sleep 9"}}
    message = {"type": "assistant", "session_id": "s1", "message": {"id": "m", "role": "assistant", "content": [call]}}
    program(
        "claude",
        f"""
import signal
def late(*_):
    print({DONE!r}, flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, late)
print({json.dumps(message)!r}, flush=True)
time.sleep(60)
""",
    )
    trace = play("claude-code", timeout_s=2)
    assert (trace.status, trace.output) == ("timeout", "")
    assert [event.extra for event in trace.tool_events] == [{"unfinished": True}]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("sys.exit('Invalid API key')", "Invalid API key"),
        ("print('Please run /login')", "Please run /login"),
        ("sys.exit('unexpected status 503 Service Unavailable')", "it exited with code 1; unexpected status 503"),
        ("sys.exit(127)", "127"),
        (f"print({DONE!r}, flush=True); os.kill(os.getpid(), 9)", "it was ended by signal 9"),
        ("", "the recording ends early"),
    ],
)
def test_a_program_that_does_not_come_to_its_end_is_an_error(program, code, said):
    program("claude", code)
    trace = play("claude-code")
    assert trace.status == "error" and said in trace.error and trace.crash is None


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("sys.exit('TypeError: x is undefined')", "the agent exited with code 1: TypeError: x is undefined"),
        (f"print({DONE!r}); sys.exit(3)", "the agent exited with code 3"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the agent was ended by signal 11 (SIGSEGV)"),
    ],
)
def test_a_program_that_crashes_is_a_failure_with_what_was_recorded(program, code, reason):
    call = {"type": "tool_use", "id": "1", "name": "Bash", "input": {"command": "ls"}}
    message = {"type": "assistant", "message": {"id": "m", "role": "assistant", "content": [call]}}
    program("claude", f"import signal\nprint({json.dumps(message)!r}, flush=True)\n{code}")
    trace = play("claude-code")
    assert (trace.status, trace.error) == ("failure", reason)
    assert [event.tool_name for event in trace.tool_events] == ["Bash"]
    assert trace.crash is not None


def test_lines_that_are_no_events_and_events_of_odd_shapes_do_no_harm(program):
    odd = ['{"type": 7}', "[1]", "null", "not json", '{"type": "assistant", "message": 3}', '{"type": "user"}', "\\xff"]
    program(
        "claude", f"sys.stdout.write({odd!r}.__str__() + chr(10))\nfor line in {odd!r}: print(line)\nprint({DONE!r})"
    )
    trace = play("claude-code")
    assert (trace.status, trace.output, trace.tool_events) == ("success", "done", [])


def test_an_agent_that_prints_without_end_is_ended(program):
    program("claude", "while True: print('x' * 100000)")
    with pytest.raises(EngineError, match="raise max_output_mb"):
        play("claude-code", max_output_mb=1)


def test_no_sign_of_life_is_an_error_after_the_time_that_is_set(program):
    program("claude", "time.sleep(60)")
    with pytest.raises(EngineError, match=r"claude-code reported no event in 0.5 s"):
        play("claude-code", first_event_timeout_seconds=0.5)


def test_an_agent_that_told_no_session_cannot_go_on(program):
    program("claude", f"print({DONE!r}.replace('s1', ''))")
    with pytest.raises(EngineError, match="reported no session"):
        play("claude-code", follow_ups=["more"])


def test_a_codex_turn_counts_its_own_tokens(program):
    program(
        "codex",
        """
n = int(os.environ["WAZA_TURN"])
print(json.dumps({"type": "thread.started", "thread_id": "t1"}))
print(json.dumps({"type": "item.completed", "item": {"id": "i", "type": "agent_message", "text": str(sys.argv[1:])}}))
print(json.dumps({"type": "turn.completed", "usage": {"input_tokens": 100 * n, "output_tokens": 10 * n}}))
""",
    )
    trace = play("codex", follow_ups=["two", "three"])
    assert [turn.usage.input_tokens for turn in trace.turns] == [100, 100, 100]
    assert trace.usage.input_tokens == 300 and trace.usage.output_tokens == 30
    assert "'resume'" not in trace.turns[0].output and "'resume'" in trace.turns[1].output


# What is refused when the suite is loaded


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"skill_directories": ["nowhere"]}, "'nowhere' is not there"),
        ({"skill_directories": ["."]}, "'.' has no skill"),
        ({"required_skills": ["report"]}, "skill 'report' was not found; found: none"),
        ({"skill": "report"}, "skill 'report' was not found"),
        ({"instruction_files": ["rules.md"]}, "'rules.md' is not there"),
        ({"pass_environment": ["NOT_SET_AT_ALL"]}, "'NOT_SET_AT_ALL' is not set"),
        ({"base_url": "http://x", "api_key_env": "NOT_SET_AT_ALL"}, "'NOT_SET_AT_ALL' is not set"),
        ({"api_key_env": "PATH"}, "it goes with `base_url`"),
        ({"mcp_servers": {"a": McpServer(command="./server")}}, "'./server' is not there"),
    ],
)
def test_what_is_not_there_is_refused(options, said, tmp_path):
    with pytest.raises(SpecError) as caught:
        ClaudeCodeEngine(folder=SpecFolder(tmp_path), **options).ready()
    assert said in str(caught.value)


def test_two_skills_of_one_name_are_refused(tmp_path):
    for group in ("a", "b"):
        (tmp_path / "skills" / group / "report").mkdir(parents=True)
        (tmp_path / "skills" / group / "report" / "SKILL.md").write_text("---\nname: report\n---\n")
    with pytest.raises(SpecError, match="two skills called 'report': a/report and b/report"):
        ClaudeCodeEngine(folder=SpecFolder(tmp_path), skill_directories=["skills"]).ready()


@pytest.mark.parametrize(
    ("cls", "options", "said"),
    [
        (ClaudeCodeEngine, {"mcp_servers": {"a": {}}}, "either `command` or `url`"),
        (ClaudeCodeEngine, {"mcp_servers": {"a": {"command": "x", "type": "http"}}}, "does not go with `command`"),
        (ClaudeCodeEngine, {"mcp_servers": {"a b": {"command": "x"}}}, "cannot be the name of a server"),
        (ClaudeCodeEngine, {"permission_mode": "some"}, "permission_mode"),
        (PiEngine, {"mcp_servers": {"a": {"command": "x"}}}, "pi cannot use MCP servers"),
    ],
)
def test_what_no_agent_can_do_is_refused(cls, options, said):
    with pytest.raises(ValidationError) as caught:
        cls.model_validate(options)
    assert said in str(caught.value)


def test_a_disabled_skill_is_not_missed(tmp_path):
    ClaudeCodeEngine(folder=SpecFolder(tmp_path), skill="report", disabled_skills=["report"]).ready()
    ClaudeCodeEngine(folder=SpecFolder(tmp_path), skill="report", disabled_skills=["*"]).ready()


# What a hostile agent leaves in its home, where its own logs are read afterwards


def test_a_pipe_in_the_place_of_copilots_log_is_not_waited_for(program):
    program(
        "copilot",
        """
log = Path(os.environ["COPILOT_HOME"], "session-state", "s1", "events.jsonl")
log.parent.mkdir(parents=True)
os.mkfifo(log)
print(json.dumps({"type": "assistant.message", "data": {"content": "done"}}))
print(json.dumps({"type": "result", "sessionId": "s1", "exitCode": 0}))
""",
    )
    trace = play("copilot")
    assert (trace.status, trace.output, trace.session_id) == ("success", "done", "s1")


def test_a_link_in_the_place_of_copilots_log_is_not_followed(program, tmp_path):
    secret = tmp_path / "secret.jsonl"
    usage = {"inputTokens": 99, "outputTokens": 9, "apiCallId": "c"}
    secret.write_text(json.dumps({"type": "session.usage_record", "data": {"usage": usage}}) + "\n")
    code = """
log = Path(os.environ["COPILOT_HOME"], "session-state", "s1", "events.jsonl")
log.parent.mkdir(parents=True)
PLACE
print(json.dumps({"type": "result", "sessionId": "s1", "exitCode": 0}))
"""
    program("copilot", code.replace("PLACE", f"os.symlink({str(secret)!r}, log)"))
    assert play("copilot").usage.input_tokens is None
    program("copilot", code.replace("PLACE", f"log.write_text(Path({str(secret)!r}).read_text())"))
    assert play("copilot").usage.input_tokens == 99, "the control: a real log is read"


def test_a_store_of_opencode_that_never_ends_is_given_up(program):
    make = """
import sqlite3
store = Path(os.environ["XDG_DATA_HOME"], "opencode", "opencode.db")
store.parent.mkdir(parents=True)
base = sqlite3.connect(store)
base.execute(MAKE)
base.commit()
time.sleep(60)
"""
    endless = "create view part as with recursive n(data, time_created) as (select '{}', 1 union all"
    endless += " select data, time_created + 1 from n) select * from n"
    program("opencode", make.replace("MAKE", repr(endless)))
    assert play("opencode", timeout_s=1).tool_events == []
    call = {"type": "tool", "tool": "bash", "callID": "c", "state": {"status": "running", "input": {"command": "x"}}}
    rows = f"create table part as select '{json.dumps(call)}' as data, 1 as time_created"
    program("opencode", make.replace("MAKE", repr(rows)))
    assert [event.tool_name for event in play("opencode", timeout_s=1).tool_events] == ["bash"], "the control"


def test_an_mcp_server_is_started_in_its_own_folder(tmp_path):
    (tmp_path / "servers").mkdir()
    server = McpServer(command="cat", args=["a.txt"], cwd="servers").located(SpecFolder(tmp_path))
    (tmp_path / "servers/a.txt").write_text("from here")
    done = subprocess.run([server.command, *server.args], capture_output=True, text=True, cwd="/")
    assert done.stdout == "from here"
