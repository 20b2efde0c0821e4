"""The `tool_called` grader: tools that must be called."""

import pytest

import waza


def grade(calls, **config):
    events = None if calls is None else [waza.ToolEvent(tool_name=name) for name in calls]
    trace = waza.Trace(input="", output="", tool_events=events)
    return waza.load_grader({"type": "tool_called", "config": config}).grade(trace)


def test_each_tool_is_a_check():
    found = grade(["search", "search"], required=["search", "book"])
    assert (found.status, found.score, found.feedback) == ("failed", 0.5, "Required tool not called: book")
    assert grade(["book", "search"], required=["search", "book"]).passed


def test_a_glob_needs_one_call_that_fits():
    assert grade(["mcp__github__list"], required=["mcp__*"]).passed
    assert grade(["read"], required=["mcp__*"]).status == "failed"


def test_without_recorded_calls_it_is_undecided_and_without_calls_it_fails():
    assert grade(None, required=["search"]).status == "error"
    assert grade([], required=["search"]).status == "failed"


def test_no_tools_are_refused():
    with pytest.raises(waza.SpecError):
        grade([], required=[])
