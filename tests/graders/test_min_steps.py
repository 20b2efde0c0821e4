"""The `min_steps` grader: the agent takes at least a number of steps."""

import pytest

import waza


def grade(bound, **recorded):
    trace = waza.Trace.from_json({"input": "", "output": ""} | recorded)
    return waza.load_grader({"type": "min_steps", "config": {"min_steps": bound}}).grade(trace)


def test_the_bound_itself_passes_and_one_less_fails():
    assert grade(3, steps=3).passed
    found = grade(3, steps=2)
    assert (found.status, found.feedback) == ("failed", "Too few steps: 2 < 3")


def test_what_was_not_recorded_is_undecided():
    assert grade(3).status == "error"


@pytest.mark.parametrize("bound", [0, "none", -1])
def test_a_bound_that_is_always_reached_is_refused(bound):
    with pytest.raises(waza.SpecError):
        grade(bound, steps=1)
