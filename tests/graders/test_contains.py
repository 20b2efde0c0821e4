"""The `contains` grader: all values are in the output."""

import pytest

import waza


def grade(output, **config):
    return waza.load_grader({"type": "contains", "config": config}).grade(waza.Trace(input="", output=output))


def test_every_value_is_a_check_and_case_does_not_matter_by_default():
    found = grade("Hello World", values=["hello", "moon"])
    assert (found.status, found.score, found.feedback) == ("failed", 0.5, "Missing expected substring: moon")
    assert grade("Hello World", values=["hello", "WORLD"]).passed


def test_case_counts_on_request():
    assert grade("Hello", values=["hello"], case_sensitive=True).status == "failed"


@pytest.mark.parametrize("values", [[], [""], "hello"])
def test_values_with_which_nothing_could_fail_are_refused(values):
    with pytest.raises(waza.SpecError):
        grade("Hello", values=values)
