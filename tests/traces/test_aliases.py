"""What agents call the same tool: one suite over the same script from seven agents gives the same verdicts."""

import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from trace_recordings import FOLDER

import waza
from waza.model import ToolEvent, Trace
from waza.traces.aliases import ARGUMENTS, dialect, dialect_of, tool_names
from waza.traces.reading import read_trace

AGENTS = ("claude-latest", "codex", "copilot", "gemini", "opencode", "pi", "qwen")
GUIDE = Path(__file__).parent.parent.parent / "docs" / "guide" / "traces.md"


def grader(kind, **config):
    return waza.load_grader({"type": kind, "name": kind, "config": config})


SUITES = {
    "multi": [
        grader(
            "tool_calls",
            required_tools=["bash"],
            forbidden_tools=["edit", "web_fetch"],
            min_calls=3,
            max_calls=3,
            order="in_order",
            expect=[
                {"name": "bash", "args": {"command": {"contains": "return a-b"}}},
                {"name": "bash", "args": {"command": {"equals": "cat calc.py"}}},
                {"name": "bash", "args": {"cmd": {"regex": "^sed -i"}}},
            ],
        ),
        grader("behavior", required_tools=["Bash"], forbidden_tools=["Write"], max_tool_calls=3),
        grader("action_sequence", matching_mode="exact_match", expected_actions=["run_shell_command"] * 3),
        grader("skill_invocation", forbidden_skills=["csv-report"]),
        grader("tool_constraint", reject_tools=["execute"]),
        grader("tool_constraint", expect_tools=["shell"], allow_only=["shell"]),
    ],
    "hello": [
        grader("tool_calls", required_tools=["command_execution"], max_calls=1),
        grader("action_sequence", matching_mode="exact_match", expected_actions=["Bash", "Bash"]),
        grader("behavior", forbidden_tools=["bash"]),
    ],
    "fail": [
        grader("tool_calls", expect=[{"name": "bash", "args": {"command": {"regex": "exit 3$"}}}]),
        grader("behavior", max_tool_calls=1),
    ],
    "skill": [
        grader("skill_invocation", required_skills=["csv-report"], mode="exact_match"),
        grader("skill_invocation", required_skills=["csv-report"], forbidden_skills=["other"], mode="in_order"),
    ],
}
VERDICTS = {
    "multi": ["passed", "passed", "passed", "passed", "failed", "passed"],
    "hello": ["passed", "failed", "failed"],
    "fail": ["passed", "failed"],
    "skill": ["passed", "passed"],
}


def recorded(agent, script):
    return read_trace(FOLDER / f"{agent}-{script}.jsonl")


def verdicts(trace, script):
    return [one.grade(trace).status for one in SUITES[script]]


@pytest.mark.parametrize("script", SUITES)
def test_one_suite_gives_the_same_verdicts_for_seven_agents(script):
    assert {agent: verdicts(recorded(agent, script), script) for agent in AGENTS} == dict.fromkeys(
        AGENTS, VERDICTS[script]
    )


@pytest.mark.parametrize("script", ["multi", "hello", "fail"])
def test_without_the_table_the_verdicts_would_differ(script):
    nameless = {tuple(verdicts(replace(recorded(agent, script), engine=None), script)) for agent in AGENTS}
    assert len(nameless) > 1


SUITE = """
name: one suite for all
config: {executor: mock%s}
graders:
  - {type: tool_calls, config: {required_tools: [bash], expect: [{name: bash, args: {cmd: {contains: report.txt}}}]}}
  - {type: behavior, config: {required_tools: [Bash], forbidden_tools: [Write, web_fetch], max_tool_calls: 4}}
  - {type: skill_invocation, config: {required_skills: [csv-report], mode: exact_match}}
  - {type: action_sequence, config: {expected_actions: [run_shell_command], matching_mode: in_order_match}}
  - {type: action_sequence, name: wrong, config: {expected_actions: [edit], matching_mode: any_order_match}}
tasks: [{id: report, prompt: Write the report.}]
"""


def graded_by_the_command(waza, tmp_path, more=""):
    """The verdicts of `waza grade` on the seven recordings of one script, by agent."""
    (tmp_path / "eval.yaml").write_text(SUITE % more)
    found = {}
    for agent in AGENTS:
        done = waza("grade", FOLDER / f"{agent}-skill.jsonl", "--graders", "eval.yaml", "--json")
        [trial] = json.loads(done.stdout)["tasks"][0]["runs"]
        found[agent] = [(grade["name"], grade["status"]) for grade in trial["grades"]]
    return found


def test_a_suite_file_gives_the_same_verdicts_for_seven_agents(waza, tmp_path):
    names = ("tool_calls", "behavior", "skill_invocation", "action_sequence", "wrong")
    expected = list(zip(names, ["passed"] * 4 + ["failed"], strict=True))
    assert graded_by_the_command(waza, tmp_path) == dict.fromkeys(AGENTS, expected)


def test_and_not_where_the_suite_wants_exact_names(waza, tmp_path):
    exact = graded_by_the_command(waza, tmp_path, ", tool_names: exact")
    assert len({tuple(found) for found in exact.values()}) > 1


def call(name, /, **args):
    return ToolEvent(tool_name=name, args=args)


@pytest.mark.parametrize(
    ("engine", "seen", "meant", "not_meant"),
    [
        ("claude-code", call("Bash"), ["bash", "Bash", "shell", "run_shell_command", "execute"], ["Read", "basher"]),
        ("codex", call("command_execution"), ["bash", "command_execution"], ["edit"]),
        (
            "codex",
            call("file_change", changes=[{"path": "a", "kind": "add"}]),
            ["write", "apply_patch"],
            ["edit", "read"],
        ),
        ("codex", call("file_change", changes=[{"path": "a", "kind": "update"}]), ["edit", "Edit"], ["write"]),
        ("copilot", call("create"), ["Write", "write_file"], ["edit"]),
        ("copilot-sdk", call("view"), ["read_file", "Read"], ["bash"]),
        ("gemini", call("replace"), ["Edit", "edit"], ["Write"]),
        ("pi", call("find"), ["glob"], ["grep"]),
        ("openhands", call("file_editor", command="view"), ["read"], ["edit"]),
        ("qwen", call("agent"), ["Task", "spawn_agent"], ["skill"]),
        ("codex", call("mcp__calc__add"), ["calc-add", "mcp:calc-add", "mcp_calc_add", "mcp__calc__add"], ["add"]),
        ("copilot", call("calc-add"), ["mcp__calc__add", "calc-add"], ["calc_add", "mcp__calc__sub"]),
        ("claude-code", call("execute"), ["execute"], ["bash", "shell"]),
        ("claude-code", call("bash"), ["bash"], ["Bash", "shell"]),
    ],
)
def test_names_that_mean_the_same_tool(engine, seen, meant, not_meant):
    words = dialect(engine)
    assert [name for name in meant if words.same(name, seen)] == meant
    assert [name for name in not_meant if words.same(name, seen)] == []


@pytest.mark.parametrize("engine", [None, "", "mock", "replay", "langgraph", "my-agent"])
def test_a_trace_of_no_agent_program_is_matched_exactly(engine):
    assert dialect_of(Trace(input="", output="", engine=engine)) is None


def test_arguments_are_found_under_any_of_their_names():
    args = dialect("opencode").args(call("write", filePath="a.py", content="x"), ["path", "file_path", "file_text"])
    assert args == {"filePath": "a.py", "content": "x", "path": "a.py", "file_path": "a.py", "file_text": "x"}
    assert dialect("codex").args(call("exec_command", cmd="ls"), ["command"])["command"] == "ls"
    patch = call("file_change", changes=[{"path": "a", "kind": "add"}])
    assert dialect("codex").args(patch, ["file_path"])["file_path"] == "a"
    assert dialect("codex").args(patch, ["path"])["path"] == "a"
    assert dialect("gemini").args(call("activate_skill", name="pdf"), ["skill"])["skill"] == "pdf"
    assert dialect("gemini").args(call("run_shell_command", command="ls"), ["skill", "x"]) == {"command": "ls"}


def test_arguments_of_other_tools_stay_as_they_are():
    assert dialect("codex").args(call("mcp__files__read", path="a"), ["file_path"]) == {"path": "a"}
    assert dialect("codex").args(ToolEvent(tool_name="shell", args=None), ["command"]) is None
    assert dialect("opencode").args(call("write", path="mine", filePath="theirs"), ["path"])["path"] == "mine"


def test_calls_in_the_authors_words():
    events = [call("Bash"), call("mcp__x__y"), call("Edit")]
    words = dialect("claude-code")
    assert words.as_written(["bash", "run_shell_command", "edit"], events) == ["bash", "mcp__x__y", "edit"]
    assert words.as_written(["shell", "Bash"], events) == ["Bash", "mcp__x__y", "Edit"], "the very word goes first"
    assert list(words.used(["shell", "Read", "bash"], events)) == ["Bash", "mcp__x__y", "Edit", "shell", "bash"]


def test_the_result_can_say_which_name_was_really_seen():
    events = [call("command_execution"), call("command_execution"), call("file_change", changes=[])]
    assert dialect("codex").seen_as(["bash", "read"], events) == {"bash": ["command_execution"]}
    assert dialect("opencode").seen_as(["bash"], [call("bash")]) == {}


def test_no_name_of_one_program_means_two_things_unless_it_is_a_patch():
    for program in {program for column in tool_names().values() for program in column if program}:
        names = [name for column in tool_names().values() for name in column.get(program, ())]
        assert len(names) == len(set(names)), program


def test_the_guide_shows_the_tables():
    guide = GUIDE.read_text()
    rows = {row.split("|")[1].strip(): row for row in guide.splitlines() if row.startswith("| ")}
    for kind, column in tool_names().items():
        for name in {name for names in column.values() for name in names}:
            assert f"`{name}`" in rows[kind], f"{kind}: {name} is not in the guide"
    for group in ARGUMENTS:
        assert re.search(" · ".join(f"`{name}`" for name in group), guide), group
