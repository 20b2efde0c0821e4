"""The `max_llm_calls` grader: a bound on calls of a model."""

import waza


def grade(bound, **recorded):
    trace = waza.Trace.from_json({"input": "", "output": ""} | recorded)
    return waza.load_grader({"type": "max_llm_calls", "config": {"max_llm_calls": bound}}).grade(trace)


def test_the_bound_itself_passes_and_one_more_fails():
    assert grade(2, usage={"llm_calls": 2}).passed
    found = grade(2, usage={"llm_calls": 3})
    assert (found.status, found.feedback) == ("failed", "Too many LLM calls: 3 > 2")


def test_what_was_not_recorded_is_undecided():
    assert grade(2).status == "error"


def test_zero_and_none_are_real_bounds():
    assert grade(0, usage={"llm_calls": 2}).status == "failed"
    assert grade("none", usage={"llm_calls": 2}).status == "failed"
