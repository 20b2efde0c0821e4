"""The `tool_not_called` grader: tools that must not be called."""

import pytest

import waza


def grade(calls, **config):
    events = None if calls is None else [waza.ToolEvent(tool_name=name) for name in calls]
    trace = waza.Trace(input="", output="", tool_events=events)
    return waza.load_grader({"type": "tool_not_called", "config": config}).grade(trace)


def test_each_tool_is_a_check():
    found = grade(["shell"], forbidden=["shell", "rm"])
    assert (found.status, found.score, found.feedback) == ("failed", 0.5, "Forbidden tool was called: shell")
    assert grade(["read"], forbidden=["shell", "rm"]).passed


def test_a_glob_names_the_tools_it_covers():
    assert "mcp__x" in grade(["mcp__x"], forbidden=["mcp__*"]).feedback


def test_without_recorded_calls_it_is_undecided_and_without_calls_it_passes():
    assert grade(None, forbidden=["shell"]).status == "error"
    assert grade([], forbidden=["shell"]).passed


def test_no_tools_are_refused():
    with pytest.raises(waza.SpecError):
        grade([], forbidden=[])
