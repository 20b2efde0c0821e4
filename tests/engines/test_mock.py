"""The mock engine does what its script says, and without a script it gives no check anything to pass on."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields
from pydantic import ValidationError

from waza.engines.base import ENGINES
from waza.engines.mock import (
    MockEngine,
    MockFile,
    MockScript,
    MockSkill,
    MockToolEvent,
    MockUsage,
    script_for,
)
from waza.errors import EngineError, SpecError
from waza.files.trial_folder import make_trial_folder
from waza.model import InputFile, SkillInvocation, Task, ToolEvent, Trial, Usage


def play(script, *, number=1, prompt="Say hello", **fields):
    task = Task(id="greet", prompt=prompt, mock=script, **fields)
    with make_trial_folder(task) as room:
        trace = asyncio.run(MockEngine().run(Trial(task=task, number=number, model="m"), room))
        files = {str(p.relative_to(room.workspace)): p.read_text() for p in room.workspace.rglob("*") if p.is_file()}
    return trace, files


def test_the_file_is_the_engine():
    assert ENGINES.load("mock") is MockEngine


# Without a script


@given(st.text(min_size=1))
def test_a_task_without_a_script_is_an_error_that_says_what_to_do(name):
    with pytest.raises(EngineError) as error, make_trial_folder(Task(id="t", prompt="p")) as room:
        asyncio.run(MockEngine().run(Trial(task=Task(id=name, prompt=name)), room))
    assert str(error.value).startswith(f"no mock script for task '{name}'; ")
    assert "--engine" in str(error.value) and "default: {echo: true}" in str(error.value)


@given(st.text(min_size=1))
def test_an_echo_is_the_prompt_and_nothing_else_is_recorded(prompt):
    trace, files = play({"echo": True}, prompt=prompt)
    assert trace.output == f"Mock response for: {prompt}"
    assert (trace.tool_events, trace.skill_invocations, trace.usage, trace.events, trace.steps) == (None,) * 5
    assert (trace.status, trace.engine, trace.model, files) == ("success", "mock", "m", {})


def test_an_echo_answers_each_prompt_and_does_what_else_the_script_says():
    trace, files = play({"echo": True, "files": {"a": "A"}, "tool_events": [{"tool_name": "read"}]})
    assert (trace.output, files, len(trace.tool_events)) == ("Mock response for: Say hello", {"a": "A"}, 1)
    trace, _ = play({"echo": True}, follow_up_prompts=["And now?"])
    assert [turn.output for turn in trace.turns] == ["Mock response for: Say hello", "Mock response for: And now?"]
    late, _ = play({"echo": True, "delay_s": 5}, timeout_s=0.01)
    assert (late.status, late.output) == ("timeout", "")


@pytest.mark.parametrize("script", [{}, {"echo": False}, {"echo": True, "output": "x"}])
def test_a_script_that_says_nothing_or_two_things_is_refused(script):
    with pytest.raises(ValidationError):
        MockScript.model_validate(script)


# With a script


def test_a_script_says_everything_a_trace_can_hold():
    trace, files = play(
        {
            "output": "Hello",
            "tool_events": [
                {"tool_name": "read", "args": {"path": "a"}, "result": [1], "tool_call_id": "x"},
                {"tool_name": "bash", "args": {}, "success": False, "error": "no", "turn": 2, "sequence": 9},
            ],
            "usage": {"input_tokens": 3, "cost_usd": 0.5},
            "skill_invocations": ["greeter", {"name": "other", "path": "skills/other"}],
            "available_skills": ["greeter"],
            "files": {"out/a.txt": "A"},
            "outcome": {"ok": True},
            "steps": 7,
            "duration_ms": 12,
            "status": "failure",
        },
    )
    assert files == {"out/a.txt": "A"}
    assert trace.tool_events == [
        ToolEvent(tool_name="read", args={"path": "a"}, result=[1], tool_call_id="x", sequence=1),
        ToolEvent(tool_name="bash", success=False, error="no", turn=2, sequence=9),
    ]
    assert trace.usage == Usage(input_tokens=3, cost_usd=0.5)
    assert trace.skill_invocations == [
        SkillInvocation(name="greeter"),
        SkillInvocation(name="other", path="skills/other"),
    ]
    assert (trace.input, trace.output, trace.status, trace.steps) == ("Say hello", "Hello", "failure", 7)
    assert (trace.available_skills, trace.outcome, trace.duration_ms) == (["greeter"], {"ok": True}, 12)


def test_what_a_script_leaves_out_did_not_happen():
    trace, _ = play({"output": "Hello"})
    assert (trace.tool_events, trace.skill_invocations) == ([], [])
    assert (trace.usage, trace.available_skills) == (None, None)
    assert trace.duration_ms is not None


def test_the_transcript_follows_from_the_script():
    trace, _ = play({"output": "Done", "tool_events": [{"tool_name": "read", "result": "r", "turn": 2}]})
    about = {"turn": 2, "tool_name": "read", "tool_call_id": "1"}
    assert trace.events == [
        {"type": "tool_call", **about, "args": {}},
        {"type": "tool_result", **about, "result": "r", "success": True},
        {"type": "assistant_message", "turn": 2, "content": "Done"},
    ]


def test_a_scripted_transcript_is_taken_as_it_is():
    trace, _ = play({"output": "Done", "events": []})
    assert trace.events == []


def test_braces_in_an_output_stay():
    assert play({"output": "{{name}} {prompt}"})[0].output == "{{name}} {prompt}"


def test_an_agent_that_could_not_run():
    with pytest.raises(EngineError, match="API is down"):
        play({"error": "API is down", "output": "never seen"})


def test_a_delay_within_the_time_limit_is_waited_for():
    started = time.monotonic()
    trace, _ = play({"output": "Hello", "delay_s": 0.05}, timeout_s=10)
    assert time.monotonic() - started >= 0.05
    assert (trace.status, trace.output) == ("success", "Hello")
    assert trace.duration_ms >= 50


def test_a_delay_past_the_time_limit_is_a_timeout_with_what_there_is():
    trace, files = play(
        {"output": "too late", "delay_s": 3600, "files": {"a": "1"}, "tool_events": [{"tool_name": "bash"}]},
        timeout_s=0.05,
    )
    assert (trace.status, trace.output, files) == ("timeout", "", {"a": "1"})
    assert [event.tool_name for event in trace.tool_events] == ["bash"]


def test_many_delays_pass_at_once():
    task = Task(id="t", prompt="p", mock={"output": "x", "delay_s": 0.2})

    async def all_of_them(room):
        return await asyncio.gather(*(MockEngine().run(Trial(task=task), room) for _ in range(100)))

    with make_trial_folder(task) as room:
        started = time.monotonic()
        traces = asyncio.run(all_of_them(room))
    assert len(traces) == 100
    assert time.monotonic() - started < 10


# From trial to trial


def test_trials_take_turns_and_share_the_rest():
    script = {"output": "common", "usage": {"turns": 1}, "trials": [{"output": "one"}, {}, {"error": "down"}]}
    outputs = [play(script, number=number)[0].output for number in (1, 2, 4, 5)]
    assert outputs == ["one", "common", "one", "common"]
    assert play(script, number=1)[0].usage == Usage(turns=1)
    with pytest.raises(EngineError, match="down"):
        play(script, number=3)


def test_a_trial_may_take_back_what_is_common():
    script = {"error": "down", "trials": [{}, {"error": "", "output": "up"}]}
    assert play(script, number=2)[0].output == "up"


def test_a_script_survives_being_written_as_data():
    script = MockScript.model_validate({"output": "a", "trials": [{"files": {"x": "1"}}, {"output": "b"}]})
    data = script.model_dump(mode="json", exclude_unset=True)
    assert [play(data, number=number)[0].output for number in (1, 2)] == ["a", "b"]
    assert play(data, number=1)[1] == {"x": "1"}


# Files


@pytest.mark.parametrize("path", ["../a", "/a", "a/../../b", "~/a", ""])
def test_a_file_outside_the_workspace_is_refused(path):
    with pytest.raises(ValidationError):
        MockScript.model_validate({"files": {path: "x"}})
    with pytest.raises(EngineError, match="the script of task 'greet' is wrong: files"):
        play({"files": {path: "x"}})


def test_a_file_of_the_script_replaces_an_input_file():
    _, files = play({"files": {"a.txt": "new"}}, files=[InputFile(path="a.txt", content="old")])
    assert files == {"a.txt": "new"}


def test_a_file_below_a_file_is_an_error():
    with pytest.raises(EngineError, match="cannot write its file 'a/b'"):
        play({"files": {"a/b": "x"}}, files=[InputFile(path="a", content="")])


def test_no_file_is_written_through_a_link(tmp_path):
    (tmp_path / "fixture").mkdir()
    (tmp_path / "fixture/link").symlink_to("target")
    with pytest.raises(EngineError, match="cannot write its file 'link'"):
        play({"files": {"link": "x"}}, files=[InputFile(path=".", source=str(tmp_path / "fixture"))])


# What is no script


@pytest.mark.parametrize(
    "script",
    [
        {},
        {"outptu": "x"},
        {"output": 3},
        {"status": "error"},
        {"delay_s": -1},
        {"delay_s": float("nan")},
        {"trials": []},
        {"trials": [{"trials": [{}]}]},
        {"tool_events": [{"name": "bash"}]},
        {"tool_events": [{"tool_name": ""}]},
        {"tool_events": [{"tool_name": "bash", "success": "yes"}]},
        {"usage": {"input_tokens": -1}},
        {"usage": {"tokens": 1}},
        {"skill_invocations": [""]},
        {"steps": True},
        "Hello",
    ],
)
def test_a_wrong_script_is_refused(script):
    with pytest.raises(ValidationError):
        MockScript.model_validate(script)
    with pytest.raises(EngineError, match="is wrong"):
        play(script)


@pytest.mark.parametrize(
    ("shape", "record"), [(MockToolEvent, ToolEvent), (MockUsage, Usage), (MockSkill, SkillInvocation)]
)
def test_the_keys_are_those_of_a_trace(shape, record):
    assert set(shape.model_fields) == {info.name for info in fields(record)} - {"extra", "invalid_numbers"}


# Scripts of a suite


def test_a_task_finds_its_script_by_id_then_pattern_then_default():
    file = MockFile.model_validate(
        {
            "default": {"output": "default"},
            "tasks": {"a*": {"output": "pattern"}, "abc": {"output": "exact"}, "ab*": {"output": "later"}},
        }
    )
    found = {name: script_for(file, name).output for name in ("abc", "abd", "axe", "zzz")}
    assert found == {"abc": "exact", "abd": "pattern", "axe": "pattern", "zzz": "default"}


def test_an_id_that_looks_like_a_pattern_is_still_an_id():
    file = MockFile.model_validate({"tasks": {"row[1]": {"output": "x"}}})
    assert script_for(file, "row[1]").output == "x"
    assert script_for(file, "other") is None


def test_an_unknown_key_of_a_mock_file_is_refused():
    with pytest.raises(ValidationError):
        MockFile.model_validate({"task": {}})


# Conversations


TURNS = {
    "usage": {"llm_calls": 1},
    "turns": [
        {"output": "which one?", "files": {"a.txt": "1"}},
        {"output": "done", "tool_events": [{"tool_name": "refund"}], "files": {"a.txt": "2"}},
    ],
}


def test_each_prompt_has_a_turn_of_its_own():
    trace, files = play(TURNS, follow_up_prompts=["order 1042"])
    assert (trace.input, trace.output, trace.engine, trace.model) == ("Say hello", "done", "mock", "m")
    assert [(turn.input, turn.output) for turn in trace.turns] == [("Say hello", "which one?"), ("order 1042", "done")]
    assert ([len(turn.tool_events) for turn in trace.turns], len(trace.tool_events)) == ([0, 1], 1)
    assert trace.usage.llm_calls == 2 and files == {"a.txt": "2"}


def test_a_turn_that_fails_is_the_last_and_trials_may_differ_in_their_turns():
    script = {"trials": [TURNS, {"turns": [{"output": "no", "status": "failure"}, {"output": "never"}]}]}
    trace, _ = play(script, number=2, follow_up_prompts=["again"])
    assert (trace.output, trace.status, len(trace.turns)) == ("no", "failure", 1)
    trace, _ = play({"turns": [{"delay_s": 60, "output": "late"}, {}]}, follow_up_prompts=["x"], timeout_s=0.01)
    assert (trace.output, trace.status) == ("", "timeout")
    with pytest.raises(EngineError, match="down"):
        play({"turns": [{"output": "a"}, {"error": "down"}]}, follow_up_prompts=["x"])


def test_a_script_without_turns_tells_nothing_about_them():
    trace, _ = play({"output": "done"}, follow_up_prompts=["more"])
    assert (trace.output, trace.turns) == ("done", None)


@pytest.mark.parametrize("script", [TURNS, {"output": "x", "trials": [{}, TURNS]}])
def test_as_many_turns_as_prompts_are_needed(script):
    task = Task(id="greet", prompt="a", mock=script, follow_up_prompts=["b", "c"])
    with pytest.raises(SpecError, match="'greet' has 2 turns, the task has 3 prompts"):
        MockEngine().ready([task])
    MockEngine().ready([Task(id="greet", prompt="a", mock=script, follow_up_prompts=["b"])])


def test_a_script_that_writes_files_in_a_turn_needs_a_room():
    assert MockEngine().needs_trial_folder(Trial(task=Task(id="t", prompt="p", mock={"trials": [TURNS]})))
    assert not MockEngine().needs_trial_folder(Trial(task=Task(id="t", prompt="p", mock={"turns": [{"output": "a"}]})))


@pytest.mark.parametrize("script", [{}, {"echo": False}, {"delay_s": 0.01}, {"usage": {"input_tokens": 3}, "steps": 2}])
def test_a_script_that_does_not_say_what_the_agent_does_is_refused(script):
    with pytest.raises(ValueError, match=r"does not say what the agent does|the script is empty"):
        MockScript.model_validate(script)
    assert MockScript.model_validate(script | {"output": ""}).output == ""
    assert MockScript.model_validate({"output": "x", "without_skill": {"usage": {"input_tokens": 3}}}).without_skill
