"""The `max_tool_calls` grader: a bound on tool calls."""

import waza


def grade(bound, **recorded):
    trace = waza.Trace.from_json({"input": "", "output": ""} | recorded)
    return waza.load_grader({"type": "max_tool_calls", "config": {"max_tool_calls": bound}}).grade(trace)


def test_the_bound_itself_passes_and_one_more_fails():
    assert grade(2, tool_events=[{"tool_name": "a"}] * 2).passed
    found = grade(2, tool_events=[{"tool_name": "a"}] * 3)
    assert (found.status, found.feedback) == ("failed", "Too many tool calls: 3 > 2")


def test_what_was_not_recorded_is_undecided():
    assert grade(2).status == "error"


def test_zero_and_none_are_real_bounds():
    assert (
        grade(0, tool_events=[{"tool_name": "a"}] * 2).status
        == grade("none", tool_events=[{"tool_name": "a"}] * 2).status
        == "failed"
    )
