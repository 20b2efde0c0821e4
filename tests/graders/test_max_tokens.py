"""The `max_tokens` grader: a bound on tokens, input plus output."""

import waza


def grade(bound, **recorded):
    trace = waza.Trace.from_json({"input": "", "output": ""} | recorded)
    return waza.load_grader({"type": "max_tokens", "config": {"max_tokens": bound}}).grade(trace)


def test_the_bound_itself_passes_and_one_more_fails():
    assert grade(20, usage={"input_tokens": 15, "output_tokens": 5}).passed
    found = grade(20, usage={"input_tokens": 15, "output_tokens": 6})
    assert (found.status, found.feedback) == ("failed", "Too many tokens: 21 > 20")


def test_what_was_not_recorded_is_undecided():
    assert grade(20).status == "error"


def test_zero_and_none_are_real_bounds():
    assert (
        grade(0, usage={"input_tokens": 15, "output_tokens": 5}).status
        == grade("none", usage={"input_tokens": 15, "output_tokens": 5}).status
        == "failed"
    )


def test_a_known_part_above_the_bound_fails_and_one_below_it_is_undecided():
    assert grade(20, usage={"input_tokens": 21}).status == "failed"
    assert grade(20, usage={"input_tokens": 19}).status == "error"
