"""The `max_turns` grader: a bound on turns."""

import waza


def grade(bound, **recorded):
    trace = waza.Trace.from_json({"input": "", "output": ""} | recorded)
    return waza.load_grader({"type": "max_turns", "config": {"max_turns": bound}}).grade(trace)


def test_the_bound_itself_passes_and_one_more_fails():
    assert grade(2, usage={"turns": 2}).passed
    found = grade(2, usage={"turns": 3})
    assert (found.status, found.feedback) == ("failed", "Too many turns: 3 > 2")


def test_what_was_not_recorded_is_undecided():
    assert grade(2).status == "error"


def test_zero_and_none_are_real_bounds():
    assert grade(0, usage={"turns": 2}).status == "failed"
    assert grade("none", usage={"turns": 2}).status == "failed"
