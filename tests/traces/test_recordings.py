"""Every recording reads as the script it was made from: calls, usage, final text, whatever the vendor's shape."""

import pytest
from trace_recordings import (
    ENGINES,
    FILES,
    FINAL_TEXTS,
    FOLDER,
    IN,
    MODEL_CALLS,
    NO_TOKENS,
    OUT,
    SHELL,
    USAGE_EXCEPTIONS,
    agent_and_script,
    of_script,
)

from waza.model import SkillInvocation
from waza.traces.reading import read_trace

MULTI = [
    "printf 'def add(a,b):\\n    return a-b\\n' > calc.py",
    "cat calc.py",
    "sed -i 's/a-b/a+b/' calc.py && python3 -c 'import calc; print(calc.add(2,3))'",
]
TELLS_NO_EXIT_CODE = ("gemini", "qwen")


def read(file):
    return read_trace(FOLDER / file)


def names(trace):
    return [event.tool_name for event in trace.tool_events]


@pytest.mark.parametrize("file", FILES)
def test_engine_output_and_status(file):
    agent, script = agent_and_script(file)
    trace = read(file)
    assert trace.engine == ENGINES.get(agent, agent)
    assert trace.output == FINAL_TEXTS.get(script, "Step 3.")
    assert trace.status == ("error" if script == "apierror" else "success")


@pytest.mark.parametrize("file", FILES)
def test_every_model_call_counts_120_in_and_17_out(file):
    _, script = agent_and_script(file)
    usage = read(file).usage
    calls = USAGE_EXCEPTIONS.get(file, MODEL_CALLS.get(script, 3))
    expected = (None, None) if file.startswith(NO_TOKENS) else (IN * calls, OUT * calls)
    assert (usage.input_tokens, usage.output_tokens) == expected


@pytest.mark.parametrize("file", [file for file in FILES if "parallel" not in file and "subagent" not in file])
def test_turns_are_model_answers(file):
    agent, script = agent_and_script(file)
    trace = read(file)
    answers = MODEL_CALLS.get(script, 3)
    assert trace.usage.turns == answers
    assert trace.usage.llm_calls == (None if agent == "codex" else answers)
    assert trace.steps == answers + len(trace.tool_events)
    assert [event.sequence for event in trace.tool_events] == list(range(1, len(trace.tool_events) + 1))
    assert [event.turn for event in trace.tool_events] == list(range(1, len(trace.tool_events) + 1))


@pytest.mark.parametrize("file", of_script("multi"))
def test_three_commands_in_sequence(file):
    agent, _ = agent_and_script(file)
    events = read(file).tool_events
    assert [event.tool_name for event in events] == [SHELL.get(agent, "bash")] * 3
    assert [event.args["command"] for event in events] == MULTI
    assert "return a-b" in events[1].result and "5" in events[2].result
    assert all(event.success for event in events)


@pytest.mark.parametrize("file", of_script("fail"))
def test_a_command_that_exits_with_3_failed_whatever_the_vendor_says(file):
    agent, _ = agent_and_script(file)
    first, second = read(file).tool_events
    assert first.success is (agent in TELLS_NO_EXIT_CODE)
    assert second.success and second.error is None
    assert first.error is None or "3" in first.error or "-1" in first.error


@pytest.mark.parametrize("file", of_script("hello", "talk"))
def test_one_call_and_none(file):
    _, script = agent_and_script(file)
    trace = read(file)
    assert len(trace.tool_events) == (1 if script == "hello" else 0)
    if script == "hello":
        assert trace.tool_events[0].args["command"] == "echo hello > hello.txt && cat hello.txt"
        assert trace.tool_events[0].result.startswith("hello")


@pytest.mark.parametrize("file", of_script("skill"))
def test_the_skill_is_seen_by_its_tool_or_by_the_file_that_is_read(file):
    agent, _ = agent_and_script(file)
    trace = read(file)
    [used] = trace.skill_invocations
    assert used.name == "csv-report"
    if agent in ("codex", "pi"):
        assert used.path.endswith("skills/csv-report/SKILL.md")
    offered = {"claude-latest", "copilot", "qwen", "copilot-sdk"} - ({"copilot"} if "session-events" in file else set())
    assert (trace.available_skills is not None) == (agent in offered)
    assert "csv-report" in (trace.available_skills or ["csv-report"])


@pytest.mark.parametrize("file", [file for file in FILES if agent_and_script(file)[1] != "skill"])
def test_no_skill_is_seen_where_none_was_used(file):
    assert not read(file).skill_invocations


def test_skill_paths_where_they_are_told():
    assert read("claude-latest-skill.jsonl").skill_invocations == [
        SkillInvocation(name="csv-report", path="/workspace/.claude/skills/csv-report")
    ]
    told = read("copilot-skill.session-events.jsonl").skill_invocations
    assert told == [SkillInvocation(name="csv-report", path="/workspace/.github/skills/csv-report/SKILL.md")]


@pytest.mark.parametrize("file", of_script("edit"))
def test_a_file_is_written_then_read(file):
    agent, _ = agent_and_script(file)
    write, look = read(file).tool_events
    assert look.tool_name == SHELL.get(agent, "bash") and "alpha" in look.result
    path = next((write.args[key] for key in ("path", "file_path", "filePath") if key in write.args), "")
    assert path.endswith("notes.md") or (agent == "codex" and "notes.md" in write.args["command"])


@pytest.mark.parametrize("file", of_script("mcp"))
def test_an_mcp_tool_that_works_and_one_that_fails(file):
    works, fails = read(file).tool_events
    assert works.args == {"a": 2, "b": 3} and works.success and works.result == "5"
    assert fails.args == {"a": 2, "b": "boom"} and not fails.success and "TypeError" in fails.error
    assert works.tool_name == fails.tool_name in ("mcp__calc__add", "calc-add")


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith(("gemini", "copilot", "opencode", "pi-"))])
def test_calls_have_a_duration_where_times_are_told(file):
    assert all(event.duration_ms and event.duration_ms > 0 for event in read(file).tool_events)


def test_prompt_model_and_session_where_they_are_told():
    trace = read("gemini-multi.jsonl")
    assert trace.input == "Write calc.py, look at it, fix add(). [[script:multi]]"
    assert trace.session_id == "9137e36b-6afd-44d1-874d-3bbc123c799b"
    assert trace.duration_ms == 5669
    assert read("pi-multi.jsonl").model == "scripted-1"
    assert read("copilot-hello.jsonl").session_id is not None
    assert read("mini-swe-agent.traj.json").input.startswith("Please solve this issue: Create hello.txt")
