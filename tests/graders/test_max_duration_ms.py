"""The `max_duration_ms` grader: a bound on the time the agent takes."""

import waza


def grade(bound, **recorded):
    trace = waza.Trace.from_json({"input": "", "output": ""} | recorded)
    return waza.load_grader({"type": "max_duration_ms", "config": {"max_duration_ms": bound}}).grade(trace)


def test_the_bound_itself_passes_and_one_more_fails():
    assert grade(200, duration_ms=200).passed
    found = grade(200, duration_ms=201)
    assert (found.status, found.feedback) == ("failed", "Too many ms: 201 > 200")


def test_what_was_not_recorded_is_undecided():
    assert grade(200).status == "error"


def test_zero_and_none_are_real_bounds():
    assert grade(0, duration_ms=200).status == "failed"
    assert grade("none", duration_ms=200).status == "failed"
