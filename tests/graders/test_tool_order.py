"""The `tool_order` grader: tools in a given order."""

import waza


def grade(calls, **config):
    events = None if calls is None else [waza.ToolEvent(tool_name=name) for name in calls]
    trace = waza.Trace(input="", output="", tool_events=events)
    return waza.load_grader({"type": "tool_order", "config": config}).grade(trace)


def test_other_calls_may_come_in_between():
    assert grade(["login", "read", "fetch"], expected_order=["login", "fetch"]).passed


def test_the_first_tool_out_of_place_is_named():
    found = grade(["fetch", "login"], expected_order=["login", "fetch"])
    assert (found.status, found.feedback) == (
        "failed",
        "Tools not called in expected order: fetch is missing or too early",
    )
    assert found.checks[0].actual == ["fetch", "login"]


def test_a_tool_given_twice_needs_two_calls_and_a_glob_takes_one():
    assert grade(["a", "b"], expected_order=["a", "a"]).status == "failed"
    assert grade(["db_read", "db_write", "save"], expected_order=["db_*", "save"]).passed


def test_without_recorded_calls_it_is_undecided():
    assert grade(None, expected_order=["login"]).status == "error"
