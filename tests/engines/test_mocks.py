"""Stand-ins for tools: real MCP clients and real programs get the answers a suite declares, and every call is known."""

import asyncio
import json
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from agent_programs import agents, model_of, need
from hypothesis import given
from hypothesis import strategies as st
from scripted_model import ScriptedModel, say, shell, tool

from waza import read_trace
from waza.engines.base import ENGINES
from waza.engines.mocks.serve import NOT_FOUND, MockResponder, serve_mocks
from waza.engines.mocks.shapes import Mocks
from waza.errors import SpecError
from waza.files.trial_folder import make_trial_folder
from waza.graders.composed import MockCallsGrader
from waza.model import Task, Trial
from waza.process.run_program import available_isolation
from waza.reports.html import HtmlReport
from waza.runner.run import run
from waza.runner.trial import RunContext, run_trial
from waza.runs.outcomes import command_invocations
from waza.suites.load import load_spec

needs_mcp = pytest.mark.skipif(find_spec("mcp") is None, reason="the package mcp is not installed")
SEARCH = {
    "description": "Search issues.",
    "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
    "responses": [
        {"match": {"q": "all"}, "return": {"items": [1, 2]}},
        {"match_schema": {"properties": {"page": {"minimum": 2}}, "required": ["page"]}, "return": "no more pages"},
        {"match_regex": {"q": "^is:open"}, "return": []},
        {"args": {"q": {"contains": "label"}, "limit": {"range": {"gte": 1}}}, "return": "labelled"},
        {"match": {"q": "down"}, "error": "503 try later"},
    ],
}
GITHUB = {"name": "github", "tools": {"search": SEARCH}}


def responder(tmp_path, *, servers=(), commands=()):
    return MockResponder(Mocks.model_validate({"servers": list(servers), "commands": list(commands)}), tmp_path)


def call(mocks, args, name="search"):
    told = mocks.reply({"server": "github", "tool": name, "args": args})
    return told["text"], told["is_error"]


def start(mocks, *args, command="gh", cwd="/", env=()):
    told = mocks.reply({"command": command, "args": list(args), "cwd": str(cwd), "env": dict(env)})
    return told["stdout"], told["exit_code"]


# Which answer fits


@pytest.mark.parametrize(
    ("args", "answer"),
    [
        ({"q": "all"}, '{"items": [1, 2]}'),
        ({"q": "x", "page": 2}, "no more pages"),
        ({"q": "is:open bug"}, "[]"),
        ({"q": "label:bug", "limit": 3}, "labelled"),
    ],
)
def test_a_tool_answers_by_exact_arguments_by_schema_by_pattern_and_by_matchers(tmp_path, args, answer):
    assert call(responder(tmp_path, servers=[GITHUB]), args) == (answer, False)


@pytest.mark.parametrize("args", [{"q": "al"}, {"q": "all", "x": 1}, {"q": "label", "limit": 0}, {"q": "not is:open"}])
def test_a_call_that_no_answer_fits_fails_with_a_sentence_and_is_told_of(tmp_path, args):
    mocks = responder(tmp_path, servers=[GITHUB])
    text, is_error = call(mocks, args)
    assert is_error and "has no answer to these arguments" in text
    assert mocks.calls == [{"server": "github", "tool": "search", "args": args, "answer": None, "error": text}]
    assert mocks.remarks() == [f"no answer of a mock fits github.search({json.dumps(args)})"]


def test_what_no_answer_fits_says_nothing_about_the_answers_there_are(tmp_path):
    text, _ = call(responder(tmp_path, servers=[GITHUB]), {"q": "zzz"})
    assert not any(word in text for word in ("all", "is:open", "label", "down"))


def test_arguments_that_do_not_fit_the_tools_schema_and_unknown_tools_fail(tmp_path):
    mocks = responder(tmp_path, servers=[GITHUB])
    assert "do not fit" in call(mocks, {"q": 3})[0] and call(mocks, {"q": 3})[1]
    assert call(mocks, {}, name="delete") == ("the mocked server 'github' has no tool 'delete'", True)


def test_an_answer_may_be_an_error_of_the_tool(tmp_path):
    mocks = responder(tmp_path, servers=[GITHUB])
    assert call(mocks, {"q": "down"}) == ("503 try later", True)
    assert mocks.calls[0]["answer"] == 5 and mocks.remarks() == []


GH = {
    "name": "gh",
    "responses": [
        {"args": ["auth", "status"], "environment": {"GH_TOKEN": "t"}, "stdout": "logged in\n"},
        {"args": ["status"], "workdir": "sub", "stdout": "in sub"},
        {"args_regex": ["issue", "view", "[0-9]+"], "stdout": {"state": "OPEN"}},
        {"args_prefix": ["pr", "create"], "stdout": "created", "stderr": "hm\n", "exit_code": 4},
    ],
}


@pytest.mark.parametrize(
    ("args", "how", "told"),
    [
        (["auth", "status"], {"env": {"GH_TOKEN": "t"}}, ("logged in\n", 0)),
        (["auth", "status"], {"env": {"GH_TOKEN": "u"}}, ("", NOT_FOUND)),
        (["status"], {"cwd": "sub"}, ("in sub", 0)),
        (["status"], {"cwd": "."}, ("", NOT_FOUND)),
        (["issue", "view", "12"], {}, ('{"state": "OPEN"}', 0)),
        (["issue", "view", "12x"], {}, ("", NOT_FOUND)),
        (["issue", "view"], {}, ("", NOT_FOUND)),
        (["pr", "create", "--title", "x"], {}, ("created", 4)),
        (["pr"], {}, ("", NOT_FOUND)),
    ],
)
def test_a_program_answers_by_its_arguments_its_variables_and_its_folder(tmp_path, args, how, told):
    if "cwd" in how:
        how = how | {"cwd": tmp_path / how["cwd"]}
    assert start(responder(tmp_path, commands=[GH]), *args, **how) == told


@given(args=st.lists(st.text(), max_size=4), other=st.lists(st.text(), max_size=4))
def test_exact_arguments_fit_themselves_and_nothing_else(args, other):
    mocks = responder(".", commands=[{"name": "gh", "responses": [{"args": args, "stdout": "yes"}]}])
    assert start(mocks, *args) == ("yes", 0)
    assert start(mocks, *other) == (("yes", 0) if other == args else ("", NOT_FOUND))


def test_all_mocks_of_a_trial_share_one_state(tmp_path):
    merge = {"match": {}, "return": "merged", "set": {"pr": {"state": "MERGED"}}}
    view = [
        {"args": ["view"], "when": {"pr.state": "MERGED"}, "stdout": "merged"},
        {"args": ["view"], "stdout": "open"},
    ]
    servers = [{"name": "github", "tools": {"merge": {"responses": [merge]}}}]
    mocks = responder(tmp_path, servers=servers, commands=[{"name": "gh", "responses": view}])
    assert start(mocks, "view") == ("open", 0)
    call(mocks, {}, name="merge")
    assert start(mocks, "view") == ("merged", 0)
    assert mocks.outcome()["state"] == {"pr": {"state": "MERGED"}}


# Real clients and programs in a room


@asynccontextmanager
async def a_room(**mocks):
    task = Task(id="t", prompt="p", mocks=mocks)
    with make_trial_folder(task) as room:
        async with serve_mocks(task, room) as (prepared, behind):
            yield prepared, behind


@needs_mcp
def test_a_real_mcp_client_sees_the_tools_and_gets_the_answers():
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    async def talk():
        async with a_room(servers=[GITHUB]) as (room, behind):
            words = room.mock_programs.servers["github"]
            parameters = StdioServerParameters(command=words[0], args=list(words[1:]), cwd=room.workspace)
            async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
                await session.initialize()
                listed = (await session.list_tools()).tools
                told = [await session.call_tool("search", {"q": q}) for q in ("all", "zzz")]
            log = (room.home.parent / "mock-calls/calls.jsonl").read_text().splitlines()
            return listed, told, behind.calls, [json.loads(line) for line in log]

    listed, told, calls, logged = asyncio.run(talk())
    assert [(one.name, one.description, one.input_schema) for one in listed] == [
        ("search", SEARCH["description"], SEARCH["input_schema"])
    ]
    assert [(one.content[0].text, one.is_error) for one in told] == [
        ('{"items": [1, 2]}', False),
        ("the mock of 'search' has no answer to these arguments", True),
    ]
    assert [call["answer"] for call in calls] == [1, None] and logged == calls


def holding(text, room):
    """The files of a room that hold a text."""
    return [path for path in room.home.parent.rglob("*") if path.is_file() and text in path.read_text()]


def test_a_program_is_first_on_path_for_login_shells_too_and_the_answers_are_not_in_the_room():
    secret = "only-the-answer-says-this"

    async def play():
        responses = [{"args": ["a", "b c"], "stdout": secret, "stderr": "e", "exit_code": 3}]
        async with a_room(commands=[{"name": "git", "responses": responses}]) as (room, behind):

            def shell_says(*words):
                return asyncio.to_thread(
                    subprocess.run, words, cwd=room.workdir, env=room.environment({}), capture_output=True, text=True
                )

            plain = await shell_says("sh", "-c", "git a 'b c'")
            login = await shell_says("bash", "-lc", "git a 'b c'")
            unknown = await shell_says("sh", "-c", "git push")
            held = holding(secret, room)
            (room.home / "proof").write_text(secret)
            assert holding(secret, room) == [room.home / "proof"], "it would be seen"
            return plain, login, unknown, held, behind.calls

    plain, login, unknown, held, calls = asyncio.run(play())
    assert (plain.stdout, plain.stderr, plain.returncode) == (secret, "e", 3)
    assert (login.stdout, login.returncode) == (secret, 3)
    assert (unknown.returncode, unknown.stderr) == (
        NOT_FOUND,
        "git: the mock of this program has no answer to these arguments\n",
    )
    assert held == [] and [call["args"] for call in calls] == [["a", "b c"], ["a", "b c"], ["push"]]


def test_after_the_trial_nobody_answers_and_the_program_says_so():
    async def play():
        async with a_room(commands=[{"name": "gh", "responses": [{"args": [], "stdout": "hi"}]}]) as (room, _):
            program = (room.mock_programs.programs / "gh").read_text()
        return program.splitlines()[1].removeprefix("exec ").removesuffix(' "$@"').split()

    *words, address, name = asyncio.run(play())
    source = "from waza.engines.mocks.program import main; import sys; sys.exit(main(*sys.argv[1:]))"
    late = subprocess.run([words[0], "-c", source, address, name], capture_output=True, text=True)
    assert (late.returncode, late.stdout) == (127, "") and "waza does not answer" in late.stderr


@pytest.mark.parametrize(
    "line", [b"", b"\n", b"[]\n", b"{\n", b'{"command": "nope", "args": []}\n', b"[" * 100_000 + b"\n"]
)
def test_a_stranger_at_the_socket_gets_nothing_and_harms_nothing(line):
    async def play():
        async with a_room(commands=[{"name": "gh", "responses": [{"args": [], "stdout": "hi"}]}]) as (room, behind):
            address = room.home.parent / "mocks/waza.sock"
            reader, writer = await asyncio.open_unix_connection(address)
            writer.write(line)
            writer.write_eof()
            told = await reader.read()
            writer.close()
            env = room.environment({})
            fine = await asyncio.to_thread(subprocess.run, ["gh"], env=env, capture_output=True, text=True)
            return told, fine.stdout, len(behind.calls)

    assert asyncio.run(play()) == (b"", "hi", 1)


# Whole runs


def suite(folder, agent, **keys):
    (folder / "agent.sh").write_text(f"#!/bin/sh\n{agent}\n")
    (folder / "agent.sh").chmod(0o755)
    task = {"id": "t", "prompt": "Go", "graders": [{"type": "text", "name": "said", "config": {"contains": ["ok"]}}]}
    config = {"executor": "command", "command": ["./agent.sh"]}
    whole = {"name": "s", "config": config, "tasks": [task | keys.pop("task", {})]} | keys
    whole["config"] = config | keys.get("config", {})
    (folder / "eval.yaml").write_text(json.dumps(whole))
    return folder


PRINTS = [{"name": "gh", "expect_calls": 1, "responses": [{"args": ["x"], "stdout": "ok\n", "set": {"done": True}}]}]


def test_a_run_uses_the_mocks_and_its_trace_holds_the_calls_and_the_state(tmp_path):
    made = run(suite(tmp_path, "gh x", command_mocks=PRINTS))
    (result,) = made.results
    assert result.status == "passed" and [grade.name for grade in result.grades] == ["said", "gh.expect_calls"]
    assert result.trace.outcome["mocks"] == {
        "calls": [{"command": "gh", "args": ["x"], "answer": 1, "exit_code": 0}],
        "state": {"done": True},
    }


def test_calls_of_programs_are_in_the_results_file_on_the_page_and_on_the_screen(tmp_path, waza):
    made = run(suite(tmp_path, "gh nope; gh x", command_mocks=PRINTS))
    told = json.loads((tmp_path / "runs" / made.id / "results.json").read_text())["tasks"][0]["runs"][0]
    why = "gh: the mock of this program has no answer to these arguments"
    assert told["command_invocations"] == [
        {"command": "gh", "args": ["nope"], "exit_code": NOT_FOUND, "matched": False, "error": why},
        {"command": "gh", "args": ["x"], "exit_code": 0, "matched": True},
    ]
    page = b"".join(HtmlReport().render(made)).decode()
    assert "2 mock calls" in page
    shown = waza("show", "latest", "--task", "t").stdout
    assert "calls of mocks" in shown and '"gh", "args": ["x"]' in shown


def test_calls_of_programs_in_a_results_file_of_the_original_can_be_graded(tmp_path):
    calls = [{"name": "gh", "args": ["x"], "exit_code": 0}]
    trial = {"run_number": 1, "final_output": "ok", "status": "passed", "command_invocations": calls}
    tree = {"schemaVersion": "1.4", "eval_name": "s", "tasks": [{"test_id": "t", "runs": [trial]}]}
    (tmp_path / "results.json").write_text(json.dumps(tree))
    trace = read_trace(tmp_path / "results.json")
    grader = MockCallsGrader(command="gh", expect_calls=1)
    assert grader.grade(trace).status == "passed"
    assert command_invocations(trace)[0]["args"] == ["x"]


@pytest.mark.parametrize(("agent", "count"), [("echo ok", 0), ("gh x; gh x", 2)])
def test_a_wrong_number_of_calls_fails_the_trial(tmp_path, agent, count):
    (result,) = run(suite(tmp_path, agent, command_mocks=PRINTS)).results
    grade = result.grades[-1]
    assert (result.status, grade.status) == ("failed", "failed")
    assert grade.feedback == f"calls of the mock of gh: {count}, expected 1"


def test_calls_can_be_graded_again_from_the_stored_run_and_not_from_a_trace_without_them(tmp_path, waza):
    run(suite(tmp_path, "gh x", command_mocks=PRINTS))
    again = waza("grade", "latest")
    assert again.returncode == 0, again.stdout + again.stderr
    (tmp_path / "other.json").write_text(json.dumps({"input": "Go", "output": "ok"}))
    other = waza("run", "--replay", "other.json")
    assert other.returncode == 3 and "calls of mocks were not recorded" in other.stdout


def test_a_call_without_an_answer_is_said_on_the_screen(tmp_path, waza):
    suite(tmp_path, "gh nope || echo ok", command_mocks=[{"name": "gh", "responses": [{"args": [], "stdout": ""}]}])
    done = waza("run")
    assert done.returncode == 0 and """task 't': no answer of a mock fits ["gh", "nope"]""" in done.stderr


def test_an_agent_that_dies_of_a_missing_answer_could_not_be_tried(tmp_path):
    (result,) = run(suite(tmp_path, "exec gh nope", command_mocks=PRINTS)).results
    assert result.status == "error" and result.trace.outcome["mocks"]["calls"][0]["answer"] is None


def test_a_task_replaces_the_suites_programs_and_an_empty_list_means_none(tmp_path):
    other = [{"name": "gh", "responses": [{"args": ["x"], "stdout": "ok, other\n"}]}]
    (result,) = run(suite(tmp_path, "gh x", command_mocks=PRINTS, task={"command_mocks": other})).results
    assert result.trace.output.strip() == "ok, other"
    (result,) = run(
        suite(tmp_path, "command -v gh || echo ok", command_mocks=PRINTS, task={"command_mocks": []})
    ).results
    assert result.status == "passed" and result.trace.outcome == {}


def test_trials_do_not_share_their_state(tmp_path):
    once = [
        {"args": ["x"], "when": {"done": True}, "stdout": "again"},
        {"args": ["x"], "stdout": "ok", "set": {"done": 1}},
    ]
    folder = suite(tmp_path, "gh x", command_mocks=[{"name": "gh", "responses": once}], config={"trials_per_task": 3})
    assert [result.status for result in run(folder, workers=3).results] == ["passed"] * 3


def test_fixtures_are_read_when_the_suite_is_loaded_and_are_part_of_its_fingerprint(tmp_path):
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers/list.json").write_text(json.dumps({"responses": [{"return": 1}]}))
    (tmp_path / "answers/more.json").write_text(json.dumps({"tools": {"get": SEARCH, "put": SEARCH}}))
    (tmp_path / "out.txt").write_text("ok\n")
    commands = [{"name": "gh", "responses": [{"args": [], "fixture": "out.txt"}]}]
    servers = [{"name": "s", "fixtures": "answers", "tools": {"put": {"responses": [{"return": "mine"}]}}}]
    folder = suite(tmp_path, "gh", command_mocks=commands, mcp_mocks=servers)
    before = load_spec(folder).tasks[0]
    assert set(before.mocks["servers"][0]["tools"]) == {"list", "get", "put"}
    assert before.mocks["servers"][0]["tools"]["put"]["responses"] == [{"return": "mine"}]
    assert before.mocks["commands"][0]["responses"][0]["stdout"] == "ok\n"
    (tmp_path / "out.txt").write_text("other\n")
    assert load_spec(folder).tasks[0] != before


AGENT = """
import asyncio, json, os, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main():
    server = json.load(open(os.environ["WAZA_MCP_CONFIG"]))["mcpServers"]["github"]
    parameters = StdioServerParameters(command=server["command"], args=server["args"])
    async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
        await session.initialize()
        print("ok", (await session.call_tool("search", {"q": "all"})).content[0].text)

asyncio.run(main())
"""


@needs_mcp
def test_any_program_finds_the_mocked_servers_by_a_variable(tmp_path):
    (tmp_path / "agent.py").write_text(AGENT)
    folder = suite(tmp_path, "", mcp_mocks=[GITHUB], config={"command": [sys.executable, "{eval_dir}/agent.py"]})
    (result,) = run(folder).results
    assert (result.status, result.trace.output.strip()) == ("passed", 'ok {"items": [1, 2]}')


@pytest.mark.parametrize("kind", ["landlock", "bwrap"])
def test_an_isolated_agent_has_its_mocks_too(tmp_path, kind):
    if kind not in available_isolation():
        pytest.skip(f"{kind} is not available here")
    (result,) = run(suite(tmp_path, "gh x", command_mocks=PRINTS, config={"isolation": kind})).results
    assert result.status == "passed", result.trace


def test_the_example_of_the_guide_passes_and_says_what_it_shows(waza, tmp_path):
    guide = (Path(__file__).parents[2] / "docs/guide/mocks.md").read_text()
    shown = {kind: guide.split(f"```{kind}\n")[1].split("```")[0] for kind in ("yaml", "sh", "text")}
    (tmp_path / "eval.yaml").write_text(shown["yaml"])
    (tmp_path / "pulls.txt").write_text("7\n")
    (tmp_path / "agent.sh").write_text(shown["sh"])
    (tmp_path / "agent.sh").chmod(0o755)
    done = waza("run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert shown["text"] in done.stderr


# What is refused


@pytest.mark.parametrize(
    ("keys", "fact"),
    [
        ({"command_mocks": [{"name": "gh", "responses": [{"args": [], "args_regex": ["x"]}]}]}, "exactly one of: args"),
        ({"command_mocks": [{"name": "gh", "responses": [{"stdout": "x"}]}]}, "exactly one of: args"),
        ({"command_mocks": [{"name": "gh", "responses": []}]}, "must not be empty"),
        ({"command_mocks": [{"name": "../gh", "responses": [{"args": []}]}]}, "pattern"),
        ({"command_mocks": [{"name": "gh", "responses": [{"args": [], "sdtout": "x"}]}]}, "did you mean 'stdout'?"),
        ({"command_mocks": [{"name": "gh", "responses": [{"args_regex": ["("]}]}]}, "never closed"),
        ({"command_mocks": [{"name": "gh", "responses": [{"args": [], "workdir": "../x"}]}]}, "leaves"),
        ({"command_mocks": [{"name": "gh", "responses": [{"args": [], "fixture": "no.txt"}]}]}, "no.txt"),
        ({"command_mocks": PRINTS * 2}, "two mocks are called 'gh'"),
        ({"mcp_mocks": [{"name": "s"}]}, "has no tool"),
        ({"mcp_mocks": [{"name": "s", "fixtures": "nowhere"}]}, "nowhere"),
        ({"mcp_mocks": [{"name": "s", "tools": {"t": {"responses": [{"match": {}}]}}}]}, "either `return` or `error`"),
        (
            {"mcp_mocks": [{"name": "s", "tools": {"t": {"responses": [{"match_schema": {"type": 1}, "return": 1}]}}}]},
            "JSON Schema",
        ),
        (
            {"mcp_mocks": [{"name": "s", "tools": {"t": {"responses": [{"match_regex": {"a": "["}, "return": 1}]}}}]},
            "never closed",
        ),
        (
            {"mcp_mocks": [{"name": "s", "tools": {"t": {"responses": [{"when": {"a": {}}, "return": 1}]}}}]},
            "at least one of",
        ),
        ({"mcp_mocks": [{"name": "a b", "tools": {"t": {"responses": [{"return": 1}]}}}]}, "pattern"),
    ],
)
def test_what_could_never_answer_is_refused_with_its_place(tmp_path, keys, fact):
    with pytest.raises(SpecError) as refused:
        load_spec(suite(tmp_path, "true", **keys))
    assert fact in str(refused.value) and next(iter(keys)) in refused.value.problems[0].path


def test_a_broken_fixture_is_told_with_its_own_name(tmp_path):
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers/list.json").write_text(json.dumps({"responses": [{"retrun": 1}]}))
    with pytest.raises(SpecError, match=r"list.json.*'retrun'; did you mean 'return'"):
        load_spec(suite(tmp_path, "true", mcp_mocks=[{"name": "s", "fixtures": "answers"}]))


def test_engines_that_cannot_give_mocks_to_their_agents_refuse_them_and_those_without_an_agent_do_not_mind(tmp_path):
    spec = load_spec(suite(tmp_path, "true", command_mocks=PRINTS))
    (tmp_path / "mine.py").write_text("def answer(prompt): return 'ok'\n")
    with pytest.raises(SpecError, match=r"eval.yaml:1:.*engine 'python' cannot give its agents command_mocks"):
        replace(spec, engine_options={"agent": "mine:answer"}).engine("python")
    assert spec.engine("mock").mocks is None


WITHOUT = """
import importlib.metadata as metadata

def version(name, known=metadata.version):
    if name == "mcp":
        raise metadata.PackageNotFoundError(name)
    return known(name)

metadata.version = version
"""


def test_on_a_machine_without_the_sdk_mocked_servers_are_refused_with_what_to_install(waza, tmp_path):
    suite(tmp_path, "echo ok", mcp_mocks=[GITHUB])
    (tmp_path / "machine").mkdir()
    (tmp_path / "machine/sitecustomize.py").write_text(WITHOUT)
    done = waza("run", env={"PYTHONPATH": str(tmp_path / "machine")})
    assert done.returncode == 2 and "pip install 'waza[mcp]'" in done.stderr and "mcp_mocks" in done.stderr


# Real agent programs

SHELL = {
    "name": "bash",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    "command": ["sh", "-c", "{command}"],
}


@needs_mcp
@pytest.mark.parametrize("name", ["openai", *agents("claude-code", "codex", "copilot", "gemini", "opencode", "qwen")])
def test_a_real_agent_uses_mocked_servers_and_programs(name):
    need(name)
    scripts = {"mocks": [tool("find_issues", {"q": "all"}), shell("gh x > out.txt"), say("Done.")]}
    model = ScriptedModel(scripts)
    url = model.url + ("" if name in ("claude-code", "gemini") else "/v1")
    task = Task(
        id="t",
        prompt="Please do it. [[script:mocks]]",
        timeout_s=90,
        mocks={"servers": [{"name": "github", "tools": {"find_issues": SEARCH}}], "commands": PRINTS},
    )
    try:
        own = {"tools": [SHELL]} if name == "openai" else {}
        engine = ENGINES.load(name).model_validate({"base_url": url} | own)
        setting = RunContext(engine=engine, engine_name=name)
        result = asyncio.run(run_trial(Trial(task=task, model=model_of(name)), [], setting))
    finally:
        model.close()
    calls = result.trace.outcome["mocks"]["calls"]
    assert [(call.get("tool") or call["command"], call["answer"]) for call in calls] == [("find_issues", 1), ("gh", 1)]
    used = [event for event in result.trace.tool_events if event.tool_name.endswith("find_issues")]
    assert [(event.success, "items" in json.dumps(event.result)) for event in used] == [(True, True)]
