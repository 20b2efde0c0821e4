"""When calls began: from a recording's own times, else from when a working agent told of them."""

import json
import time

import pytest
from trace_recordings import FILES, FOLDER

from waza.model import ToolEvent, Trace
from waza.traces.claude_code import ClaudeCodeReader
from waza.traces.conversation import join_turns
from waza.traces.live import Live
from waza.traces.reading import read_trace

TIMED = ("gemini-multi", "copilot-multi", "pi-multi")


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith(TIMED)])
def test_a_recording_with_times_tells_when_its_calls_began(file):
    trace = read_trace(FOLDER / file)
    starts = [event.start_ms for event in trace.tool_events]
    assert starts == sorted(starts) and starts[0] >= 0
    last = trace.tool_events[-1]
    assert last.start_ms + last.duration_ms <= trace.duration_ms + 1000


def test_one_without_times_tells_none():
    assert {event.start_ms for event in read_trace(FOLDER / "codex-multi.jsonl").tool_events} == {None}


def call(number):
    block = {"type": "tool_use", "id": f"c{number}", "name": "Bash", "input": {}}
    return {"type": "assistant", "message": {"id": f"m{number}", "content": [block]}}


def result(number):
    block = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "x"}
    return {"type": "user", "message": {"content": [block]}}


def heard(*pieces):
    """The calls of an agent that prints in pieces, with a little time between them."""
    live = Live(ClaudeCodeReader(), 1 << 20, 60)
    for items in pieces:
        time.sleep(0.02)
        live.take(b"".join(json.dumps(item).encode() + b"\n" for item in items))
    return live.trace().tool_events


def test_a_working_agent_is_timed_by_when_it_tells():
    first, second, third = heard([call(1)], [call(2)], [result(1)], [result(2)], [call(3)])
    assert 15 <= first.start_ms < second.start_ms < first.start_ms + first.duration_ms, "the two went on at once"
    assert second.start_ms + second.duration_ms < third.start_ms
    assert third.duration_ms is None, "it never came back"


def test_an_agent_that_prints_all_at_once_tells_no_times():
    assert {event.start_ms for event in heard([call(1), result(1), call(2), result(2)])} == {None}


def test_calls_of_a_later_prompt_begin_after_those_before():
    turns = [
        Trace(input="a", output="", duration_ms=100, tool_events=[ToolEvent(tool_name="x", start_ms=10)]),
        Trace(input="b", output="", duration_ms=None, tool_events=[ToolEvent(tool_name="x", start_ms=5)]),
        Trace(input="c", output="", duration_ms=9, tool_events=[ToolEvent(tool_name="x", start_ms=1)]),
    ]
    assert [event.start_ms for event in join_turns(["a", "b", "c"], turns).tool_events] == [10, 105, None]
