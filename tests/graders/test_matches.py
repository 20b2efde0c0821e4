"""The `matches` grader: a pattern of Python's `re`."""

import pytest

import waza


def grade(output, **config):
    return waza.load_grader({"type": "matches", "config": config}).grade(waza.Trace(input="", output=output))


def test_it_matches_anywhere_with_the_syntax_of_python():
    assert grade("id: ABC123456.", pattern=r"(?<=id: )[A-Z]{3}\d{6}(?!\d)").passed
    found = grade("id: none", pattern=r"[A-Z]{3}\d{6}")
    assert (found.status, found.feedback) == ("failed", r"Missing expected pattern: [A-Z]{3}\d{6}")


def test_a_pattern_that_takes_too_long_is_undecided():
    assert grade("a" * 60 + "!", pattern=r"(a|a|aa)+(?=b)b").status == "error"


@pytest.mark.parametrize("pattern", ["(", ".*", ""])
def test_a_broken_pattern_and_one_that_always_matches_are_refused(pattern):
    with pytest.raises(waza.SpecError):
        grade("x", pattern=pattern)
