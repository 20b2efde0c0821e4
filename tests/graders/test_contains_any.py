"""The `contains_any` grader: at least one value is in the output."""

import pytest

import waza


def grade(output, **config):
    return waza.load_grader({"type": "contains_any", "config": config}).grade(waza.Trace(input="", output=output))


def test_one_value_is_enough_and_the_feedback_names_those_that_are_there():
    found = grade("Good Morning", values=["hello", "good morning"])
    assert (found.status, found.feedback) == ("passed", "Found in output: ['good morning']")


def test_without_any_value_the_one_check_fails():
    found = grade("Bye", values=["hello", "good morning"])
    assert (found.status, found.score, len(found.checks)) == ("failed", 0.0, 1)
    assert found.checks[0].actual == "Bye"


def test_no_values_are_refused():
    with pytest.raises(waza.SpecError):
        grade("Hello", values=[])
