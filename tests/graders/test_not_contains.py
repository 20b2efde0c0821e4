"""The `not_contains` grader: none of the values is in the output."""

import pytest

import waza


def grade(output, **config):
    return waza.load_grader({"type": "not_contains", "config": config}).grade(waza.Trace(input="", output=output))


def test_a_forbidden_value_fails_and_is_shown_with_its_surroundings():
    found = grade("the Password is x", values=["password", "token"])
    assert (found.status, found.score) == ("failed", 0.5)
    assert found.feedback == "Found forbidden substring: password"
    assert [check.actual for check in found.checks if not check.ok] == ["the Password is x"]


def test_case_counts_on_request():
    assert grade("Password", values=["password"], case_sensitive=True).passed


@pytest.mark.parametrize("values", [[], [""], "hello"])
def test_values_that_check_nothing_are_refused(values):
    with pytest.raises(waza.SpecError):
        grade("Hello", values=values)
